"""The evaluation step: what every policy keeps, one bucket of patients at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from threadpoolctl import threadpool_limits

from evaluation.protocol_fixed import FixedContext
from evaluation.retention import (
    COMPOSITE,
    LABELS,
    RetentionProtocol,
    StayTokens,
    evaluate_stays,
    stays_from_bucket,
)
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import step_is_done
from flows.run.publish import written_whole
from flows.settings import Settings
from flows.steps.opened import opened_manifest


def measured_channels(settings: Settings) -> tuple[str, ...]:
    """The channels a study reports: the composite and every event channel, or the composite and the held-out one."""
    return LABELS if settings.held_out is None else (COMPOSITE, settings.held_out)


def read_bucket(layout: RunLayout, bucket: int) -> tuple[pl.DataFrame, list[StayTokens]]:
    """The hourly tokens of one bucket as a frame and as stays."""
    hourly = pl.read_parquet(layout.cohort / "hourly" / bucket_name(bucket) / "*.parquet")
    return hourly, stays_from_bucket(hourly, pl.read_parquet(layout.cohort / "stays.parquet"))


def measure_bucket(layout: RunLayout, settings: Settings, bucket: int) -> int:
    """Write one bucket's counts and retained sets, unless they are there already; returns its stay-hours."""
    hourly, stays = read_bucket(layout, bucket)
    counts, _ = parts(layout, "evaluate", bucket)
    if not step_is_done(layout, opened_manifest(layout), "evaluate") and not counts.exists():
        measure_stays(layout, settings, stays, protocol(settings), "evaluate", bucket)
    return hourly.height


def measure_stays(
    layout: RunLayout, settings: Settings, stays: Sequence[StayTokens], rule: RetentionProtocol, step: str, bucket: int
) -> None:
    """Write the counts and retained sets of some stays under one protocol, the counts last: they stand for both."""
    # One thread, since a sum's last bits depend on how the library splits it.
    with threadpool_limits(limits=1):
        frames = evaluate_stays(stays, rule, measured_channels(settings))
    counts, retained = parts(layout, step, bucket)
    curves = curves_path(layout, step, bucket)
    for path, frame in ((curves, frames.curves), (retained, frames.retained), (counts, frames.scores)):
        with written_whole(path) as beside:
            frame.write_parquet(beside, compression="zstd", statistics=False)


def protocol(settings: Settings) -> FixedContext:
    """The fixed-context protocol with the study's numbers."""
    return FixedContext(nu=settings.nu, sigma=settings.sigma, threshold=settings.support_threshold)


def parts(layout: RunLayout, step: str, bucket: int) -> tuple[Path, Path]:
    """Where one bucket's counts and retained sets wait to be put together."""
    generation = layout.generation(step)
    return generation / f"counts-{bucket_name(bucket)}.parquet", generation / f"retained-{bucket_name(bucket)}.parquet"


def curves_path(layout: RunLayout, step: str, bucket: int) -> Path:
    """Where one bucket's counts at several budgets wait to be put together."""
    return layout.generation(step) / f"curves-{bucket_name(bucket)}.parquet"
