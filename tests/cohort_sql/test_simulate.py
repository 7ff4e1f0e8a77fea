"""The simulated source: its layout, its repeatability and its bounds."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from simulated_source import SOURCE_FILES, read_table

from cohort_sql.simulate import MARKER, SimulateError, simulate, simulator
from cohort_sql.simulate.people import LARGEST, SLOTS, Numbering
from cohort_sql.simulate.tables import CsvTable

HEADERS = {
    "icu/icustays.csv.gz": "subject_id,hadm_id,stay_id,first_careunit,last_careunit,intime,outtime,los",
    "icu/chartevents.csv.gz": (
        "subject_id,hadm_id,stay_id,caregiver_id,charttime,storetime,itemid,value,valuenum,valueuom,warning"
    ),
    "icu/d_items.csv.gz": (
        "itemid,label,abbreviation,linksto,category,unitname,param_type,lownormalvalue,highnormalvalue"
    ),
    "hosp/patients.csv.gz": "subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod",
    "hosp/admissions.csv.gz": (
        "subject_id,hadm_id,admittime,dischtime,deathtime,admission_type,admit_provider_id,admission_location,"
        "discharge_location,insurance,language,marital_status,race,edregtime,edouttime,hospital_expire_flag"
    ),
}
TRUTH_FILES = ("truth/hours.parquet", "truth/stays.parquet", "truth/faults.parquet")


def digests(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_are_those_of_mimic_iv_3_1(simulated: Path, name: str) -> None:
    with gzip.open(simulated / name, "rt", encoding="utf-8") as lines:
        assert next(lines) == HEADERS[name] + "\n"


def test_a_seed_gives_the_same_bytes_whatever_the_number_of_threads(tmp_path: Path) -> None:
    simulate(tmp_path / "here", patients=15, seed=5)
    call = f"from cohort_sql.simulate import simulate; simulate({str(tmp_path / 'there')!r}, patients=15, seed=5)"
    threads = {"POLARS_MAX_THREADS": "3", "OMP_NUM_THREADS": "2", "TZ": "Pacific/Auckland"}
    subprocess.run([sys.executable, "-c", call], check=True, env={**os.environ, **threads})
    assert digests(tmp_path / "here") == digests(tmp_path / "there")
    assert set(digests(tmp_path / "here")) == {*HEADERS, *TRUTH_FILES, MARKER}


def test_another_seed_gives_other_patients(tmp_path: Path) -> None:
    ids = []
    for seed in (1, 2):
        simulate(tmp_path / str(seed), patients=10, seed=seed)
        ids.append(set(read_table(tmp_path / str(seed), "hosp/patients.csv.gz")["subject_id"]))
    assert not ids[0] & ids[1]


def test_a_patient_is_the_same_however_many_are_simulated_and_however_they_are_chunked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(tmp_path / "few", patients=8, seed=9)
    monkeypatch.setattr(simulator, "CHUNK_ROWS", 3_000)
    simulate(tmp_path / "many", patients=25, seed=9)
    subjects = read_table(tmp_path / "few", "hosp/patients.csv.gz")["subject_id"].implode()
    stays = read_table(tmp_path / "few", "icu/icustays.csv.gz")["stay_id"].implode()
    for name in (*SOURCE_FILES, *TRUTH_FILES):
        few, many = (read_table(tmp_path / tree, name) for tree in ("few", "many"))
        theirs = pl.col("subject_id").is_in(subjects) if "subject_id" in few.columns else pl.col("stay_id").is_in(stays)
        assert_frame_equal(few, many.filter(theirs), check_row_order=False)


def test_no_chunk_exceeds_its_limit_by_more_than_one_patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heights: list[int] = []
    append = CsvTable.append

    def watched(self: CsvTable, frame: pl.DataFrame) -> None:
        if "charttime" in frame.columns:
            heights.append(frame.height)
        append(self, frame)

    monkeypatch.setattr(simulator, "CHUNK_ROWS", 4_000)
    monkeypatch.setattr(CsvTable, "append", watched)
    simulate(tmp_path / "source", patients=30, seed=4)
    rows = read_table(tmp_path / "source", "icu/chartevents.csv.gz")
    largest_patient = rows.group_by("subject_id").len()["len"].max()
    assert len(heights) > 3
    assert sum(heights) == rows.height
    assert max(heights) < 4_000 + largest_patient
    marker = json.loads((tmp_path / "source" / MARKER).read_text())
    assert (marker["largest_chunk_rows"], marker["chartevents_rows"]) == (max(heights), rows.height)


def test_ids_are_unique_eight_digit_numbers_with_a_leading_digit_for_their_kind(simulated: Path) -> None:
    for name, column, first in (
        ("hosp/patients.csv.gz", "subject_id", "1"),
        ("hosp/admissions.csv.gz", "hadm_id", "2"),
        ("icu/icustays.csv.gz", "stay_id", "3"),
    ):
        ids = read_table(simulated, name)[column]
        assert ids.is_unique().all()
        assert all(len(text) == 8 and text[0] == first for text in ids.cast(pl.String))


def test_numbering_never_repeats_an_id_up_to_the_largest_source() -> None:
    numbering = Numbering(seed=3)
    patients = np.arange(LARGEST)
    for number in (numbering.admission, numbering.stay):
        given = np.zeros(LARGEST * SLOTS, dtype=bool)
        for nth in range(SLOTS):
            given[number(patients, nth) % given.size] = True
        assert given.all()  # as many ids as positions


def test_every_row_belongs_to_a_stay_an_admission_and_a_patient_of_the_source(simulated: Path) -> None:
    stays = read_table(simulated, "icu/icustays.csv.gz")
    keys = ["subject_id", "hadm_id", "stay_id"]
    assert read_table(simulated, "icu/chartevents.csv.gz").join(stays, on=keys, how="anti").is_empty()
    admissions = read_table(simulated, "hosp/admissions.csv.gz")
    assert stays.join(admissions, on=keys[:2], how="anti").is_empty()
    assert admissions.join(read_table(simulated, "hosp/patients.csv.gz"), on=keys[:1], how="anti").is_empty()


def test_rows_stand_in_no_order_a_reader_could_rely_on(simulated: Path) -> None:
    head = read_table(simulated, "icu/chartevents.csv.gz").head(2_000)
    assert head["stay_id"].n_unique() > 50
    assert 0.4 < (head["charttime"] < head["charttime"].shift(1)).mean() < 0.6


def test_the_first_quote_comes_after_any_sniffing_window(simulated: Path) -> None:
    with gzip.open(simulated / "icu/chartevents.csv.gz", "rt", encoding="utf-8") as lines:
        first = next(number for number, line in enumerate(lines) if '"' in line)
    assert first > 100_000


def test_progress_counts_up_to_all_patients(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    simulate(tmp_path / "source", patients=45, seed=0, progress=lambda done, total: calls.append((done, total)))
    done = [call[0] for call in calls]
    assert done == sorted(set(done))
    assert len(calls) > 1
    assert calls[-1] == (45, 45)
    assert {total for _, total in calls} == {45}


def test_neither_the_gzip_headers_nor_the_marker_hold_a_time(simulated: Path) -> None:
    for name in HEADERS:
        header = (simulated / name).read_bytes()[:10]
        assert header[3] == 0  # no flag, so no file name
        assert header[4:8] == bytes(4)  # no modification time
    assert not re.search(r"\d{4}-\d\d-\d\d|\d\d:\d\d", (simulated / MARKER).read_text())


@pytest.mark.parametrize(
    ("patients", "seed", "named"), [(0, 0, "--patients is 0"), (625_001, 0, "625,000"), (5, -1, "--seed is -1")]
)
def test_numbers_that_cannot_be_simulated_are_refused_by_name(
    tmp_path: Path, patients: int, seed: int, named: str
) -> None:
    with pytest.raises(SimulateError, match=re.escape(named)):
        simulate(tmp_path / "source", patients=patients, seed=seed)
    assert not list(tmp_path.iterdir())


def test_a_directory_with_something_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep")
    with pytest.raises(SimulateError, match="not an empty directory"):
        simulate(tmp_path, patients=5, seed=0)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_empty_directory_with_a_quote_and_a_space_in_its_name_is_filled(tmp_path: Path) -> None:
    target = tmp_path / "it's here"
    target.mkdir()
    simulate(target, patients=2, seed=0)
    assert (target / MARKER).is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["it's here"]


def test_an_interrupted_run_leaves_no_source_and_the_next_one_the_same_bytes(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(tmp_path / "source", patients=25, seed=0, progress=interrupt)
    assert not list(tmp_path.iterdir())
    (tmp_path / ".source.writing").mkdir()  # what a killed run leaves
    simulate(tmp_path / "source", patients=25, seed=0)
    simulate(tmp_path / "undisturbed", patients=25, seed=0)
    assert digests(tmp_path / "source") == digests(tmp_path / "undisturbed")


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SimulateError, match="cannot be written") as refusal:
        simulate(tmp_path / "file" / "source", patients=2, seed=0)
    assert "\n" not in str(refusal.value)
