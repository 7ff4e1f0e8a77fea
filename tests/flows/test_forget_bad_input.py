"""What a deletion cannot do is told in one clear line without an id, and leaves run and site as they were."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from flows.cli import main
from flows.evidence_forget import asked, subjects_of_run, tree_digest
from flows.run import registry
from flows.run.layout import RunLayout
from flows.run.locks import run_lock, site_lock
from flows.run.registry import opened_site
from flows.settings import Settings
from flows.steps.forget import work
from flows.steps.forget.generation import next_of
from flows.steps.verify import site_keys, site_ledger

UNKNOWN = 77_777_777


class Place:
    """A run, its site and a request, and commands about them."""

    def __init__(self, layout: RunLayout, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
        self.layout, self.root, self.state = layout, layout.root, settings.state or layout.root
        self.folder = layout.root.parent
        self.subject = subjects_of_run(layout)[0]
        self.request = asked(self.folder, "request-one", self.subject)
        self._capsys = capsys

    def delete(self, *more: object) -> tuple[int, str]:
        """Exit code and the one line of a deletion by the request."""
        return self.told("delete", self.root, "--request", self.request, "--state-dir", self.state, *more)

    def told(self, *words: object) -> tuple[int, str]:
        """Exit code and standard error of a command: nothing, or notes and at most one refusal, and no id."""
        self._capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = self._capsys.readouterr()
        assert str(self.subject) not in out + err
        assert str(UNKNOWN) not in out + err
        assert "Traceback" not in err
        if code:
            assert err.startswith("error: "), err
            assert err.count("\n") == 1, err
        return code, err

    def contents(self) -> tuple[object, ...]:
        """Everything that a refusal may not touch: bytes of run, keys, ledger and inbox, rows of the registry."""
        parts = [file for file in sorted(self.folder.rglob("*")) if file.is_file()]
        free = {".lock", "registry.sqlite", "registry.sqlite-journal"}
        listed = [(file.relative_to(self.folder).as_posix(), file.read_bytes()) for file in parts]
        return (*(row for row in listed if row[0].rsplit("/", maxsplit=1)[-1] not in free), rows_of(self.state))

    def changed(self, **fields: Any) -> None:
        """Edit the request file by hand; None takes a field out."""
        document = json.loads(self.request.read_text()) | fields
        kept = {name: value for name, value in document.items() if value is not None}
        self.request.write_text(json.dumps(kept))


def rows_of(state: Path) -> list[str]:
    registry = state / "registry.sqlite"
    if not registry.exists():
        return []
    with closing(sqlite3.connect(registry)) as connection:
        return list(connection.iterdump())


@pytest.fixture
def place(deletable: tuple[RunLayout, Settings], capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(*deletable, capsys)


def refused(place: Place, code: int, *told: str, words: tuple[object, ...] = ()) -> None:
    """A deletion ends with this code and a line with these words, and nothing is touched."""
    before = place.contents()
    found, err = place.told(*words) if words else place.delete()
    assert found == code, err
    assert [word for word in told if word not in err] == [], err
    assert place.contents() == before
    assert not next_of(place.layout).root.exists()


# --- site and keys --------------------------------------------------------------------------------


def test_no_state_directory_named(place: Place) -> None:
    refused(place, 2, "--state-dir", words=("delete", place.root, "--request", place.request))


def test_a_state_directory_that_is_not_there(place: Place) -> None:
    nowhere = place.folder / "nowhere"
    words = ("delete", place.root, "--request", place.request, "--state-dir", nowhere)
    refused(place, 3, "keys new", words=words)
    assert not nowhere.exists()


def test_a_site_without_a_key_cannot_decide(place: Place) -> None:
    shutil.rmtree(place.state / "keys")
    refused(place, 3, "keys new")


def test_a_private_key_that_others_may_read(place: Place) -> None:
    (key,) = (place.state / "keys").glob("?" * 64 + ".pem")
    key.chmod(0o640)
    refused(place, 1, "chmod 600")


def test_a_suppression_key_that_others_may_read(place: Place) -> None:
    (place.state / "suppression.key").chmod(0o644)
    refused(place, 1, "suppression.key", "chmod 600")


def test_a_state_directory_that_others_may_enter(place: Place) -> None:
    place.state.chmod(0o755)
    refused(place, 1, "open to others", "chmod 700")


def test_the_public_key_of_somebody_else_on_verify(place: Place) -> None:
    assert place.delete()[0] == 0
    with opened_site(place.folder / "other"):
        site_keys(place.folder / "other").new()
    key = place.folder / "other" / "keys" / "operator.pub.pem"
    refused(place, 1, "key", words=("verify", place.root, "--public-key", key))
    key.write_text("no key")
    refused(place, 1, words=("verify", place.root, "--public-key", key))


# --- requests -------------------------------------------------------------------------------------

MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "no time": ({"received_at": "yesterday"}, "received_at"),
    "due before receipt": ({"due_at": "2001-01-01T00:00:00Z"}, "due_at"),
    "unknown scope": ({"scope": "everybody"}, "scope"),
    "ids of the other kind": ({"scope": "stay"}, "stay_ids"),
    "ids as text": ({"subject_ids": [str(UNKNOWN)]}, "subject_ids"),
    "no ids": ({"subject_ids": []}, "subject_ids"),
    "a field missing": ({"basis": None}, "basis"),
    "an unknown field": ({"reason": "because"}, "unknown"),
    "a request id with capitals": ({"request_id": "Request One"}, "request_id"),
    "an id in the basis": ({"basis": f"{UNKNOWN} asks", "subject_ids": [UNKNOWN]}, "basis"),
    "approved by the requester": ({"approver": " Patient "}, "approver"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request(place: Place, name: str) -> None:
    fields, told = MALFORMED[name]
    place.changed(**fields)
    refused(place, 1, told, place.request.name)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"request_id": 1}', "\x00\x01"])
def test_a_request_that_is_none(place: Place, text: str) -> None:
    place.request.write_text(text)
    refused(place, 1, place.request.name)


def test_a_request_that_is_not_there_or_that_anybody_may_change(place: Place) -> None:
    place.request.chmod(0o666)
    refused(place, 1, "chmod 600")
    place.request.unlink()
    refused(place, 1, place.request.name)


def test_no_request_at_all(place: Place) -> None:
    refused(place, 1, "--request", words=("delete", place.root, "--state-dir", place.state))


def test_an_unknown_patient_gets_a_receipt_that_says_not_held_and_nothing_else_changes(place: Place) -> None:
    place.changed(subject_ids=[UNKNOWN])
    parts = ("cohort", "memories", "retained", "counts", "results")
    before = [tree_digest(place.root / part) for part in parts]
    assert place.delete()[0] == 0
    assert [tree_digest(place.root / part) for part in parts] == before
    code = main(["receipt", "show", str(place.root / "receipts" / "request-one.json"), "--json"])
    assert code == 0
    assert place.told("verify", place.root, "--state-dir", place.state)[0] == 0


def test_the_same_request_twice_is_carried_out_once(place: Place) -> None:
    assert place.delete()[0] == 0
    before = place.contents()
    code, err = place.delete()
    assert (code, "carried out already" in err) == (0, True)
    assert place.contents() == before


def test_another_request_under_the_same_id(place: Place) -> None:
    assert place.delete()[0] == 0
    place.changed(basis="another one")
    refused(place, 1, "request-one", "same id")


# --- the run --------------------------------------------------------------------------------------


def test_a_directory_that_is_no_run_and_one_that_is_not_there(place: Place) -> None:
    for run in (place.folder / "nothing", place.folder / "empty"):
        words = ("delete", run, "--request", place.request, "--state-dir", place.state)
        refused(place, 1, str(run), words=words)
        (place.folder / "empty").mkdir(exist_ok=True)
    assert list((place.folder / "empty").iterdir()) == []


@pytest.mark.parametrize("step", ["cohort", "evaluate", "report"])
def test_a_run_that_is_not_finished(place: Place, step: str) -> None:
    manifest = json.loads(place.layout.manifest.read_text())
    del manifest["steps"][step]
    place.layout.manifest.write_text(json.dumps(manifest))
    refused(place, 1, step, "not finished")


@pytest.mark.parametrize("name", ["notes.txt", "cohort/stays.csv", "memories/svdd/bucket=00.pt", "receipts/Copy.json"])
def test_an_unknown_file_in_the_run(place: Place, name: str) -> None:
    (place.root / name).parent.mkdir(exist_ok=True)
    (place.root / name).write_text("mine")
    refused(place, 1, name)


def test_a_link_in_the_run_is_unknown_whatever_its_name(place: Place) -> None:
    (place.root / "results" / "more.json").symlink_to(place.root / "results" / "retention.json")
    refused(place, 1, "results/more.json")


def test_a_run_in_use_and_a_site_in_use(place: Place) -> None:
    with run_lock(place.layout):
        refused(place, 1, str(place.root), "another command")
    with site_lock(place.state):
        refused(place, 1, str(place.state), "another deletion")


def test_a_run_that_would_hold_nobody_afterwards(place: Place) -> None:
    place.changed(subject_ids=subjects_of_run(place.layout))
    refused(place, 1, "remove the whole directory")


def test_models_to_train_again_and_patients_to_remove_where_there_are_none(place: Place) -> None:
    words = ("delete", place.root, "--request", place.request, "--state-dir", place.state, "--retrain")
    refused(place, 2, "--retrain", words=words)
    refused(place, 1, "no suppressed", words=("delete", place.root, "--suppressed", "--state-dir", place.state))


# --- disks ----------------------------------------------------------------------------------------

FAULTS = (errno.ENOSPC, errno.EROFS)
# What writes before the intent, by the module that calls it.
WRITERS = (
    "flows.run.registry.write_private",
    "flows.steps.forget.generation.os.link",
    "flows.steps.forget.generation.write_states",
    "flows.steps.forget.generation.write_results",
    "flows.steps.forget.generation.write_ward",
    "flows.steps.forget.generation.write_atomic",
    "flows.steps.forget.generation.write_manifest",
    "flows.steps.forget.generation.write_report",
    "flows.steps.forget.recover.flush_tree",
    "flows.steps.forget.receipts.write_annex",
)
# What writes after it.
FORWARD = (
    "flows.steps.forget.recover.append_intent",
    "flows.steps.forget.recover.exchange",
    "flows.steps.forget.recover.sync_directory",
    "flows.steps.forget.receipts.write_annex",
    "flows.steps.forget.receipts.write_atomic",
    "flows.steps.forget.recover.write_report_again",
)


def failing(code: int) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_or_read_only_disk_before_the_intent_leaves_everything(
    place: Place, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    code = FAULTS[WRITERS.index(writer) % 2]
    with monkeypatch.context() as patched:
        patched.setattr(writer, failing(code))
        refused(place, 1, os.strerror(code))


@pytest.mark.parametrize("statement", ["insert into requests", "insert into journal", "update requests"])
def test_a_full_registry_before_the_intent_leaves_everything(
    place: Place, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    write = registry.Site._write

    def full(site: registry.Site, text: str, *values: object) -> None:
        if not text.startswith(statement):
            write(site, text, *values)
            return
        failure = sqlite3.OperationalError()
        failure.sqlite_errorname = "SQLITE_FULL"
        with registry._told(site.path):
            raise failure

    with monkeypatch.context() as patched:
        patched.setattr(registry.Site, "_write", full)
        refused(place, 1, "the disk is full")


@pytest.mark.parametrize("writer", FORWARD)
def test_a_full_or_read_only_disk_after_the_intent_is_told_and_the_next_command_completes_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    code = FAULTS[FORWARD.index(writer) % 2]

    with monkeypatch.context() as patched:
        after_the_intent(patched, writer, code)
        found, err = place.delete()
        assert (found, os.strerror(code) in err) == (1, True)
    assert place.told("verify", place.root, "--state-dir", place.state)[0] == 0
    assert place.subject not in subjects_of_run(place.layout)
    assert site_ledger(place.state).size == 2


def after_the_intent(patched: pytest.MonkeyPatch, writer: str, code: int) -> None:
    """Let a writer fail from the moment in which the pass is recorded."""
    finish = work.finish

    def begun(*given: Any) -> str:
        patched.setattr(writer, failing(code))
        return finish(*given)

    patched.setattr(work, "finish", begun)
