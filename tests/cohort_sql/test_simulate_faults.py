"""The planted faults: each at its stated rate, and named in the truth exactly where an independent look finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from scipy.stats import binomtest
from simulated_source import read_table, vitals

from cohort_sql.simulate import FAULTS, MARKER

KEY = ["stay_id", "itemid", "charttime"]
CELSIUS, FAHRENHEIT, RHYTHM = 223762, 223761, 220048
PRESSURES = ((220050, 220051), (225309, 225310), (220179, 220180))
OUTSIDE = ("before_intime", "after_outtime", "after_death", "years_late")
# Kinds whose rate counts something else than rows: how to count it in the truth.
UNITS: dict[str, Callable[[pl.DataFrame], int]] = {
    "inverted_pressure": lambda rows: rows.height // 2,
    "before_intime": lambda rows: rows["stay_id"].n_unique(),
    "after_outtime": lambda rows: rows["stay_id"].n_unique(),
    "after_death": lambda rows: rows["stay_id"].n_unique(),
    # Two stretches of one monitor in one stay count once here, and one that charts a single reading not at all.
    "stuck": lambda rows: rows.filter(~pl.col("itemid").is_in([220051, 220052])).select(KEY[:2]).n_unique(),
}


def truth(root: Path, *kinds: str) -> pl.DataFrame:
    return read_table(root, "truth/faults.parquet").filter(pl.col("kind").is_in(kinds))


def charted(root: Path) -> pl.DataFrame:
    """Every chart row with the range of its vital (null for distractors), the true times of its stay and the death."""
    stays = read_table(root, "truth/stays.parquet").select("stay_id", "intime", "outtime")
    deaths = read_table(root, "hosp/admissions.csv.gz").select("hadm_id", "deathtime")
    rows = read_table(root, "icu/chartevents.csv.gz").join(vitals(), on="itemid", how="left")
    return rows.join(stays, on="stay_id").join(deaths, on="hadm_id")


def inside(root: Path) -> pl.DataFrame:
    """The rows charted within their stay and before death."""
    end = pl.min_horizontal("outtime", "deathtime")
    return charted(root).filter((pl.col("charttime") >= pl.col("intime")) & (pl.col("charttime") < end))


def keys(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    return sorted(frame.select(KEY).rows())


def in_range(value: pl.Expr) -> pl.Expr:
    return value.is_between(pl.col("low"), pl.col("high"))


def out_of_range(root: Path) -> pl.DataFrame:
    return inside(root).filter(pl.col("channel").is_not_null() & ~in_range(pl.col("valuenum")))


def in_the_other_unit(root: Path) -> pl.DataFrame:
    other = pl.when(pl.col("itemid") == CELSIUS).then((pl.col("valuenum") - 32) * 5 / 9)
    other = other.when(pl.col("itemid") == FAHRENHEIT).then(pl.col("valuenum") * 9 / 5 + 32)
    return out_of_range(root).filter(in_range(other))


def inverted(root: Path) -> pl.DataFrame:
    rows = inside(root).filter(in_range(pl.col("valuenum")))
    found = []
    for systolic, diastolic in PRESSURES:
        low = rows.filter(pl.col("itemid") == diastolic)
        pairs = rows.filter(pl.col("itemid") == systolic).join(low, on=["stay_id", "charttime"], suffix="_diastolic")
        wrong = pairs.filter(pl.col("valuenum") < pl.col("valuenum_diastolic"))
        found += [wrong.select(KEY), wrong.select("stay_id", pl.lit(diastolic, pl.Int64).alias("itemid"), "charttime")]
    return pl.concat(found)


def repeated(root: Path, *, identical: bool) -> pl.DataFrame:
    same = pl.col("valuenum").n_unique().over(KEY) == 1
    rows = charted(root).filter(pl.col("channel").is_not_null() & (pl.len().over(KEY) > 1))
    return rows.filter(same if identical else ~same).unique(KEY)


DETECTORS: dict[str, Callable[[Path], pl.DataFrame]] = {
    "zero": lambda root: out_of_range(root).filter(pl.col("valuenum") == 0),
    "implausible": lambda root: (
        out_of_range(root).filter(pl.col("valuenum") != 0).join(in_the_other_unit(root), on=KEY, how="anti")
    ),
    "fahrenheit_under_celsius": lambda root: in_the_other_unit(root).filter(pl.col("itemid") == CELSIUS),
    "celsius_under_fahrenheit": lambda root: in_the_other_unit(root).filter(pl.col("itemid") == FAHRENHEIT),
    "inverted_pressure": inverted,
    "identical_duplicate": lambda root: repeated(root, identical=True),
    "conflicting_value": lambda root: repeated(root, identical=False),
    "null_valuenum": lambda root: charted(root).filter(pl.col("channel").is_not_null() & pl.col("valuenum").is_null()),
    "warning": lambda root: charted(root).filter(pl.col("warning") == 1),
    "stored_early": lambda root: charted(root).filter(pl.col("storetime") < pl.col("charttime")),
    "quoted_text": lambda root: charted(root).filter(pl.col("value").str.contains('[",\n]')),
    "before_intime": lambda root: charted(root).filter(pl.col("charttime") < pl.col("intime")),
    "years_late": lambda root: charted(root).filter(pl.col("charttime") > pl.col("outtime") + timedelta(days=200)),
    "after_outtime": lambda root: charted(root).filter(
        pl.col("charttime").is_between(pl.col("outtime"), pl.col("outtime") + timedelta(days=200))
    ),
    "after_death": lambda root: charted(root).filter(
        (pl.col("charttime") >= pl.col("deathtime")) & (pl.col("charttime") < pl.col("outtime"))
    ),
}


@pytest.mark.parametrize("kind", DETECTORS)
def test_the_truth_names_exactly_the_rows_that_an_independent_look_finds(simulated: Path, kind: str) -> None:
    found = keys(DETECTORS[kind](simulated))
    assert found
    assert found == keys(truth(simulated, kind))


@pytest.mark.parametrize("kind", [fault.kind for fault in FAULTS])
def test_every_fault_kind_is_present_at_its_stated_rate(simulated: Path, kind: str) -> None:
    stated = next(fault for fault in json.loads((simulated / MARKER).read_text())["faults"] if fault["kind"] == kind)
    rows = truth(simulated, kind)
    count = UNITS.get(kind, lambda found: found.height)(rows)
    assert rows.height == stated["affected"]
    assert set(rows["level"]) == {stated["level"]}
    if kind == "stuck":
        assert 0.7 < count / (stated["eligible"] * stated["rate"]) < 1.1
    else:
        assert binomtest(count, stated["eligible"], stated["rate"]).pvalue > 1e-3


@pytest.mark.parametrize(
    ("per", "itemids"),
    [
        ("vital row", None),
        ("monitor row", [220045, 220210, 220277, 220050, 220051]),
        ("Celsius row", [CELSIUS]),
        ("Fahrenheit row", [FAHRENHEIT]),
        ("thermometer row", [CELSIUS, FAHRENHEIT]),
        ("text row", [RHYTHM]),
    ],
)
def test_the_denominators_are_the_rows_that_no_earlier_fault_touched(
    simulated: Path, per: str, itemids: list[int] | None
) -> None:
    of_items = pl.col("itemid").is_in(vitals()["itemid"].to_list() if itemids is None else itemids)
    extra_or_touched = (*OUTSIDE, "identical_duplicate", "conflicting_value", "stuck", "inverted_pressure")
    rows = read_table(simulated, "icu/chartevents.csv.gz").filter(of_items).height
    eligible = rows - truth(simulated, *extra_or_touched).filter(of_items).height
    stated = [fault for fault in json.loads((simulated / MARKER).read_text())["faults"] if fault["per"] == per]
    assert stated
    assert {fault["eligible"] for fault in stated} == {eligible}


def test_a_row_carries_one_fault_at_most(simulated: Path) -> None:
    copies = ("identical_duplicate", "conflicting_value")
    rows = read_table(simulated, "truth/faults.parquet").filter(pl.col("level") == "row")
    assert rows.filter(~pl.col("kind").is_in(copies)).select(KEY).is_unique().all()


def test_the_truth_holds_the_number_written_and_the_number_that_should_have_been(simulated: Path) -> None:
    rows = charted(simulated).join(truth(simulated, *(fault.kind for fault in FAULTS)), on=KEY)
    rows = rows.filter(~pl.col("kind").is_in(["identical_duplicate", "conflicting_value"]))
    assert rows.filter(pl.col("valuenum").ne_missing(pl.col("written"))).is_empty()
    measured = rows.filter(pl.col("channel").is_not_null())
    assert measured.height > 1_000
    assert measured.select(in_range(pl.col("truth")).all()).item()


def test_a_stuck_monitor_repeats_its_value_while_the_patient_changes(simulated: Path) -> None:
    stuck = truth(simulated, "stuck").group_by("stay_id", "itemid", "written")
    stretches = stuck.agg(pl.len(), pl.col("truth").n_unique())
    long = stretches.filter(pl.col("len") >= 4)
    assert long.height > 10
    assert (long["truth"] > 1).mean() > 0.9


def test_single_precision_noise_is_what_remains_after_rounding_to_a_tenth(simulated: Path) -> None:
    noisy = charted(simulated).filter((pl.col("valuenum") - pl.col("valuenum").round(1)).abs() > 1e-9)
    assert noisy.height > 50
    assert set(noisy["itemid"]) == {CELSIUS, FAHRENHEIT}
    assert noisy.join(truth(simulated, "single_precision"), on=KEY, how="anti").is_empty()


def test_quotes_commas_and_line_breaks_survive_a_standard_reader(simulated: Path) -> None:
    texts = set(charted(simulated).filter(pl.col("itemid") == RHYTHM)["value"])
    assert {'AF, rate "controlled"', "SR with PVCs,\nsee note", '"see flowsheet"'} <= texts


def written_times(root: Path) -> pl.DataFrame:
    """The stays as written beside their true times."""
    stays = read_table(root, "truth/stays.parquet").select("stay_id", true_in="intime", true_out="outtime")
    return read_table(root, "icu/icustays.csv.gz").join(stays, on="stay_id")


def days(start: str, end: str) -> pl.Expr:
    return (pl.col(end) - pl.col(start)).dt.total_seconds() / 86_400


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("null_outtime", pl.col("outtime").is_null()),
        ("outtime_before_intime", pl.col("outtime") < pl.col("intime")),
        ("null_los", pl.col("los").is_null() & pl.col("outtime").is_not_null()),
        ("los_disagrees", (pl.col("los") - days("intime", "outtime")).abs() > 1e-6),
    ],
)
def test_the_truth_names_exactly_the_stays_with_wrong_times(simulated: Path, kind: str, wrong: pl.Expr) -> None:
    stays = written_times(simulated)
    assert sorted(stays.filter(wrong)["stay_id"]) == sorted(truth(simulated, kind)["stay_id"])
    assert stays.filter(pl.col("intime") != pl.col("true_in")).is_empty()


def test_the_truth_names_exactly_the_stays_that_overlap_or_touch_the_one_before(simulated: Path) -> None:
    stays = read_table(simulated, "truth/stays.parquet").sort("subject_id", "intime")
    previous_end = pl.col("outtime").shift(1).over("subject_id")
    overlapping = stays.filter(pl.col("intime") < previous_end)
    touching = stays.filter(pl.col("intime") == previous_end)
    assert sorted(overlapping["stay_id"]) == sorted(truth(simulated, "overlapping_stay")["stay_id"])
    assert sorted(touching["stay_id"]) == sorted(truth(simulated, "touching_stay")["stay_id"])


def test_the_truth_names_exactly_the_stays_without_vitals_and_those_without_one_channel(simulated: Path) -> None:
    stays = read_table(simulated, "truth/stays.parquet")
    measured = charted(simulated).filter(pl.col("channel").is_not_null()).select("stay_id", "channel").unique()
    without = stays.join(measured, on="stay_id", how="anti")
    assert sorted(without["stay_id"]) == sorted(truth(simulated, "no_vitals")["stay_id"])
    one_missing = truth(simulated, "channel_missing").join(stays, on="stay_id")
    assert one_missing.height > 3
    absent = one_missing.select("stay_id", channel="channel_missing")
    assert absent.join(measured, on=["stay_id", "channel"]).is_empty()


def test_the_truth_names_exactly_the_patients_under_18(simulated: Path) -> None:
    patients = read_table(simulated, "hosp/patients.csv.gz")
    minors = patients.filter(pl.col("anchor_age") < 18)["subject_id"]
    assert sorted(minors) == sorted(truth(simulated, "minor")["subject_id"])
