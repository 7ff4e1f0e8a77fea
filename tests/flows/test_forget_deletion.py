"""A deletion leaves nothing of the patient, everything of the others, and evidence of it; or nothing at all."""

from __future__ import annotations

import os
import re
import shutil
import struct
from pathlib import Path

import polars as pl
import pytest

from flows.cli import main
from flows.errors import CannotDecide, FlowError
from flows.evidence_forget import asked, subjects_of_run, tree_digest
from flows.run.layout import RunLayout
from flows.run.registry import opened_site
from flows.run.requests import new_request, write_request
from flows.run.states import read_states
from flows.settings import Settings
from flows.steps.forget import work
from flows.steps.forget.generation import next_of
from flows.steps.forget.negative import Gone, refuse_remains
from flows.steps.forget.work import Options, delete, delete_suppressed
from flows.steps.site import refuse_suppressed, settled
from flows.steps.verify import trust, verify
from flows.steps.wards import read_ward, subjects_of

SAME = ("cohort", "retained", "counts", "results", "memories/svdd", "memories/vla", "memories/nc01")
Made = tuple[RunLayout, Settings]
STORES = (
    "cohort/stays.parquet",
    "memories/svdd",
    "memories/vla",
    "memories/nc01",
    "memories/wards",
    "counts",
    "retained",
)


def stays_of(layout: RunLayout, subject: int) -> list[int]:
    stays = pl.read_parquet(layout.cohort / "stays.parquet").filter(pl.col("subject_id") == subject)
    return stays["stay_id"].to_list()


def raw(folder: Path, number: int) -> list[str]:
    """Files whose raw bytes hold a number as text or as a little-endian 64-bit integer."""
    forms = (str(number).encode(), struct.pack("<q", number))
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file.name for file in files if any(form in file.read_bytes() for form in forms)]


