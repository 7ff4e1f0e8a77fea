"""The cohort of a run in the layout of the Medical Event Data Standard: measured hours only, one event a row.

A MEDS time is a point in time, in microseconds, of the subject's own (shifted) calendar. A vital of hour h stands for
the readings charted from intime + h to intime + h + 1 hours, so it is dated at the end of that hour: what the file puts
before a time was known by then. Filled hours are no measurements and are left out.
"""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.retention import CHANNELS
from flows.errors import FlowError
from flows.run.layout import RunLayout, bucket_name
from flows.run.locks import run_lock
from flows.run.manifest import step_is_done
from flows.run.publish import publish_directory, write_json
from flows.run.registry import opened_site
from flows.settings import Settings
from flows.steps.opened import opened_manifest, opened_settings
from flows.steps.site import refuse_suppressed, registered

MEDS_VERSION = "0.4"
SPLITS = {"train": "train", "validation": "tuning", "test": "held_out"}
EXPORTED = "exported:"  # begins the inventory entry of a directory that a deletion does not reach

_SCHEMA: dict[str, Any] = {
    "subject_id": pl.Int64,
    "time": pl.Datetime("us"),
    "code": pl.String,
    "numeric_value": pl.Float32,
}


_SHORT = {pa.large_string(): pa.string(), pa.large_list(pa.large_string()): pa.list_(pa.string())}


def export_meds(run: Path, out: Path, settings: Settings) -> dict[str, Any]:
    """Write the cohort of a run into the new directory `out` (mode 0700); returns counts of what it holds.

    Where a site is named, by the settings or by the run, the directory is entered in the run's inventory, so that a
    deletion lists it as not covered. Raises FlowError for a run without a cohort, one that holds a suppressed patient
    and a directory that is there already.
    """
    layout, target = RunLayout(run.absolute()), out.expanduser().absolute()
    manifest = opened_manifest(layout)
    with run_lock(layout):
        _refuse(layout, target, settings)
        _enter(layout, target, settings)
        generation = target.with_name(f".{target.name}.new")
        shutil.rmtree(generation, ignore_errors=True)
        try:
            generation.mkdir(mode=0o700, parents=True)
            report = _write_data(layout, generation / "data")
            _write_metadata(layout, generation / "metadata", manifest.source)
            publish_directory(generation, target)
        finally:
            shutil.rmtree(generation, ignore_errors=True)
    return {"directory": str(target), "meds": MEDS_VERSION, **report}


def events(hourly: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """The measured vitals of some hours as MEDS rows, sorted by subject, time and code.

    `hourly` has stay_id, hour, the six channels and `<channel>_measured`; `stays` has stay_id, subject_id, intime.
    """
    known = hourly.join(stays.select("stay_id", "subject_id", "intime"), on="stay_id", how="inner")
    ended = known.with_columns(time=pl.col("intime") + pl.duration(hours=pl.col("hour") + 1))
    parts = [
        ended.filter(f"{channel}_measured").select(
            "subject_id", "time", code=pl.lit(code(channel)), numeric_value=pl.col(channel)
        )
        for channel in CHANNELS
    ]
    rows = pl.concat([part.cast(_SCHEMA) for part in parts])  # type: ignore[arg-type]
    return rows.sort("subject_id", "time", "code", "numeric_value")


def code(channel: str) -> str:
    """The code of a channel; it says that the value is an hour's, not one reading's."""
    return f"VITAL_HOURLY//{channel}"


def _refuse(layout: RunLayout, target: Path, settings: Settings) -> None:
    if not step_is_done(layout, opened_manifest(layout), "cohort", thorough=True):
        raise FlowError(f"run {layout.root}: has no finished cohort; run the same `icu-memory study` again")
    refuse_suppressed(layout, settings.state)
    if target.is_relative_to(layout.root):
        raise FlowError(f"--out {target}: lies inside the run; choose a directory beside it")
    if target.exists():
        raise FlowError(f"--out {target}: is there already; name a new directory")


def _enter(layout: RunLayout, target: Path, settings: Settings) -> None:
    """Note the directory with the site before anything of a patient is in it."""
    own = opened_settings(layout)
    state = settings.state or own.state
    if state is None:
        return
    named = own.model_copy(update={"state": state})
    with registered(layout, opened_manifest(layout).source, named), opened_site(state) as site:
        run_id = next(known.run_id for known in site.runs() if known.path == layout.root)
        site.set_inventory(run_id, site.inventory(run_id) | {f"{EXPORTED}{target}"})


def _write_data(layout: RunLayout, data: Path) -> dict[str, Any]:
    """One file a bucket and split; a patient is in one bucket and one split, so in one file."""
    stays = pl.read_parquet(layout.cohort / "stays.parquet")
    held: Counter[str] = Counter()
    for bucket in sorted(stays["bucket"].unique()):
        hourly = pl.read_parquet(layout.cohort / "hourly" / bucket_name(bucket) / "*.parquet", hive_partitioning=False)
        for split, name in SPLITS.items():
            rows = events(hourly, stays.filter((pl.col("bucket") == bucket) & (pl.col("split") == split)))
            if rows.is_empty():
                continue
            file = data / name / f"{bucket:02d}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            _write(file, rows)
            held.update({"events": rows.height, "files": 1})
    filled = len(CHANNELS) * int(stays["hours"].sum()) - held["events"]
    return {"stays": stays.height, "patients": stays["subject_id"].n_unique(), **held, "filled_left_out": filled}


def _write_metadata(layout: RunLayout, metadata: Path, source: Any) -> None:
    metadata.mkdir(parents=True)
    described = {
        "dataset_name": f"hourly vitals of MIMIC-IV {source['release'] or 'of unknown release'}"
        + (" (simulated)" if source["simulated"] else ""),
        "etl_name": "icu-stream-memory",
        "etl_version": version("icu-stream-memory"),
        "meds_version": MEDS_VERSION,
    }
    write_json(metadata / "dataset.json", described)
    codes = pl.DataFrame(list(_codes()), schema={"code": pl.String, "description": pl.String}, orient="row")
    empty = pl.lit(None, dtype=pl.List(pl.String)).alias("parent_codes")
    _write(metadata / "codes.parquet", codes.with_columns(empty))
    stays = (
        pl.read_parquet(layout.cohort / "stays.parquet", columns=["subject_id", "split"]).unique().sort("subject_id")
    )
    splits = stays.with_columns(pl.col("split").replace_strict(SPLITS, return_dtype=pl.String))
    _write(metadata / "subject_splits.parquet", splits)


def _write(file: Path, rows: pl.DataFrame) -> None:
    """Write a table with the Arrow types that the standard names, which has short strings and lists."""
    table = rows.to_arrow()
    fields = [(field.name, _SHORT.get(field.type, field.type)) for field in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), file, compression="zstd", write_statistics=False)


def _codes() -> Iterator[tuple[str, str]]:
    with (files("cohort_sql") / "channels.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            told = f"{row['label']}, {row['unit']}: the value of an hour with a reading, dated at the end of the hour"
            yield code(row["channel"]), told
