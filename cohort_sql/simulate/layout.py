"""Frames in the MIMIC-IV v3.1 layout and frames of the truth, made from the simulator's arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from cohort_sql.simulate.charting import Chart
from cohort_sql.simulate.faults import TEXTS, Rows
from cohort_sql.simulate.items import CHANNELS, ITEMIDS, ITEMS
from cohort_sql.simulate.people import DAY, HOUR, Person, Stay
from cohort_sql.simulate.physiology import EPISODES, Latent
from cohort_sql.simulate.rates import FAULTS

ICUSTAYS = ("subject_id", "hadm_id", "stay_id", "first_careunit", "last_careunit", "intime", "outtime", "los")
CHARTEVENTS = (
    "subject_id",
    "hadm_id",
    "stay_id",
    "caregiver_id",
    "charttime",
    "storetime",
    "itemid",
    "value",
    "valuenum",
    "valueuom",
    "warning",
)
D_ITEMS = (
    "itemid",
    "label",
    "abbreviation",
    "linksto",
    "category",
    "unitname",
    "param_type",
    "lownormalvalue",
    "highnormalvalue",
)
PATIENTS = ("subject_id", "gender", "anchor_age", "anchor_year", "anchor_year_group", "dod")
ADMISSIONS = (
    "subject_id",
    "hadm_id",
    "admittime",
    "dischtime",
    "deathtime",
    "admission_type",
    "admit_provider_id",
    "admission_location",
    "discharge_location",
    "insurance",
    "language",
    "marital_status",
    "race",
    "edregtime",
    "edouttime",
    "hospital_expire_flag",
)
_ADMISSION_TIMES = ("admittime", "dischtime", "deathtime", "edregtime", "edouttime")

_TIME = pl.Datetime("us")
_KINDS = ("", *(fault.kind for fault in FAULTS))
TRUTH_FAULTS = pl.Schema(
    {
        "kind": pl.String(),
        "level": pl.String(),
        "subject_id": pl.Int64(),
        "stay_id": pl.Int64(),
        "itemid": pl.Int64(),
        "charttime": _TIME,
        "written": pl.Float64(),
        "truth": pl.Float64(),
    }
)
TRUTH_STAYS = pl.Schema(
    {
        "subject_id": pl.Int64(),
        "hadm_id": pl.Int64(),
        "stay_id": pl.Int64(),
        "intime": _TIME,
        "outtime": _TIME,
        "deathtime": _TIME,
        "hours": pl.Int32(),
        "channel_missing": pl.String(),
    }
)
TRUTH_HOURS = pl.Schema(
    {
        "stay_id": pl.Int64(),
        "hour": pl.Int32(),
        **dict.fromkeys(CHANNELS, pl.Float32()),
        "episode": pl.String(),
        "severity": pl.Float32(),
        "gap": pl.Boolean(),
        "burst": pl.Boolean(),
    }
)


class LivedStay(NamedTuple):
    """One stay: what it was, what the body did, what was charted, and the raw chart rows of `row_frame`."""

    stay: Stay
    latent: Latent
    chart: Chart
    rows: pl.DataFrame


class Life(NamedTuple):
    """One patient with every stay lived through."""

    person: Person
    stays: list[LivedStay]


def patient_frame(people: Iterable[Person]) -> pl.DataFrame:
    """Return hosp/patients, one row per patient."""
    frame = pl.DataFrame(
        [person.patient for person in people], schema_overrides={"dod": pl.Int64}, infer_schema_length=None
    )
    return frame.with_columns(_from_seconds("dod").dt.date())


def admission_frame(people: Iterable[Person]) -> pl.DataFrame:
    """Return hosp/admissions, one row per admission; times are on the minute, as charted ones are."""
    rows = [row for person in people for row in person.admissions]
    frame = pl.DataFrame(rows, schema_overrides=dict.fromkeys(_ADMISSION_TIMES, pl.Int64), infer_schema_length=None)
    return frame.with_columns(_from_seconds(name) for name in _ADMISSION_TIMES)


def stay_frame(people: Iterable[Person]) -> pl.DataFrame:
    """Return icu/icustays, one row per stay, with the faults of its times written in."""
    rows = [_written_stay(stay) for person in people for stay in person.stays]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.with_columns(_from_seconds(name) for name in ("intime", "outtime"))


def _written_stay(stay: Stay) -> dict[str, Any]:
    """Write one stay as the database has it, wrong where it carries a fault of its times."""
    outtime: int | None = stay.outtime
    los: float | None = (stay.outtime - stay.intime) / DAY
    if stay.fault == "null_outtime":
        outtime = los = None
    elif stay.fault == "null_los":
        los = None
    elif stay.fault == "los_disagrees":
        los = (stay.outtime - stay.intime) / DAY * (0.25 if stay.fault_size < 0.5 else 3.0)
    elif stay.fault == "outtime_before_intime":
        outtime = stay.intime - HOUR - int(2 * DAY * stay.fault_size)
        los = (outtime - stay.intime) / DAY
    return {
        "subject_id": stay.subject_id,
        "hadm_id": stay.hadm_id,
        "stay_id": stay.stay_id,
        "first_careunit": stay.unit,
        "last_careunit": stay.unit,
        "intime": stay.intime,
        "outtime": outtime,
        "los": los,
    }


def row_frame(stay: Stay, rows: Rows, caregiver: int) -> pl.DataFrame:
    """Return the chart rows of one stay as raw columns; `chart_frame` and `row_fault_frame` finish many at a time."""
    constant = {
        "subject_id": stay.subject_id,
        "hadm_id": stay.hadm_id,
        "stay_id": stay.stay_id,
        "caregiver_id": caregiver,
    }
    return pl.DataFrame(rows._asdict()).with_columns(
        pl.lit(value, pl.Int64).alias(name) for name, value in constant.items()
    )


def chart_frame(raw: pl.DataFrame) -> pl.DataFrame:
    """Return icu/chartevents: whole numbers without a point, texts where an item or a fault has one."""
    number = pl.col("value").fill_nan(None).cast(pl.String).str.strip_suffix(".0")
    return raw.select(
        "subject_id",
        "hadm_id",
        "stay_id",
        "caregiver_id",
        _from_seconds("time").alias("charttime"),
        _from_seconds("stored").alias("storetime"),
        _lookup("column", ITEMIDS.tolist()).alias("itemid"),
        pl.coalesce(_lookup("text", TEXTS), number).alias("value"),
        number.alias("valuenum"),
        _lookup("column", [item.unit for item in ITEMS]).alias("valueuom"),
        "warning",
    )


def row_fault_frame(raw: pl.DataFrame) -> pl.DataFrame:
    """Return truth/faults for rows: what was written and what a faultless bedside would have written."""
    return raw.filter(pl.col("kind") > 0).select(
        _lookup("kind", _KINDS).alias("kind"),
        pl.lit("row").alias("level"),
        "subject_id",
        "stay_id",
        _lookup("column", ITEMIDS.tolist()).alias("itemid"),
        _from_seconds("time").alias("charttime"),
        pl.col("value").fill_nan(None).alias("written"),
        pl.col("truth").fill_nan(None),
    )


def stay_fault_frame(lives: Iterable[Life]) -> pl.DataFrame:
    """Return truth/faults for stays and patients; their row columns are empty."""
    found: list[tuple[str, str, int, int | None]] = []
    for life in lives:
        if life.person.minor:
            found.append(("minor", "patient", life.person.patient["subject_id"], None))
        for lived in life.stays:
            kinds = (lived.stay.fault, lived.stay.join, lived.chart.absence)
            found.extend(
                (kind, "stay", lived.stay.subject_id, lived.stay.stay_id) for kind in kinds if kind is not None
            )
    columns = list(TRUTH_FAULTS)
    frame = pl.DataFrame(found, schema=columns[:4], orient="row", infer_schema_length=None)
    return frame.with_columns(pl.lit(None, TRUTH_FAULTS[name]).alias(name) for name in columns[4:])


def true_stay_frame(stays: Iterable[LivedStay]) -> pl.DataFrame:
    """Return truth/stays, one row per stay with its true times."""
    rows = [
        {**lived.stay._asdict(), "hours": len(lived.latent.vitals), "channel_missing": lived.chart.missing_channel}
        for lived in stays
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.with_columns(_from_seconds(name) for name in ("intime", "outtime", "deathtime"))


def true_hour_frame(stays: list[LivedStay]) -> pl.DataFrame:
    """Return truth/hours, one row per stay-hour: latent vitals, episode, and how the hour was charted."""
    hours = [len(lived.latent.vitals) for lived in stays]
    vitals = np.concatenate([lived.latent.vitals for lived in stays])
    frame = pl.DataFrame(
        {
            "stay_id": np.repeat([lived.stay.stay_id for lived in stays], hours),
            "hour": np.concatenate([np.arange(count) for count in hours]),
            **{channel: vitals[:, index] for index, channel in enumerate(CHANNELS)},
            "episode": np.concatenate([lived.latent.episode for lived in stays]),
            "severity": np.concatenate([lived.latent.severity for lived in stays]),
            "gap": np.concatenate([lived.chart.gap for lived in stays]),
            "burst": np.concatenate([lived.chart.burst for lived in stays]),
        }
    )
    return frame.with_columns(_lookup("episode", EPISODES))


def _from_seconds(name: str) -> pl.Expr:
    """Read a column of seconds since 1970 as naive times."""
    return pl.from_epoch(pl.col(name).cast(pl.Int64), "s").cast(_TIME)


def _lookup(name: str, table: Iterable[Any]) -> pl.Expr:
    """Read a column of positions as the entries of a table; a negative position has none."""
    return pl.col(name).replace_strict(dict(enumerate(table)), default=None)