def test_no_file_of_run_state_or_orchestrator_holds_the_patient_afterwards(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    subject = subjects_of_run(layout)[0]
    stays = stays_of(layout, subject)
    request = asked(tmp_path, "request-one", subject)
    assert raw(layout.root, stays[0])
    done = delete(layout.root, [request], settings, Options(audit=True))
    request.unlink()
    assert [raw(tmp_path, number) for number in (subject, *stays)] == [[] for _ in (subject, *stays)]
    assert done.receipts == (layout.receipts / "request-one.json",)
    assert verify(layout.root, trust(None, settings.state, None), settings.state).last.facts.outcome == "deleted"
    assert not next_of(layout).root.exists()


def test_states_of_all_others_are_untouched(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    subject = subjects_of_run(layout)[0]
    gone = {str(stay) for stay in stays_of(layout, subject)}

    def states() -> dict[str, bytes]:
        found = {}
        for file in sorted(layout.memories.glob("[!w]*/*.safetensors")):
            for name, state in read_states(file).items():
                found[f"{file.parent.name} {name}"] = repr(sorted(state.items(), key=str)).encode()
        return found

    before = states()
    delete(layout.root, [asked(tmp_path, "request-one", subject)], settings)
    assert states() == {name: state for name, state in before.items() if name.split()[1] not in gone}


def test_two_deletions_in_either_order_or_at_once_give_the_same_run(deletable: Made, tmp_path: Path) -> None:
    """The same bytes but for the wards, which agree within their certificates, and for the size of these."""
    layout, settings = deletable
    files = [asked(tmp_path, f"request-{name}", subject) for name, subject in zip("ab", mates(layout), strict=True)]
    ways = {"forward": [[0], [1]], "backward": [[1], [0]], "at-once": [[0, 1]]}
    runs = [carried_out(tmp_path / name, layout, settings, files, passes) for name, passes in ways.items()]
    first, *others = runs
    for other in others:
        for file in files_of(first):
            name = file.relative_to(first.root)
            assert without_bounds(file) == without_bounds(other.root / name), name
        assert len(files_of(first)) == len(files_of(other))
        assert_same_wards(first, other)


def files_of(layout: RunLayout) -> list[Path]:
    return sorted(file for part in SAME for file in (layout.root / part).rglob("*") if file.is_file())


def without_bounds(file: Path) -> object:
    """The bytes of a file; where it tells the certified bound of a ward, its content beside that."""
    if file.parent.parts[-2:] == ("counts", "wards"):
        return pl.read_parquet(file, hive_partitioning=False).filter(pl.col("quantity") != "bound").rows()
    if file.name != "streaming.json":
        return file.read_bytes()
    told = re.sub(r'"bound": [^,\n]+e-1\d\b', '"bound": tiny', file.read_text())
    assert "tiny" in told
    return told


def mates(layout: RunLayout) -> tuple[int, int]:
    """Two patients of one ward: deletions that meet in one memory."""
    owner = subjects_of(layout.cohort)
    for file in sorted((layout.memories / "wards").glob("*.safetensors")):
        found = sorted({owner[stay] for stay in read_ward(file).stay.tolist()})
        if len(found) > 2:
            return found[0], found[1]
    raise AssertionError("no ward has three patients")


def carried_out(
    place: Path, layout: RunLayout, settings: Settings, files: list[Path], passes: list[list[int]]
) -> RunLayout:
    """A copy of run and site after some passes over the requests."""
    shutil.copytree(layout.root, place / "run")
    shutil.copytree(settings.state or layout.root, place / "state")
    own = settings.model_copy(update={"state": place / "state"})
    for numbers in passes:
        delete(place / "run", [files[number] for number in numbers], own)
    return RunLayout(place / "run")


def assert_same_wards(left: RunLayout, right: RunLayout) -> None:
    for file in sorted((left.memories / "wards").glob("*.safetensors")):
        one, other = read_ward(file), read_ward(right.memories / "wards" / file.name)
        assert one.stay.tolist() == other.stay.tolist()
        assert one.hour.tolist() == other.hour.tolist()
        assert one.memory.ready == other.memory.ready
        if one.memory.ready:
            keys = one.memory.to_state()["keys"]
            allowed = one.memory.certificate().score_bound + other.memory.certificate().score_bound
            assert abs(one.memory.score(keys) - other.memory.score(keys)).max() <= allowed


def test_the_same_request_again_changes_nothing(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    file = asked(tmp_path, "request-one", subjects_of_run(layout)[0])
    first = delete(layout.root, [file], settings)
    before = tree_digest(layout.root)
    again = delete(layout.root, [file], settings)
    assert (again.fresh, again.receipts) == (False, first.receipts)
    assert tree_digest(layout.root) == before


def test_a_patient_whom_the_site_never_had_gets_a_receipt_that_says_so(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    before = tree_digest(layout.cohort)
    delete(layout.root, [asked(tmp_path, "request-one", 77_777_777)], settings)
    assert verify(layout.root, trust(None, settings.state, None), settings.state).last.facts.outcome == "not held"
    assert tree_digest(layout.cohort) == before


def test_a_single_stay_goes_and_the_patient_may_stay(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    stay = pl.read_parquet(layout.cohort / "stays.parquet")["stay_id"][0]
    file = tmp_path / "stay.json"
    write_request(file, new_request("request-stay", "error", "stay", [stay], "patient", "data steward"))
    delete(layout.root, [file], settings)
    file.unlink()
    assert raw(tmp_path, stay) == []


def test_a_restored_backup_is_refused_and_cured(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    subject = subjects_of_run(layout)[0]
    shutil.copytree(layout.root, tmp_path / "backup")
    delete(layout.root, [asked(tmp_path, "request-one", subject)], settings)
    backup = RunLayout(tmp_path / "backup")
    with pytest.raises(FlowError, match="--suppressed"):
        refuse_suppressed(backup, settings.state)
    delete_suppressed(backup.root, settings)
    refuse_suppressed(backup, settings.state)
    assert subject not in subjects_of_run(backup)


def test_all_registered_runs_are_treated_in_one_pass(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    shutil.copytree(layout.root, tmp_path / "second")
    with opened_site(settings.state or tmp_path) as site:
        site.register_run(RunLayout(tmp_path / "second"), "copy")
    subject = subjects_of_run(layout)[0]
    done = delete(layout.root, [asked(tmp_path, "request-one", subject)], settings, Options(all_runs=True))
    assert len(done.receipts) == 2
    assert all(subject not in subjects_of_run(RunLayout(tmp_path / name)) for name in ("run", "second"))


def test_an_unknown_file_stops_it_by_name(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    file = asked(tmp_path, "request-one", subjects_of_run(layout)[0])
    (layout.cohort / "notes.txt").write_text("mine")
    with pytest.raises(FlowError, match=r"cohort/notes\.txt"):
        delete(layout.root, [file], settings)


def test_a_dry_run_tells_no_id_and_no_count_and_changes_nothing(
    deletable: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout, settings = deletable
    file = asked(tmp_path, "request-one", subjects_of_run(layout)[0])
    before = tree_digest(layout.root)
    assert (
        main(["delete", str(layout.root), "--request", str(file), "--dry-run", "--state-dir", str(settings.state)]) == 0
    )
    told = capsys.readouterr().out
    assert "wards: maintained deletion" in told
    assert not [word for word in told.split() if word.isdigit()]
    assert tree_digest(layout.root) == before


def test_without_a_key_nothing_is_touched(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    shutil.rmtree((settings.state or tmp_path) / "keys")
    before = tree_digest(layout.root)
    with pytest.raises(CannotDecide, match="keys new"):
        delete(layout.root, [asked(tmp_path, "request-one", subjects_of_run(layout)[0])], settings)
    assert tree_digest(layout.root) == before


@pytest.mark.parametrize("stage", ["make_generation", "refuse_remains", "flushed", "begin_annexes"])
def test_a_full_disk_before_the_intent_leaves_everything_as_it_was(
    deletable: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    layout, settings = deletable
    file = asked(tmp_path, "request-one", subjects_of_run(layout)[0])
    before = tree_digest(layout.root)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(work, stage, full)
    with pytest.raises(OSError, match="space"):
        delete(layout.root, [file], settings)
    assert tree_digest(layout.root) == before
    assert not next_of(layout).root.exists()
    with opened_site(settings.state or tmp_path) as site:
        assert site.requests() == {}


@pytest.mark.parametrize("stage", ["append_intent", "exchange", "clean_up", "append_receipt", "write_report_again"])
def test_whatever_stops_it_after_the_intent_the_next_command_completes_it(
    deletable: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    layout, settings = deletable
    subject = subjects_of_run(layout)[0]

    def stopped(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(f"flows.steps.forget.recover.{stage}", stopped)
        with pytest.raises(OSError, match="space"):
            delete(layout.root, [asked(tmp_path, "request-one", subject)], settings)
    settled(settings)
    assert subject not in subjects_of_run(layout)
    assert len(verify(layout.root, trust(None, settings.state, None), settings.state).bundles) == 1


def test_verification_finds_the_patient_in_every_store_while_it_is_there(deletable: Made, tmp_path: Path) -> None:
    layout, settings = deletable
    subject = subjects_of_run(layout)[0]
    gone = Gone(frozenset(stays_of(layout, subject)), frozenset({subject}))
    shutil.copytree(layout.root, tmp_path / "before")
    delete(layout.root, [asked(tmp_path, "request-one", subject)], settings)
    refuse_remains(layout, gone)
    shutil.copytree(layout.root, tmp_path / "after")
    for store in STORES:
        put_back(tmp_path / "before" / store, layout.root / store)
        with pytest.raises(FlowError, match=store.split("/", maxsplit=1)[0]):
            refuse_remains(layout, gone)
        put_back(tmp_path / "after" / store, layout.root / store)
    refuse_remains(layout, gone)


def put_back(old: Path, place: Path) -> None:
    if old.is_dir():
        shutil.rmtree(place)
        shutil.copytree(old, place)
    else:
        shutil.copyfile(old, place)
