"""A build with suppressed patients is the build of a source that never held them; its scratch holds none of them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import shutil
from pathlib import Path

import polars as pl
import pytest
from simulated_source import SOURCE_FILES, read_table
from tiny_source import HR, INTIME, build_cohort, reading, stay, write_source

from cohort_sql.simulate import simulate
from cohort_sql.source import Suppressed, find_source, preflight, source_stays

PRESETS = ("causal", "paper")
SETTINGS = {"stays": 25, "seed": 3, "buckets": 4, "threads": 1}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("suppressed") / "source"
    simulate(root, patients=60, seed=11)
    return root


@pytest.fixture(scope="module")
def gone(source: Path) -> dict[str, set[int]]:
    """Every sixth patient, and (for the stay scope) every fifth stay."""
    stays = read_table(source, "icu/icustays.csv.gz")
    subjects = set(stays["subject_id"].unique().sort().to_list()[::6])
    return {"subject_id": subjects, "stay_id": set(stays["stay_id"].sort().to_list()[::5])}


def without(source: Path, folder: Path, column: str, ids: set[int]) -> Path:
    """Copy a source without the lines that hold one of these ids in a column."""
    shutil.copytree(source, folder)
    for name in SOURCE_FILES:
        with gzip.open(source / name, "rt", newline="") as lines:
            rows = list(csv.DictReader(lines))
        kept = [row for row in rows if column not in row or not row[column] or int(float(row[column])) not in ids]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        (folder / name).write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    return folder


def stays_of(source: Path, subjects: set[int]) -> set[int]:
    stays = read_table(source, "icu/icustays.csv.gz")
    return set(stays.filter(pl.col("subject_id").is_in(list(subjects)))["stay_id"].to_list())


def arguments(source: Path, column: str, ids: set[int]) -> dict[str, set[int]]:
    if column == "stay_id":
        return {"suppressed": ids}
    return {"suppressed": stays_of(source, ids), "suppressed_subjects": ids}


def digests(out: Path) -> dict[str, str]:
    files = sorted(file for file in out.rglob("*") if file.is_file())
    return {str(file.relative_to(out)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def stay_ids_in(folder: Path) -> set[int]:
    """Every stay id in any Parquet file below a folder."""
    found: set[int] = set()
    for file in folder.rglob("*.parquet"):
        table = pl.read_parquet(file, hive_partitioning=False)
        if "stay_id" in table.columns:
            found |= set(table["stay_id"].drop_nulls().to_list())
    return found


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("column", ["subject_id", "stay_id"])
def test_the_bytes_are_those_of_a_source_that_never_held_them(tmp_path, source, gone, preset, column):
    ids = gone[column]
    never = without(source, tmp_path / "never", column, ids)
    expected = build_cohort(find_source(never), tmp_path / "a", preset=preset, scratch=tmp_path / "s", **SETTINGS)
    left_out = arguments(source, column, ids)
    whole = find_source(source)
    found = build_cohort(whole, tmp_path / "b", preset=preset, scratch=tmp_path / "t", **SETTINGS, **left_out)
    assert digests(tmp_path / "b") == digests(tmp_path / "a")
    assert found == expected
    plain = build_cohort(whole, tmp_path / "c", preset=preset, scratch=tmp_path / "u", **SETTINGS)
    assert plain.attrition["rows"]["source"] > found.attrition["rows"]["source"]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_rows_of_a_suppressed_stay_are_not_counted_whatever_they_chart_and_however_they_are_stored(tmp_path, suffix):
    other = {"stay_id": 30000002, "subject_id": 10000002}
    base = [(item, INTIME, number, who) for item, number in ITEMS for who in (30000001, 30000002)]
    rows = [reading(*row) for row in base] + [reading(1, INTIME, 5, 30000002), reading(1, INTIME, 5, None)]
    root = write_source(tmp_path / "source", rows, stays=[stay(), stay(**other)], suffix=".csv")
    for file in root.rglob("*.csv"):
        text = file.read_bytes()
        if suffix == ".parquet":
            pl.read_csv(text).write_parquet(file.with_suffix(suffix))
        else:
            file.with_name(file.name.removesuffix(".csv") + suffix).write_bytes(
                gzip.compress(text) if suffix.endswith("gz") else text
            )
        if suffix != ".csv":
            file.unlink()
    result = build_cohort(
        find_source(root), tmp_path / "out", preset="causal", stays=None, seed=0, buckets=1,
        scratch=tmp_path / "scratch", suppressed={30000002},
    )  # fmt: skip
    assert result.attrition["rows"] == {"source": 7, "used": 6, "left_out": {"other_item": 1}}
    assert result.attrition["stays"] == {"source": 1, "used": 1, "left_out": {}}


def test_rows_of_a_suppressed_patient_without_a_stay_are_gone_too(tmp_path):
    rows = [reading(*row) for row in [(item, INTIME, number) for item, number in ITEMS]]
    stray = {**reading(HR, INTIME, 80, None), "subject_id": 10000002}
    stays = [stay(), stay(stay_id=30000002, subject_id=10000002)]
    root = write_source(tmp_path / "source", [*rows, stray], stays=stays)
    result = build_cohort(
        find_source(root), tmp_path / "out", preset="causal", stays=None, seed=0, buckets=1,
        scratch=tmp_path / "scratch", suppressed={30000002}, suppressed_subjects={10000002},
    )  # fmt: skip
    assert result.attrition["rows"] == {"source": 6, "used": 6, "left_out": {}}


@pytest.mark.parametrize("preset", PRESETS)
def test_the_scratch_directory_holds_no_reading_of_them_even_after_a_build_that_did(tmp_path, source, gone, preset):
    hidden = stays_of(source, gone["subject_id"])
    whole, scratch = find_source(source), tmp_path / "scratch"
    settings = {**SETTINGS, "stays": None}
    build_cohort(whole, tmp_path / "before", preset=preset, scratch=scratch, **settings)
    assert stay_ids_in(scratch) & hidden
    left_out = arguments(source, "subject_id", gone["subject_id"])
    build_cohort(whole, tmp_path / "after", preset=preset, scratch=scratch, **settings, **left_out)
    assert stay_ids_in(scratch)
    assert not stay_ids_in(scratch) & hidden
    assert not stay_ids_in(tmp_path / "after") & hidden


def test_readings_kept_in_the_scratch_directory_serve_only_the_same_suppression(tmp_path, source, gone):
    whole, scratch = find_source(source), tmp_path / "scratch"
    some, more = sorted(gone["stay_id"])[:2], sorted(gone["stay_id"])[:4]
    first = build_cohort(whole, tmp_path / "a", preset="causal", scratch=scratch, **SETTINGS, suppressed=some)
    second = build_cohort(whole, tmp_path / "b", preset="causal", scratch=scratch, **SETTINGS, suppressed=more)
    again = build_cohort(whole, tmp_path / "c", preset="causal", scratch=scratch, **SETTINGS, suppressed=reversed(more))
    assert first.attrition["stays"]["source"] == second.attrition["stays"]["source"] + 2
    assert again == second
    assert digests(tmp_path / "c") == digests(tmp_path / "b")


def test_the_facts_of_the_source_are_those_of_one_that_never_held_them(tmp_path, source, gone):
    never = find_source(without(source, tmp_path / "never", "subject_id", gone["subject_id"]))
    hidden = stays_of(source, gone["subject_id"])
    told = Suppressed(frozenset(hidden), frozenset(gone["subject_id"]))
    for preset in PRESETS:
        found = preflight(find_source(source), preset=preset, suppressed=told)
        assert found == preflight(never, preset=preset)
        assert found != preflight(find_source(source), preset=preset)


def test_the_stays_of_a_source_are_told_in_file_order(source):
    stays = read_table(source, "icu/icustays.csv.gz")
    subjects, ids = source_stays(find_source(source))
    assert subjects.tolist() == stays["subject_id"].to_list()
    assert ids.tolist() == stays["stay_id"].to_list()


ITEMS = ((HR, 80), (220179, 120), (220180, 70), (220210, 16), (220277, 97), (223762, 37))
