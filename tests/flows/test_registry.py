"""The state directory of a site: private, durable through kill -9, shared by processes, and without any id in clear."""

from __future__ import annotations

import errno
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.errors import FlowError
from flows.run import registry
from flows.run.layout import RunLayout
from flows.run.locks import held_lock, run_lock
from flows.run.registry import Site, opened_site
from flows.run.requests import Request, new_request
from flows.run.stores import STORES, store_kind, store_kinds, unknown_files

CANARY = 482916037755
STAY_CANARY = 739105826412
RECEIVED = "2026-01-31T13:00:00Z"  # the same request each time


def request(request_id: str = "request-one", ids: tuple[int, ...] = (CANARY,), scope: str = "patient") -> Request:
    return new_request(request_id, "consent withdrawn", scope, ids, "patient", "data steward", RECEIVED)


def in_clear(folder: Path, number: int) -> list[str]:
    """Files below a folder whose raw bytes hold a number as text or as a 64-bit or 48-bit integer of either order."""
    forms = [str(number).encode(), struct.pack("<q", number), struct.pack(">q", number), struct.pack(">q", number)[2:]]
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file.name for file in files if any(form in file.read_bytes() for form in forms)]


def with_request(site: Site, request_id: str = "request-one") -> None:
    site.receive(request(request_id))


# --- the directory --------------------------------------------------------------------------------


def test_whoever_needs_it_first_makes_it_for_the_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        with opened_site(tmp_path / "deep" / "state") as site:
            with_request(site)
    finally:
        os.umask(before)
    made = [tmp_path / "deep" / "state", *(tmp_path / "deep" / "state").rglob("*")]
    assert {path.name for path in made} >= {"registry.sqlite", "suppression.key", "inbox", "request-one.json"}
    assert [path.name for path in made if path.stat().st_mode & 0o077] == []


def test_commits_are_flushed_and_deleted_bytes_are_zeroed(tmp_path):
    with opened_site(tmp_path / "state") as site:
        pragmas = ("journal_mode", "synchronous", "secure_delete", "foreign_keys")
        found = [site._connection.execute(f"pragma {name}").fetchone()[0] for name in pragmas]
    assert found == ["truncate", 2, 1, 1]


def spoil_open(state: Path) -> None:
    state.mkdir()
    state.chmod(0o750)


def spoil_file(state: Path) -> None:
    state.write_text("")


def spoil_foreign(state: Path) -> None:
    state.mkdir(mode=0o700)
    (state / "holiday.jpg").write_text("")


def spoil_other_database(state: Path) -> None:
    state.mkdir(mode=0o700)
    with sqlite3.connect(state / "registry.sqlite") as other:
        other.execute("create table bookmarks (address text)")
    other.close()
    (state / "registry.sqlite").chmod(0o600)


def spoil_text(state: Path) -> None:
    state.mkdir(mode=0o700)
    (state / "registry.sqlite").write_text("no database" * 1000)
    (state / "registry.sqlite").chmod(0o600)


def spoil_newer(state: Path) -> None:
    with opened_site(state) as site:
        site._connection.execute("pragma user_version = 999")


def spoil_readable_key(state: Path) -> None:
    with opened_site(state):
        (state / "suppression.key").chmod(0o640)


def spoil_lost_key(state: Path) -> None:
    with opened_site(state):
        (state / "suppression.key").unlink()


def spoil_other_key(state: Path) -> None:
    with opened_site(state):
        (state / "suppression.key").write_bytes(bytes(32))


def spoil_short_key(state: Path) -> None:
    with opened_site(state):
        (state / "suppression.key").write_bytes(b"short")


def spoil_readable_registry(state: Path) -> None:
    with opened_site(state):
        (state / "registry.sqlite").chmod(0o644)


SPOILT = [
    (spoil_open, "chmod 700"),
    (spoil_file, "not a directory"),
    (spoil_foreign, "no registry"),
    (spoil_other_database, "another program"),
    (spoil_text, "not a registry"),
    (spoil_newer, "schema 999"),
    (spoil_readable_key, "chmod 600"),
    (spoil_lost_key, "is missing"),
    (spoil_other_key, "not the one"),
    (spoil_short_key, "damaged"),
    (spoil_readable_registry, "chmod 600"),
]


