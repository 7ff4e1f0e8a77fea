"""Sources of a few rows, written as MIMIC-IV files, and the cohort built from them."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cohort_sql.build import CohortResult, build_cohort
from cohort_sql.source import find_source

STAY, PATIENT, ADMISSION = 30000001, 10000001, 20000001
HR, ART_SBP, ART_DBP, CUFF_SBP, CUFF_DBP, RR, SPO2, FAHRENHEIT, CELSIUS = (
    220045, 220050, 220051, 220179, 220180, 220210, 220277, 223761, 223762,
)  # fmt: skip
INTIME, OUTTIME = "2150-01-01 10:00:00", "2150-01-04 10:00:00"
# One plausible reading of each channel, at intime: what a stay needs so that every channel has a median.
BASE = tuple(
    (item, INTIME, number)
    for item, number in ((HR, 80), (CUFF_SBP, 120), (CUFF_DBP, 70), (RR, 16), (SPO2, 97), (CELSIUS, 37))
)


def stay(stay_id=STAY, subject_id=PATIENT, hadm_id=ADMISSION, intime=INTIME, outtime=OUTTIME, los=3.0):
    """Return one row of icustays."""
    return {
        "subject_id": subject_id, "hadm_id": hadm_id, "stay_id": stay_id, "first_careunit": "MICU",
        "last_careunit": "MICU", "intime": intime, "outtime": outtime, "los": los,
    }  # fmt: skip


def reading(item, charttime, number, stay_id=STAY, value=None):
    """Return one row of chartevents."""
    return {
        "subject_id": PATIENT, "hadm_id": ADMISSION, "stay_id": stay_id, "caregiver_id": "", "charttime": charttime,
        "storetime": charttime, "itemid": item, "value": number if value is None else value, "valuenum": number,
        "valueuom": "", "warning": 0,
    }  # fmt: skip


def person(subject_id=PATIENT, anchor_age=60, anchor_year=2150):
    """Return one row of patients."""
    return {"subject_id": subject_id, "gender": "F", "anchor_age": anchor_age, "anchor_year": anchor_year, "dod": ""}


def admission(hadm_id=ADMISSION, deathtime=""):
    """Return one row of admissions."""
    return {"subject_id": PATIENT, "hadm_id": hadm_id, "deathtime": deathtime}


def as_csv(rows):
    """Return rows as CSV text with a header, as MIMIC-IV files are written."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write(path: Path, content: str | bytes) -> None:
    """Write a file, gzipped where its name says so, with its folder."""
    content = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def write_source(root: Path, readings=BASE, stays=None, people=None, admissions=None, suffix=".csv.gz") -> Path:
    """Write a source; readings are (item, charttime, number[, stay_id]) or whole rows; an empty list writes no file."""
    rows = [row if isinstance(row, dict) else reading(*row) for row in readings]
    tables = {
        "icu/icustays": [stay()] if stays is None else stays,
        "icu/chartevents": rows,
        "hosp/patients": [person()] if people is None else people,
        "hosp/admissions": [admission()] if admissions is None else admissions,
    }
    for name, content in tables.items():
        if content:
            write(root / f"{name}{suffix}", as_csv(content))
    return root


@dataclass(frozen=True)
class Built:
    """A cohort directory, read."""

    result: CohortResult
    out: Path

    @property
    def hours(self) -> pl.DataFrame:
        """All stay-hours in order."""
        return pl.read_parquet(self.out / "hourly/*/part.parquet", hive_partitioning=False).sort("stay_id", "hour")

    @property
    def stays(self) -> pl.DataFrame:
        """The stays used."""
        return pl.read_parquet(self.out / "stays.parquet")

    @property
    def rows_left_out(self) -> dict[str, int]:
        """Readings left out, by reason."""
        return self.result.attrition["rows"]["left_out"]

    @property
    def stays_left_out(self) -> dict[str, int]:
        """Stays left out, by reason."""
        return self.result.attrition["stays"]["left_out"]

    @property
    def statistics(self) -> dict[str, dict[str, float]]:
        """Median, mean and deviation of each channel."""
        return json.loads((self.out / "statistics.json").read_text())["channels"]

    def channel(self, name: str) -> list[float]:
        """Values of a channel, hour by hour."""
        return self.hours[name].to_list()

    def measured(self, name: str) -> dict[int, float]:
        """Values of a channel in the hours in which it was measured."""
        return dict(self.hours.filter(f"{name}_measured").select("hour", name).rows())


def build(root: Path, out: Path, *, preset="causal", stays=None, seed=0, threads=2, buckets=4) -> Built:
    """Build the cohort of the source at `root` into `out`."""
    result = build_cohort(
        find_source(root), out, preset=preset, stays=stays, seed=seed, buckets=buckets, scratch=out.parent / "scratch",
        threads=threads,
    )  # fmt: skip
    return Built(result, out)


def built_from(folder: Path, readings, **settings) -> Built:
    """Write a source under `folder` and build it; keywords go to whichever of the two takes them."""
    own = {name: settings.pop(name) for name in ("stays", "people", "admissions", "suffix") if name in settings}
    return build(write_source(folder / "source", readings, **own), folder / "out", **settings)
