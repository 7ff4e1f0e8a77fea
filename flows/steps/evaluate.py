"""The evaluation step: one bucket of patients at a time, then the result tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from evaluation.policies import FixedContext
from evaluation.retention import COMPOSITE, EVENT_CHANNELS, LABELS, evaluate_stays, stays_from_bucket
from evaluation.retention_tables import contrast_rows, retention_rows
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import recorded_step, step_is_done
from flows.run.publish import publish_directory, write_json, written_whole
from flows.settings import Settings
from flows.steps.opened import opened_manifest

SCHEMA_VERSION = 1


def measured_channels(settings: Settings) -> tuple[str, ...]:
    """The channels a study reports: the composite and every event channel, or the composite and the held-out one."""
    return LABELS if settings.held_out is None else (COMPOSITE, settings.held_out)


def measure_bucket(layout: RunLayout, settings: Settings, bucket: int) -> int:
    """Write one bucket's counts and retained sets, unless they are there already; returns its stay-hours.

    Both files are renamed into place, the counts last: counts without retained sets cannot be left behind by a kill.
    """
    scores, retained = _parts(layout, bucket)
    tokens = layout.cohort / "hourly" / bucket_name(bucket)
    hourly = pl.read_parquet(tokens / "*.parquet")
    if step_is_done(layout, opened_manifest(layout), "evaluate") or (scores.exists() and retained.exists()):
        return hourly.height
    stays = stays_from_bucket(hourly, pl.read_parquet(layout.cohort / "stays.parquet"))
    # One thread, since a sum's last bits depend on how the library splits it.
    with threadpool_limits(limits=1):
        frames = evaluate_stays(stays, protocol(settings), measured_channels(settings))
    for path, frame in ((retained, frames.retained), (scores, frames.scores)):
        with written_whole(path) as beside:
            frame.write_parquet(beside, compression="zstd", statistics=False)
    return hourly.height


def protocol(settings: Settings) -> FixedContext:
    """The fixed-context protocol with the study's numbers."""
    return FixedContext(nu=settings.nu, sigma=settings.sigma, threshold=settings.support_threshold)


def summarise(layout: RunLayout, settings: Settings) -> None:
    """Put all buckets together into RUN/results and publish the retained sets as RUN/retained."""
    manifest = opened_manifest(layout)
    if step_is_done(layout, manifest, "evaluate"):
        return
    buckets: Sequence[int] = manifest.steps["cohort"]["buckets"]
    parts = [_parts(layout, bucket) for bucket in buckets]
    with recorded_step(layout, "evaluate", [layout.results, layout.retained]) as facts:
        scores = pl.concat([pl.read_parquet(counts) for counts, _ in parts]).sort("stay_id", "channel", "policy")
        _write_tables(layout, settings, scores)
        _gather_retained(layout, [retained for _, retained in parts])
        publish_directory(layout.generation("results"), layout.results)
        publish_directory(layout.generation("retained"), layout.retained)
        facts.update(buckets=len(buckets))
    shutil.rmtree(layout.generation("evaluate"), ignore_errors=True)


def _write_tables(layout: RunLayout, settings: Settings, scores: pl.DataFrame) -> None:
    generation = layout.generation("results")
    shutil.rmtree(generation, ignore_errors=True)
    channels = measured_channels(settings)
    options: dict[str, Any] = {
        "unmeasured": _never_measured(layout),
        "draws": settings.bootstrap_draws,
        "seed": settings.bootstrap_seed,
    }
    with threadpool_limits(limits=1):
        tables = {
            "retention": retention_rows(scores, protocol(settings), channels, **options),
            "contrasts": contrast_rows(scores, protocol(settings), channels, **options),
        }
    for name, rows in tables.items():
        write_json(generation / f"{name}.json", {"schema_version": SCHEMA_VERSION, "rows": rows})


def _gather_retained(layout: RunLayout, parts: Sequence[Path]) -> None:
    """Copy rather than move, so that a kill before the record keeps every finished bucket."""
    generation = layout.generation("retained")
    shutil.rmtree(generation, ignore_errors=True)
    generation.mkdir(parents=True)
    for part in parts:
        shutil.copyfile(part, generation / part.name.removeprefix("retained-"))


def _never_measured(layout: RunLayout) -> list[str]:
    coverage = json.loads((layout.cohort / "coverage.json").read_text(encoding="utf-8"))
    rows = coverage["rows"] if isinstance(coverage, dict) else coverage
    return [row["channel"] for row in rows if row["channel"] in EVENT_CHANNELS and not row["measured_hours"]]


def _parts(layout: RunLayout, bucket: int) -> tuple[Path, Path]:
    generation = layout.generation("evaluate")
    return generation / f"counts-{bucket_name(bucket)}.parquet", generation / f"retained-{bucket_name(bucket)}.parquet"