@pytest.mark.parametrize(("spoil", "told"), SPOILT, ids=[spoil.__name__[6:] for spoil, _ in SPOILT])
def test_an_unfit_directory_is_refused_in_one_line_and_left_as_it_was(tmp_path, spoil, told):
    state = tmp_path / "state"
    spoil(state)
    before = {path: path.read_bytes() for path in [state, *state.rglob("*")] if path.is_file()}
    with pytest.raises(FlowError, match=told) as refusal, opened_site(state):
        pass
    assert str(state) in str(refusal.value)
    assert "\n" not in str(refusal.value)
    kept = {path: path.read_bytes() for path in [state, *state.rglob("*")] if path.is_file()}
    # An empty rollback journal is what opening a database may leave.
    assert {path: text for path, text in kept.items() if text} == {path: text for path, text in before.items() if text}


def write_at_once(site: Site) -> None:
    with site.transaction():
        site.write_journal("request-one", "plan", {"step": 1})
        site.add_suppression("request-one", subject_ids=range(5000))


def test_a_full_disk_is_one_line_and_the_change_is_undone_whole(tmp_path):
    with opened_site(tmp_path / "state") as site:
        with_request(site)
        pages = site._connection.execute("pragma page_count").fetchone()[0]
        site._connection.execute(f"pragma max_page_count = {pages}")
        with pytest.raises(FlowError, match="disk is full"):
            write_at_once(site)
        assert site.journal("request-one") == []
        assert len(site.suppression()) == 0


def test_a_read_only_disk_is_one_line(tmp_path, monkeypatch):
    state = tmp_path / "state"
    with opened_site(state):
        pass
    real = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(registry.sqlite3, "connect", lambda file, **how: real(f"file:{file}?mode=ro", uri=True, **how))
        with pytest.raises(FlowError, match="read-only disk"), opened_site(state) as site:
            with_request(site)

    def refusing(*_: object) -> int:
        raise OSError(errno.EROFS, "x")

    with monkeypatch.context() as patch:
        patch.setattr(registry.os, "open", refusing)
        with pytest.raises(FlowError, match="Read-only file system"), opened_site(state):
            pass


# --- runs and what they hold ----------------------------------------------------------------------


def test_a_run_is_registered_once_under_an_opaque_id(tmp_path):
    layout = RunLayout(tmp_path / "run")
    with opened_site(tmp_path / "state") as site:
        first, again = site.register_run(layout, "a"), site.register_run(layout, "b")
        other = site.register_run(RunLayout(tmp_path / "other"), "a")
        assert first == again != other
        assert [(run.path.name, run.source) for run in site.runs()] == [("other", "a"), ("run", "b")]
        assert all(len(run.run_id) == 16 and run.path.name not in run.run_id for run in site.runs())
        site.set_inventory(first, ["cohort", "report"])
        assert site.inventory(first) == {"cohort", "report"}
        site.drop_run(first)
        assert [run.run_id for run in site.runs()] == [other]
        assert site.inventory(first) == frozenset()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cohort/stays.parquet", "cohort"),
        ("cohort/hourly/bucket=07/part.parquet", "tokens"),
        ("memories/svdd/bucket=123.safetensors", "svdd"),
        ("memories/wards/ward=03.safetensors", "wards"),
        ("counts/fixed-context/bucket=00.parquet", "counts"),
        ("results/retention.json", "results"),
        (".generation/scratch/ingested/x", "unpublished"),
        ("cohort/stays.parquet.bak", None),
        ("notes.txt", None),
        ("memories/svdd/bucket=07.safetensors.old", None),
        ("results/../../x.json", None),
    ],
)
def test_every_path_of_a_run_belongs_to_one_kind_of_store_or_to_none(name, kind):
    assert store_kind(name) == kind


