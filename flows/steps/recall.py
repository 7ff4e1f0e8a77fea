"""The recall step: what every memory reads back of event hours, one bucket of patients at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from evaluation.net_recall import COUNTS_SCHEMA, RecallPlan, fit_recall_features, recall_counts
from evaluation.recall_tables import recall_rows
from evaluation.retention import CHANNELS
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import step_is_done
from flows.run.publish import written_whole
from flows.run.states import read_states, write_states
from flows.settings import Settings
from flows.steps.evaluate import read_bucket
from flows.steps.memories import HELD_OUT
from flows.steps.opened import opened_manifest
from memory.contract import MemoryRefused
from memory.features import VitalFeatures

RECALL = "recall"


def recall_plan(settings: Settings) -> RecallPlan:
    """What a study asks of every stay."""
    return RecallPlan(
        channel=settings.held_out or HELD_OUT,
        events=settings.recall_events,
        directions=settings.directions,
        nu=settings.nu,
        sigma=settings.sigma,
        declared_hours=settings.declared_hours,
        alpha=settings.nc01_alpha,
        novelty_width=settings.nc01_novelty_width,
        seed=settings.seed,
    )


def prepare_recall(layout: RunLayout, settings: Settings) -> None:
    """Fit the features of the matrix memories on the hours of training patients, unless they are there.

    Training hours that cannot be fitted (none, or all alike) leave an empty file: net recall then is not defined.
    """
    path = _features_path(layout)
    if path.exists() or step_is_done(layout, opened_manifest(layout), "evaluate"):
        return
    columns = [f"{channel}_z" for channel in CHANNELS]
    train = pl.scan_parquet(layout.cohort / "stays.parquet").filter(pl.col("split") == "train").select("stay_id")
    hours = pl.scan_parquet(layout.cohort / "hourly" / "*" / "*.parquet").select("stay_id", "hour", *columns)
    rows = hours.join(train, on="stay_id", how="semi").sort("stay_id", "hour").collect()
    try:
        keys, clock = rows.select(columns).to_numpy(), rows["hour"].to_numpy()
        fitted = fit_recall_features(keys, clock, recall_plan(settings))
    except MemoryRefused:
        fitted = {}
    write_states(path, {str(width): features.to_state() for width, features in fitted.items()})


def recall_bucket(layout: RunLayout, settings: Settings, bucket: int) -> int:
    """Write one bucket's counts of net recall, unless they are there already; returns its stay-hours."""
    hourly, stays = read_bucket(layout, bucket)
    path = recall_path(layout, bucket)
    if step_is_done(layout, opened_manifest(layout), "evaluate") or path.exists():
        return hourly.height
    states = read_states(_features_path(layout))
    features = {int(width): VitalFeatures.from_state(state) for width, state in states.items()}
    # One thread, since a sum's last bits depend on how the library splits it.
    with threadpool_limits(limits=1):
        counts = (
            recall_counts(stays, recall_plan(settings), features) if features else pl.DataFrame(schema=COUNTS_SCHEMA)
        )
    with written_whole(path) as beside:
        counts.write_parquet(beside, compression="zstd", statistics=False)
    return hourly.height


def recall_path(layout: RunLayout, bucket: int) -> Path:
    """Where one bucket's counts wait to be published."""
    return layout.generation(RECALL) / f"recall-{bucket_name(bucket)}.parquet"


def recall_table(counts: pl.DataFrame, settings: Settings, unmeasured: list[str]) -> list[dict[str, Any]]:
    """The rows of RUN/results/recall.json from the counts of all buckets."""
    options = {"draws": settings.bootstrap_draws, "seed": settings.bootstrap_seed}
    with threadpool_limits(limits=1):
        return recall_rows(counts, recall_plan(settings), unmeasured=tuple(unmeasured), **options)


def _features_path(layout: RunLayout) -> Path:
    return layout.generation(RECALL) / "features.safetensors"
