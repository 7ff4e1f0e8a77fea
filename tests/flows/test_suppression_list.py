"""The suppression list: keyed hashes that keep a patient out of every later build and refuse runs that hold one."""

from __future__ import annotations

import csv
import gzip
import hashlib
import hmac
import io
import shutil
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from cohort_sql.source import find_source
from flows.cli import main
from flows.errors import CannotDecide, FlowError
from flows.run.layout import RunLayout
from flows.run.registry import opened_site
from flows.run.requests import new_request
from flows.run.suppression import Suppression
from flows.settings import Settings
from flows.steps import cohort
from flows.steps.preflight import opened_run
from flows.steps.site import refuse_suppressed, settled

KEY = bytes(range(32))


def suppress(state: Path, *, subject_ids: tuple[int, ...] = (), stay_ids: tuple[int, ...] = ()) -> None:
    """Carry out the part of a deletion that the list sees."""
    scope, ids = ("patient", subject_ids) if subject_ids else ("stay", stay_ids)
    with opened_site(state) as site:
        site.receive(new_request("request-one", "consent withdrawn", scope, ids, "patient", "data steward"))
        site.add_suppression("request-one", subject_ids=subject_ids, stay_ids=stay_ids)
        site.set_request_state("request-one", "done")


def built(source: Path, run: Path, state: Path | None) -> RunLayout:
    """A run with its cohort, as a study's first step leaves it; no orchestrator is started."""
    layout, settings = RunLayout(run), settled(Settings(state=state, buckets=2))
    with opened_run(layout, find_source(source), settings):
        cohort.build(layout, settings)
    return layout


def digests(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def used_patient(layout: RunLayout) -> tuple[int, int]:
    """Subject and stay id of a stay that a run uses."""
    row = pl.read_parquet(layout.cohort / "stays.parquet").sort("stay_id").row(0, named=True)
    return row["subject_id"], row["stay_id"]


def without(source: Path, folder: Path, column: str, number: int) -> Path:
    """Copy a source without the lines of one patient or stay."""
    shutil.copytree(source, folder)
    for file in folder.rglob("*.csv.gz"):
        rows = list(csv.DictReader(io.StringIO(gzip.decompress(file.read_bytes()).decode(), newline="")))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if row.get(column) != str(number))
        file.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    return folder


# --- the list -------------------------------------------------------------------------------------


def test_a_mark_is_the_hmac_of_the_kind_and_the_id():
    expected = hmac.new(KEY, b"subject:10000032", hashlib.sha256).digest()
    suppression = Suppression(KEY, frozenset({expected}))
    assert suppression.mark("subject", 10000032) == expected
    assert suppression.mark("stay", 10000032) != expected
    assert KEY.hex() not in repr(suppression)
    assert "\\x01" not in repr(suppression)


def test_rows_match_by_their_patient_or_by_their_stay_and_kinds_are_not_mixed_up():
    empty = Suppression(KEY, frozenset())
    suppression = Suppression(KEY, frozenset(empty.marks_of(subject_ids=[1], stay_ids=[20, -5])))
    subjects, stays = np.array([1, 1, 2, 2, 20, 3]), np.array([10, 11, 20, 21, 1, -5])
    assert suppression.matches(subjects, stays).tolist() == [True, True, True, False, False, True]
    assert not empty.matches(subjects, stays).any()
    assert suppression.matches(np.array([], np.int64), np.array([], np.int64)).tolist() == []


def test_a_hundred_thousand_stays_are_matched_in_seconds():
    stays = np.arange(100_000) + 30_000_000
    suppression = Suppression(KEY, frozenset(Suppression(KEY, frozenset()).marks_of(stay_ids=stays[::1000].tolist())))
    began = time.process_time()
    found = suppression.matches(stays - 20_000_000, stays)
    assert time.process_time() - began < 5
    assert np.flatnonzero(found).tolist() == list(range(0, 100_000, 1000))


def test_the_list_in_the_site_keeps_each_mark_once_and_names_the_requests_behind_it(tmp_path):
    suppress(tmp_path / "state", subject_ids=(7,))
    with opened_site(tmp_path / "state") as site:
        site.add_suppression("request-one", subject_ids=[7, 8])
        suppression = site.suppression()
        assert len(suppression) == 2
        assert site.suppressed_for(suppression.marks_of(subject_ids=[7])) == {"request-one"}
        assert site.suppressed_for(suppression.marks_of(stay_ids=[7])) == frozenset()
        with pytest.raises(FlowError):
            site.add_suppression("request-none", subject_ids=[9])