def test_files_of_unlisted_kinds_and_links_are_unknown(tmp_path):
    layout = RunLayout(tmp_path)
    for name in ("report.html", "memories/nc01/bucket=01.safetensors", "copy.csv", "results/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "results" / "b.json").symlink_to(tmp_path / "report.html")
    assert unknown_files(layout, store_kinds(["svdd"])) == [
        "copy.csv", "memories/nc01/bucket=01.safetensors", "results/b.json",
    ]  # fmt: skip
    assert unknown_files(layout, STORES) == ["copy.csv", "results/b.json"]


# --- requests and their journal -------------------------------------------------------------------


def test_the_same_request_again_is_the_same_and_another_under_its_id_is_refused(tmp_path):
    with opened_site(tmp_path / "state") as site:
        assert site.receive(request()) == "received"
        assert site.receive(request()) == "received"
        with pytest.raises(FlowError, match="differs"):
            site.receive(request(ids=(CANARY, 5)))
        assert site.take_inbox("request-one").subject_ids == (CANARY,)
        site.set_request_state("request-one", "intended")
        assert site.receive(request()) == "intended"
        site.set_request_state("request-one", "done")
        assert site.receive(request()) == "done"
        assert not site.inbox_file("request-one").exists()


def test_a_request_only_moves_on_and_waits_from_its_intent_until_it_is_done(tmp_path):
    with opened_site(tmp_path / "state") as site:
        for name in ("request-one", "request-two"):
            with_request(site, name)
        assert site.pending() == []
        site.set_request_state("request-two", "intended")
        site.set_request_state("request-one", "published")
        assert site.pending() == ["request-one", "request-two"]
        with pytest.raises(FlowError, match="cannot become"):
            site.set_request_state("request-one", "intended")
        with pytest.raises(FlowError, match="cannot become"):
            site.set_request_state("request-none", "intended")
        with pytest.raises(FlowError, match="only be completed"):
            site.withdraw("request-one")
        site.set_request_state("request-one", "done")
        assert site.pending() == ["request-two"]
        assert site.requests() == {"request-one": "done", "request-two": "intended"}


def test_a_withdrawn_request_leaves_nothing(tmp_path):
    with opened_site(tmp_path / "state") as site:
        with_request(site)
        site.write_journal("request-one", "plan", {"subject": CANARY})
        site.withdraw("request-one")
        assert site.requests() == {}
    assert in_clear(tmp_path, CANARY) == []


def test_the_journal_keeps_stages_in_order_and_is_emptied_when_done(tmp_path):
    with opened_site(tmp_path / "state") as site:
        with_request(site)
        site.write_journal("request-one", "plan", {"runs": ["a"]})
        site.write_journal("request-one", "intent", {"entry": 3})
        site.write_journal("request-one", "plan", {"runs": ["a", "b"]})
        stages = [(entry.stage, entry.payload) for entry in site.journal("request-one")]
        assert stages == [("intent", {"entry": 3}), ("plan", {"runs": ["a", "b"]})]
        site.set_request_state("request-one", "done")
        assert site.journal("request-one") == []
        with pytest.raises(FlowError):
            site.write_journal("request-none", "plan", {})


def test_a_request_changed_in_the_inbox_is_not_taken(tmp_path):
    with opened_site(tmp_path / "state") as site:
        with_request(site)
        file = site.inbox_file("request-one")
        file.write_text(file.read_text().replace(str(CANARY), "11"))
        with pytest.raises(FlowError, match="not what was received"):
            site.take_inbox("request-one")
        file.unlink()
        with pytest.raises(FlowError, match="cannot be read"):
            site.take_inbox("request-one")


def test_what_a_killed_command_left_in_the_inbox_is_removed_at_the_next_start(tmp_path):
    state = tmp_path / "state"
    with opened_site(state) as site:
        with_request(site, "request-one")
        with_request(site, "request-two")
        site.set_request_state("request-two", "done")
        for name in ("request-two.json", "request-lost.json", ".request-two.json.ab12.new"):
            (state / "inbox" / name).write_text(str(CANARY))
    with opened_site(state):
        assert [file.name for file in (state / "inbox").iterdir()] == ["request-one.json"]


# --- no id in clear -------------------------------------------------------------------------------


def test_no_id_is_in_any_byte_of_the_directory_once_a_request_is_done(tmp_path):
    state = tmp_path / "state"
    with opened_site(state) as site:
        site.receive(request("request-one", (CANARY,)))
        site.receive(request("request-two", (STAY_CANARY,), scope="stay"))
        for name, number in (("request-one", CANARY), ("request-two", STAY_CANARY)):
            # Large enough to spill into overflow pages, which are freed as a whole.
            site.write_journal(name, "plan", {"ids": [number] * 3000})
            site.add_suppression(name, subject_ids=[CANARY], stay_ids=[STAY_CANARY])
    held = {"registry.sqlite", "request-one.json"}
    assert set(in_clear(state, CANARY)) == held  # so the search finds what is there
    with opened_site(state) as site:
        for name in ("request-one", "request-two"):
            site.set_request_state(name, "done")
        assert in_clear(state, CANARY) + in_clear(state, STAY_CANARY) == []
        assert len(site.suppression()) == 2
    assert in_clear(state, CANARY) + in_clear(state, STAY_CANARY) == []


# --- processes ------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from flows.run.registry import opened_site
from flows.run.requests import new_request
name = sys.argv[2]
with opened_site(Path(sys.argv[1])) as site:
    received = "2026-01-31T13:00:00Z"
    site.receive(new_request(name, "consent withdrawn", "patient", [77], "patient", "data steward", received))
    done = len(site.journal(name))
    for number in range(done, done + int(sys.argv[3])):
        with site.transaction():
            site.write_journal(name, f"stage-{number}", {"number": number})
            site.add_suppression(name, stay_ids=range(100 * number, 100 * number + 100))
        print(number, flush=True)
"""

TORN = """
import os, signal, sys
from pathlib import Path
from flows.run.registry import opened_site
with opened_site(Path(sys.argv[1])) as site, site.transaction():
    site.set_request_state("request-one", "intended")
    site.add_suppression("request-one", stay_ids=range(60_000))  # more than the cache holds: the file is written
    os.kill(os.getpid(), signal.SIGKILL)
"""


def child(script: str, *arguments: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", script, *(str(argument) for argument in arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def test_a_transaction_cut_by_kill_9_leaves_the_state_before_it(tmp_path):
    state = tmp_path / "state"
    with opened_site(state) as site:
        with_request(site)
        before = (site.requests(), site.suppression().marks)
    assert child(TORN, state).wait() == -signal.SIGKILL
    assert (state / "registry.sqlite-journal").stat().st_size > 0  # it was cut in the middle
    with opened_site(state) as site:
        assert (site.requests(), site.suppression().marks) == before


def test_after_kill_9_at_any_moment_what_was_committed_is_there_and_nothing_by_halves(tmp_path):
    state, chance = tmp_path / "state", random.Random(5)
    for _ in range(6):
        process = child(WRITER, state, "request-one", 10_000)
        assert process.stdout is not None
        told = [process.stdout.readline()]
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        told += process.stdout.readlines()
        process.wait()
        last = max(int(line) for line in told if line.endswith("\n") and line.strip())
        with opened_site(state) as site:
            stages = len(site.journal("request-one"))
            assert stages > last
            assert len(site.suppression()) == 100 * stages


def test_two_processes_at_once_lose_nothing(tmp_path):
    state = tmp_path / "state"
    writers = [child(WRITER, state, name, 25) for name in ("request-one", "request-two")]
    assert [writer.wait() for writer in writers] == [0, 0]
    with opened_site(state) as site:
        assert [len(site.journal(name)) for name in ("request-one", "request-two")] == [25, 25]
        assert len(site.suppression()) == 2500


# --- locks ----------------------------------------------------------------------------------------


def test_one_deletion_at_a_time_in_a_site_and_one_command_at_a_time_in_a_run(tmp_path):
    layout = RunLayout(tmp_path)
    with opened_site(tmp_path / "state") as site, site.lock(), run_lock(layout):
        with pytest.raises(FlowError, match="another deletion"), site.lock():
            pass
        with pytest.raises(FlowError, match="another command"), run_lock(layout):
            pass
    with opened_site(tmp_path / "state") as site, site.lock(), run_lock(layout):
        pass


def test_a_lock_on_a_replaced_file_is_taken_again_on_the_current_one(tmp_path, monkeypatch):
    file, real = tmp_path / ".lock", os.open
    replaced = []

    def replacing(path: Path, flags: int, mode: int) -> int:
        descriptor = real(path, flags, mode)
        if not replaced:  # exchanged between opening and locking
            replaced.append(path)
            file.unlink()
            file.write_text("")
        return descriptor

    monkeypatch.setattr("flows.run.locks.os.open", replacing)
    with held_lock(file, "held"), pytest.raises(FlowError, match="held"), held_lock(file, "held"):
        pass
    assert replaced
