"""From MIMIC-IV files to hourly tokens: runs the SQL of a preset in order and writes the cohort directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cohort_sql import attrition
from cohort_sql.checks import open_views
from cohort_sql.engine import CHANNELS, EVENT_CHANNELS, Engine
from cohort_sql.errors import CohortError
from cohort_sql.ingest import ingest
from cohort_sql.presets import Readings
from cohort_sql.selected import Preset, select
from cohort_sql.source import Source
from cohort_sql.suppressed import Suppressed

__all__ = ["CHANNELS", "EVENT_CHANNELS", "CohortError", "CohortResult", "build_cohort"]

Progress = Callable[[str, float], None]
LONG_GRID_HOURS = 5_000
BLOCK_ROWS = 131_072


@dataclass(frozen=True)
class CohortResult:
    """What was built: counts, attrition, coverage, the SHA-256 of each query, and the buckets that hold a stay."""

    stays: int
    patients: int
    tokens: int
    attrition: dict[str, Any]
    queries: dict[str, str]
    coverage: list[dict[str, Any]]
    buckets: tuple[int, ...]


class Block(NamedTuple):
    """Stay-hours of one bucket that are written together: a range of whole stays, or a range of hours of a long one."""

    bucket: int
    first_stay: int
    last_stay: int
    first_hour: int
    last_hour: int


def build_cohort(
    source: Source,
    out: Path,
    *,
    preset: Preset,
    stays: int | None,
    seed: int,
    buckets: int,
    scratch: Path,
    threads: int | None = None,
    memory_limit: str = "2GiB",
    progress: Progress | None = None,
    suppressed: Collection[int] = (),
    suppressed_subjects: Collection[int] = (),
) -> CohortResult:
    """Build the cohort of `source` in the directory `out` and return its counts.

    Writes stays.parquet, hourly/bucket=NN/part.parquet (sorted by stay and hour), attrition.json, coverage.json and
    statistics.json: the same bytes for the same source, settings and library versions, whatever the threads, the zone
    of the host and the order of rows (but `paper` draws stays in file order, as published). `stays` is how many stays
    are drawn (None: all), `seed` drives the draw and the split, all stays of a patient share one of `buckets`.
    Rows of the stay ids in `suppressed` and of the patients in `suppressed_subjects` are as if the source had never
    held them: not in a count, not in `scratch`, from which builds that held them are removed; they cost a second pass
    over chartevents.

    Earlier output in `out` is replaced; `scratch` keeps ingested and selected readings for the next build. Raises
    SourceError and CohortError, each one line without a data value. Publishing `out` by a rename is the caller's part.
    """
    tell = progress or (lambda step, share: None)
    left_out = Suppressed(frozenset(suppressed), frozenset(suppressed_subjects))
    with Engine(scratch, threads, memory_limit) as engine:
        open_views(engine, source, left_out)
        ingested = ingest(engine, source, scratch, lambda share: tell("reading chartevents", share), left_out)
        engine.parquet("charted", ingested.path)
        tell("selecting readings", 0.0)
        readings = select(engine, source, ingested, scratch, preset, stays, seed)
        engine.table("cohort", buckets=buckets, seed=str(seed), train_only=preset == "causal")
        _refuse_empty(engine, preset)
        tell("filling hours", 0.0)
        _fill(engine, careful=preset == "causal")
        flow = _attrition(engine, ingested.source_rows, readings)
        return _write(engine, out, flow, tell)


def _refuse_empty(engine: Engine, preset: Preset) -> None:
    if engine.count("cohort"):
        return
    reasons = attrition.stay_level(engine.rows("select subject_id, reason from outcome"))["stays"]["left_out"]
    told = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    raise CohortError(f"icu/icustays: no stay is eligible under the {preset} preset ({told}); check the files")


def _fill(engine: Engine, *, careful: bool) -> None:
    """Make the table filled, one row per stay-hour, and the tables that standardise and describe it."""
    engine.table("event_limit")
    engine.table("carry_limit", limited=careful)
    engine.table("typical")
    _refuse_unmeasured(engine)
    engine.table("first_measured", backward=not careful)
    for name in ("carried", "filled", "center", "spread", "stay_coverage", "coverage"):
        engine.table(name)


def _refuse_unmeasured(engine: Engine) -> None:
    typical = engine.rows("select * from typical")[0]
    absent = [channel for channel in CHANNELS if typical[channel] is None]
    if absent:
        raise CohortError(
            f"icu/chartevents: {', '.join(absent)} never measured in the stays that statistics are fitted on, so empty "
            "hours have no value; use more stays or check the itemids of the source"
        )


def _attrition(engine: Engine, source_rows: int, readings: Readings) -> dict[str, Any]:
    """Return the balances of rows, stays and patients, with what else the flow should tell."""
    left_out = {reason: count for reason, count in readings.by_reason.items() if reason is not None}
    left_out["other_item"] = source_rows - sum(readings.by_reason.values())
    flow: dict[str, Any] = {"rows": attrition.balance(source_rows, readings.by_reason.get(None, 0), left_out)}
    flow["repaired"] = readings.repaired
    flow |= attrition.stay_level(engine.rows("select subject_id, reason from outcome"))
    long_grids = engine.rows("select count(*) as n from cohort where hours > $long", long=LONG_GRID_HOURS)
    flow["long_grids"] = long_grids[0]["n"]
    releases = engine.rows("select * from releases")
    flow["expected"] = attrition.against_release(releases, flow["stays"]["source"], source_rows)
    return flow


def _write(engine: Engine, out: Path, flow: dict[str, Any], tell: Progress) -> CohortResult:
    """Write the cohort directory and return its summary."""
    hourly = out / "hourly"
    shutil.rmtree(hourly, ignore_errors=True)
    hourly.mkdir(parents=True)
    stays = engine.arrow("stays")
    pq.write_table(stays, out / "stays.parquet")
    blocks = list(plan_blocks(stays, BLOCK_ROWS))
    buckets = tuple(sorted({block.bucket for block in blocks}))
    for done, bucket in enumerate(buckets):
        tell("writing hours", done / len(buckets))
        _write_bucket(engine, hourly / f"bucket={bucket:02d}", [block for block in blocks if block.bucket == bucket])
    coverage = engine.rows("select * from coverage")
    _write_json(out / "attrition.json", flow)
    _write_json(out / "coverage.json", coverage)
    _write_json(out / "statistics.json", {"channels": _statistics(engine)})
    tell("writing hours", 1.0)
    return CohortResult(
        stays=flow["stays"]["used"],
        patients=flow["patients"]["used"],
        tokens=int(pc.sum(stays["hours"]).as_py()),
        attrition=flow,
        queries=dict(sorted(engine.queries.items())),
        coverage=coverage,
        buckets=buckets,
    )


def _write_bucket(engine: Engine, folder: Path, blocks: Sequence[Block]) -> None:
    folder.mkdir()
    writer = None
    try:
        for block in blocks:
            hours = engine.arrow("hourly", **block._asdict())
            writer = writer or pq.ParquetWriter(folder / "part.parquet", hours.schema)
            writer.write_table(hours, row_group_size=BLOCK_ROWS)
    finally:
        if writer is not None:
            writer.close()


def plan_blocks(stays: pa.Table, rows: int) -> Iterator[Block]:
    """Cut the stay-hours into blocks of at most `rows`, in order of bucket, stay and hour.

    A block holds whole stays, or a part of one that is longer.

    `stays` has the columns bucket, stay_id, first_hour and hours.
    """
    columns = (stays[name].to_pylist() for name in ("bucket", "stay_id", "first_hour", "hours"))
    open_block, held = None, 0
    for bucket, stay, first, hours in sorted(zip(*columns, strict=True)):
        if open_block and (open_block.bucket != bucket or held + hours > rows):
            yield open_block
            open_block = None
        if hours > rows:
            ends = range(first, first + hours, rows)
            yield from (Block(bucket, stay, stay, start, min(start + rows, first + hours) - 1) for start in ends)
        elif open_block is None:
            open_block, held = Block(bucket, stay, stay, first, first + hours - 1), hours
        else:
            held += hours
            open_block = open_block._replace(
                last_stay=stay,
                first_hour=min(open_block.first_hour, first),
                last_hour=max(open_block.last_hour, first + hours - 1),
            )
    if open_block:
        yield open_block


def _statistics(engine: Engine) -> dict[str, dict[str, float]]:
    tables = {"median": "typical", "mean": "center", "sd": "spread"}
    found = {name: engine.rows(f"select * from {table}")[0] for name, table in tables.items()}
    return {channel: {name: float(found[name][channel]) for name in tables} for channel in CHANNELS}


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
