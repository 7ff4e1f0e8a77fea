"""Benchmarks of the whole product as ratios within one run; absolute figures stand beside and mean little elsewhere."""

from __future__ import annotations

import gzip
import multiprocessing
import platform
import resource
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from cohort_sql.build import build_cohort
from cohort_sql.simulate import simulate
from cohort_sql.source import Source, find_source
from evaluation.bench_memories import run_bench as bench_matrix_memories
from evaluation.bench_svdd import run_bench as bench_memory
from evaluation.retention import StayTokens, stays_from_bucket
from flows.progress import current_progress
from flows.run.manifest import package_versions
from flows.run.publish import write_json
from flows.settings import Settings
from flows.steps.cohort import cohort_arguments
from flows.steps.memories import capacity
from memory.svdd import SVDDMemory

SCHEMA_VERSION = 1

_ROWS_PER_PATIENT = 1_070  # of the simulator, about
_STREAMED_TOKENS = 20_000
_DRAWN_STAYS = 1_500  # the published draw; without one, filling and writing every token outweighs reading the file

Row = dict[str, Any]


def run_bench(out: Path, settings: Settings, *, quick: bool = False) -> dict[str, Any]:
    """Write the benchmarks to ``out`` and return them; ``quick`` keeps to a minute.

    The simulated source is kept in `bench/` beside ``out`` for the next time.  Ratios gate, absolute figures do not.
    """
    rows = settings.bench_rows // 40 if quick else settings.bench_rows
    place = out.absolute().parent / "bench"
    settings = settings.model_copy(update={"stays": settings.stays or _DRAWN_STAYS})
    source = _source(place / f"rows-{rows}-seed-{settings.seed}", rows, settings.seed)
    measured = [*cohort(source, settings, place), streaming(place / "cohort", settings)]
    with threadpool_limits(limits=1):
        measured += bench_memory(settings.seed, quick)["rows"]
        measured += bench_matrix_memories(settings.seed, quick)["rows"]
    host = {"machine": platform.machine(), "cores": multiprocessing.cpu_count()}
    document = {
        "schema_version": SCHEMA_VERSION,
        "seed": settings.seed,
        "quick": quick,
        "versions": package_versions(),
        "host": host,
        "rows": measured,
    }
    write_json(out, document)
    return document


def cohort(source: Source, settings: Settings, place: Path) -> list[Row]:
    """Time reading the file alone, a first cohort build and one from the readings it ingested.

    Each build runs in a process of its own, whose peak memory is told in bytes.
    """
    shutil.rmtree(place / "scratch", ignore_errors=True)
    (place / "scratch").mkdir(parents=True)
    lines, alone = _counted_lines(source.chartevents)
    first, peak = _build_apart(source, settings, place)
    second, _ = _build_apart(source, settings, place)
    shutil.rmtree(place / "scratch")
    common: Row = {"file_lines": lines, "preset": settings.preset, "stays": settings.stays}
    return [
        {
            "bench": "cohort build",
            **common,
            "decompress_seconds": alone,
            "seconds": first,
            "decompress_ratio": first / alone,
            "peak_bytes": peak,
        },
        {"bench": "second cohort build", **common, "seconds": second, "first_build_ratio": first / second},
    ]


def streaming(cohort_directory: Path, settings: Settings) -> Row:
    """Stream stays hour by hour with a certificate after every hour, and again without."""
    stays = _first_stays(cohort_directory)
    with threadpool_limits(limits=1):
        plain = _streamed(stays, settings, certified=False)
        certified = _streamed(stays, settings, certified=True)
    tokens = sum(len(stay.hours) for stay in stays)
    return {
        "bench": "streaming",
        "tokens": tokens,
        "stays": len(stays),
        "certified_tokens_per_second": tokens / certified,
        "tokens_per_second": tokens / plain,
        "certificate_cost_ratio": certified / plain,
    }


def _source(directory: Path, rows: int, seed: int) -> Source:
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        simulate(
            directory,
            patients=max(rows // _ROWS_PER_PATIENT, 1),
            seed=seed,
            progress=current_progress().counter("simulate", "patients"),
        )
    return find_source(directory)


def _counted_lines(file: Path) -> tuple[int, float]:
    """Lines of a gzip file and the seconds that `zcat | wc -l` takes; Python's own reader where there is no zcat."""
    began = time.perf_counter()
    if shutil.which("zcat") is None:
        with gzip.open(file, "rb") as stream:
            lines = sum(1 for _ in stream)
    else:
        script = 'zcat -- "$1" | wc -l'
        told = subprocess.run(["sh", "-c", script, "sh", str(file)], check=True, capture_output=True)  # noqa: S603, S607
        lines = int(told.stdout)
    return lines, time.perf_counter() - began


def _build_apart(source: Source, settings: Settings, place: Path) -> tuple[float, int]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_build, (source, settings, place))


def _build(source: Source, settings: Settings, place: Path) -> tuple[float, int]:
    began = time.perf_counter()
    build_cohort(source, place / "cohort", scratch=place / "scratch", **cohort_arguments(settings))
    seconds = time.perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _first_stays(cohort_directory: Path) -> list[StayTokens]:
    """Whole stays of the first buckets, at most about 20,000 hours."""
    table = pl.read_parquet(cohort_directory / "stays.parquet")
    chosen: list[StayTokens] = []
    for part in sorted(cohort_directory.glob("hourly/bucket=*/part.parquet")):
        for stay in stays_from_bucket(pl.read_parquet(part), table):
            if sum(len(each.hours) for each in chosen) >= _STREAMED_TOKENS:
                return chosen
            chosen.append(stay)
    return chosen


def _streamed(stays: list[StayTokens], settings: Settings, *, certified: bool) -> float:
    began = time.perf_counter()
    for stay in stays:
        memory = SVDDMemory(capacity(settings), settings.sigma)
        for key in stay.keys:
            memory.admit(key)
            if memory.ready:
                memory.prune()
                if certified:
                    memory.certificate()
    return time.perf_counter() - began
