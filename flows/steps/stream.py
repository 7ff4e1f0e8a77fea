"""The streaming step: every stay hour by hour through memories of its own, one bucket of patients at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from evaluation.protocol_streamed import Streamed
from evaluation.retention import CHANNELS, RETAINED_SCHEMA, StayTokens
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import step_is_done
from flows.run.publish import written_whole
from flows.run.states import write_states
from flows.settings import Settings
from flows.steps.evaluate import measure_stays, read_bucket
from flows.steps.memories import HELD_OUT, MEMORIES, StreamedStay, fit_features, read_features
from flows.steps.opened import opened_manifest

Floats = np.ndarray[Any, np.dtype[np.float64]]

DECLARED = {"svdd": "declared_hours", "wards": "ward_hours"}  # the setting that holds n0, by support-vector memory
TALLY = "stream"  # the name of the memories' table of counts
# One row per stay, memory and quantity; quantities of kind "worst" are told by their largest, counts by their sum.
STREAM_SCHEMA: Mapping[str, Any] = {
    "stay_id": pl.Int64,
    "subject_id": pl.Int64,
    "memory": pl.String,
    "kind": pl.String,
    "quantity": pl.String,
    "value": pl.Float64,
}


def streamed(settings: Settings) -> Streamed:
    """The streamed protocol with the study's numbers."""
    return Streamed(settings.declared_hours, nu=settings.nu, sigma=settings.sigma, seed=settings.seed)


def prepare(layout: RunLayout, settings: Settings) -> None:
    """What all buckets share: the features of the matrix memories."""
    if not step_is_done(layout, opened_manifest(layout), "evaluate"):
        fit_features(layout, settings)


def stream_bucket(layout: RunLayout, settings: Settings, bucket: int) -> int:
    """Write one bucket's states, counts and retained sets, unless they are there; returns its stay-hours.

    The counts of the memories are written last, so that they stand for the others.
    """
    hourly, stays = read_bucket(layout, bucket)
    if step_is_done(layout, opened_manifest(layout), "evaluate") or tally_path(layout, bucket).exists():
        return hourly.height
    vitals, features = values_by_stay(hourly), read_features(layout)
    frames, kept = [], []
    for name in settings.memories:
        with threadpool_limits(limits=1):
            ends = [MEMORIES[name](stay, vitals[stay.stay_id], settings, features) for stay in stays]
        ended = list(zip(stays, ends, strict=True))
        write_states(states_path(layout, name, bucket), {str(stay.stay_id): end.state for stay, end in ended})
        frames += [tally(name, stay, end) for stay, end in ended]
        kept += [_protected(name, stay, end, settings) for stay, end in ended if end.kept is not None]
    if "svdd" in settings.memories:
        measure_stays(layout, settings, stays, streamed(settings), "stream", bucket)
    _write(protected_path(layout, bucket), pl.DataFrame(kept, RETAINED_SCHEMA))
    _write(tally_path(layout, bucket), pl.concat([pl.DataFrame(schema=STREAM_SCHEMA), *frames]))
    return hourly.height


def states_path(layout: RunLayout, memory: str, bucket: int) -> Path:
    """Where one bucket's states of one memory wait to be published."""
    return layout.generation("stream") / f"{memory}-{bucket_name(bucket)}.safetensors"


def protected_path(layout: RunLayout, bucket: int) -> Path:
    """Where one bucket's protected hours wait to be put with the retained sets."""
    return layout.generation("stream") / f"protected-{bucket_name(bucket)}.parquet"


def tally_path(layout: RunLayout, bucket: int) -> Path:
    """Where one bucket's counts of the memories wait to be published."""
    return layout.generation("stream") / f"tally-{bucket_name(bucket)}.parquet"


def values_by_stay(hourly: pl.DataFrame) -> dict[int, Floats]:
    """The vitals of every stay in their own units, (hours, 6) each, by stay id."""
    parts = hourly.sort("stay_id", "hour").partition_by("stay_id", maintain_order=True)
    return {part["stay_id"][0]: part.select(CHANNELS).to_numpy().astype(np.float64) for part in parts}


def tally(memory: str, stay: StayTokens, end: StreamedStay) -> pl.DataFrame:
    """One stay's counts and worst measures of one memory as rows of STREAM_SCHEMA."""
    kinds = {"count": {"tokens": len(stay.hours), **end.counts}, "worst": end.worst}
    return pl.DataFrame(
        [
            (stay.stay_id, stay.patient, memory, kind, quantity, float(value))
            for kind, quantities in kinds.items()
            for quantity, value in sorted(quantities.items())
        ],
        STREAM_SCHEMA,
        orient="row",
    )


def streaming_rows(memories: Iterable[str], settings: Settings, tallies: pl.DataFrame) -> list[dict[str, Any]]:
    """The counts of all stays as one flat row a memory, in the order given."""
    return [_streaming_row(settings, name, tallies.filter(pl.col("memory") == name)) for name in memories]


def _streaming_row(settings: Settings, memory: str, own: pl.DataFrame) -> dict[str, Any]:
    """`bound` is relative to the range of the score where that is below 1; it is None where nothing is certified."""
    totals = own.group_by("kind", "quantity").agg(total=pl.col("value").sum(), worst=pl.col("value").max())
    found: dict[str, Any] = {}
    for kind, quantity, total, worst in totals.sort("kind", "quantity").iter_rows():
        found[quantity] = int(total) if kind == "count" else worst
    row = {"memory": memory, "stays": own["stay_id"].n_unique(), "patients": own["subject_id"].n_unique()}
    if memory not in DECLARED:
        return row | found
    hours = getattr(settings, DECLARED[memory])
    declared = {"cap": 1.0 / (settings.nu * hours), "declared_hours": hours, "bound": None}
    return row | declared | ({"wards": settings.wards} if memory == "wards" else {}) | found


def _protected(memory: str, stay: StayTokens, end: StreamedStay, settings: Settings) -> dict[str, Any]:
    """The hours a memory protects at the end of a stay, as a retained set."""
    channel = settings.held_out or HELD_OUT
    named = {"protocol": Streamed.name, "stay_id": stay.stay_id, "channel": channel, "policy": memory}
    return named | {"hours": end.kept}


def _write(path: Path, frame: pl.DataFrame) -> None:
    with written_whole(path) as beside:
        frame.write_parquet(beside, compression="zstd", statistics=False)
