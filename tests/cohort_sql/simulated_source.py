"""Readers for a simulated source that share no code with its writer."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl

REPOSITORY = Path(__file__).parents[2]
SOURCE_FILES = (
    "icu/icustays.csv.gz",
    "icu/chartevents.csv.gz",
    "hosp/patients.csv.gz",
    "hosp/admissions.csv.gz",
)
_INTEGERS = ("subject_id", "hadm_id", "stay_id", "itemid", "warning", "anchor_age", "anchor_year")
_NUMBERS = ("valuenum", "los")
_TIMES = ("intime", "outtime", "charttime", "storetime", "admittime", "dischtime", "deathtime")


@cache
def read_table(root: Path, name: str) -> pl.DataFrame:
    """Read one file of a source or of its truth, with declared types."""
    if name.endswith(".parquet"):
        return pl.read_parquet(root / name)
    text = pl.read_csv(root / name, infer_schema_length=0)
    types = {
        **dict.fromkeys(_INTEGERS, pl.Int64),
        **dict.fromkeys(_NUMBERS, pl.Float64),
    }
    return text.with_columns(
        *(pl.col(column).cast(kind) for column, kind in types.items() if column in text.columns),
        *(pl.col(column).str.to_datetime("%Y-%m-%d %H:%M:%S") for column in _TIMES if column in text.columns),
    )


def vitals() -> pl.DataFrame:
    """Read which items are vitals and their plausible ranges, from the cohort's own table."""
    return pl.read_csv(REPOSITORY / "cohort_sql" / "vitals.csv").select("itemid", "channel", "low", "high")


def thresholds() -> pl.DataFrame:
    """Read the event thresholds, from the cohort's own table."""
    return pl.read_csv(REPOSITORY / "cohort_sql" / "events.csv")