# --- later builds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["subject_id", "stay_id"])
def test_the_next_build_of_the_site_is_that_of_a_source_which_never_held_them(tmp_path, pristine, scope):
    subject, stay = used_patient(built(pristine, tmp_path / "before", None))
    number = subject if scope == "subject_id" else stay
    suppress(tmp_path / "state", **{f"{scope}s": (number,)})
    found = built(pristine, tmp_path / "after", tmp_path / "state")
    never = built(without(pristine, tmp_path / "never", scope, number), tmp_path / "expected", None)
    assert digests(found.cohort) == digests(never.cohort)
    assert digests(found.cohort) != digests(RunLayout(tmp_path / "before").cohort)
    for file in found.generations.rglob("*.parquet"):
        table = pl.read_parquet(file, hive_partitioning=False)
        assert stay not in set(table["stay_id"].to_list() if "stay_id" in table.columns else [])


def test_a_study_registers_its_run_and_one_that_is_refused_does_not(tmp_path, source):
    built(source, tmp_path / "run", tmp_path / "state")
    with opened_site(tmp_path / "state") as site:
        (run,) = site.runs()
        assert run.path == tmp_path / "run"
        assert {"cohort", "tokens", "svdd", "wards"} <= site.inventory(run.run_id)
    (source / "icu" / "chartevents.csv.gz").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="chartevents"):
        built(source, tmp_path / "other", tmp_path / "state")
    with opened_site(tmp_path / "state") as site:
        assert [run.path for run in site.runs()] == [tmp_path / "run"]


# --- runs that still hold one ---------------------------------------------------------------------


@pytest.fixture
def restored(tmp_path: Path, pristine: Path) -> tuple[RunLayout, tuple[int, int]]:
    """A run of a site whose patient was suppressed after it was made, such as a restored backup."""
    layout = built(pristine, tmp_path / "run", tmp_path / "state")
    ids = used_patient(layout)
    suppress(tmp_path / "state", subject_ids=ids[:1])
    return layout, ids


def test_study_report_verify_and_export_refuse_it_in_one_line_that_names_the_cure(restored, pristine, capsys):
    layout, (subject, stay) = restored
    before = digests(layout.root)
    # A study finds its site by the option, the others also by what the run names.
    study = ["study", str(pristine), "--out", str(layout.root), "--state-dir", str(layout.root.parent / "state")]
    export = ["export", "meds", str(layout.root), "--out", str(layout.root.parent / "meds")]
    for words in (["report", str(layout.root)], ["verify", str(layout.root)], export, study):
        assert main(words) == 1, words
        told = capsys.readouterr()
        assert f"icu-memory delete {layout.root} --suppressed" in told.err
        assert told.err.count("\n") == 1
        assert str(subject) not in told.out + told.err
        assert str(stay) not in told.out + told.err
    assert digests(layout.root) == before


def test_a_copy_at_another_place_is_refused_too_and_one_without_the_patient_is_not(restored, tmp_path, pristine):
    layout, _ = restored
    shutil.copytree(layout.root, tmp_path / "copy")
    with pytest.raises(FlowError, match="--suppressed"):
        refuse_suppressed(RunLayout(tmp_path / "copy"))
    refuse_suppressed(built(pristine, tmp_path / "new", tmp_path / "state"), tmp_path / "state")


def test_only_a_run_whose_site_is_known_can_be_asked(restored, tmp_path, pristine):
    layout, (subject, _) = restored
    foreign = built(pristine, tmp_path / "without", None)
    refuse_suppressed(foreign)  # it names no site
    with pytest.raises(FlowError, match="--suppressed"):
        refuse_suppressed(foreign, tmp_path / "state")
    (tmp_path / "state").rename(tmp_path / "moved")
    with pytest.raises(CannotDecide) as refusal:
        refuse_suppressed(layout)
    assert refusal.value.exit_code == 3
    assert str(subject) not in str(refusal.value)


def test_a_suppressed_stay_in_the_retained_hours_alone_is_found(restored, tmp_path, pristine):
    layout = built(pristine, tmp_path / "new", tmp_path / "state")
    layout.retained.mkdir()
    with opened_site(tmp_path / "state") as site:
        site.add_suppression("request-one", stay_ids=[123])
    table = pl.DataFrame({"stay_id": [123], "hour": [0]}, schema={"stay_id": pl.Int64, "hour": pl.Int64})
    table.write_parquet(layout.retained / "bucket=00.parquet")
    with pytest.raises(FlowError, match="--suppressed"):
        refuse_suppressed(layout)
