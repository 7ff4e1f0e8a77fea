"""The summary: all buckets together as result tables, retained sets and memory states, published."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from evaluation.retention import EVENT_CHANNELS, RetentionProtocol
from evaluation.retention_tables import contrast_rows, retention_rows
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import recorded_step, step_is_done
from flows.run.publish import publish_directory, write_json
from flows.settings import Settings
from flows.steps.evaluate import measured_channels, parts, protocol
from flows.steps.opened import opened_manifest
from flows.steps.stream import streamed, streaming_row

SCHEMA_VERSION = 1


def summarise(layout: RunLayout, settings: Settings) -> None:
    """Write RUN/results, RUN/retained and RUN/memories from the buckets' parts, unless they are there already.

    Parts are copied rather than moved, so that a kill before the record keeps every finished bucket.
    """
    manifest = opened_manifest(layout)
    if step_is_done(layout, manifest, "evaluate"):
        return
    buckets: Sequence[int] = manifest.steps["cohort"]["buckets"]
    with recorded_step(layout, "evaluate", [layout.results, layout.retained, layout.memories]) as facts:
        _write_tables(layout, settings, buckets)
        _gather_retained(layout, settings, buckets)
        _gather_memories(layout, settings, buckets)
        for part in (layout.results, layout.retained, layout.memories):
            publish_directory(layout.generation(part.name), part)
        facts.update(buckets=len(buckets))


def protocols(settings: Settings) -> dict[str, RetentionProtocol]:
    """The retention protocols of a study by the step that measures them."""
    rules: dict[str, RetentionProtocol] = {"evaluate": protocol(settings)}
    return rules | ({"stream": streamed(settings)} if "svdd" in settings.memories else {})


def _write_tables(layout: RunLayout, settings: Settings, buckets: Sequence[int]) -> None:
    generation = _emptied(layout.generation("results"))
    channels = measured_channels(settings)
    options: dict[str, Any] = {
        "unmeasured": _never_measured(layout),
        "draws": settings.bootstrap_draws,
        "seed": settings.bootstrap_seed,
    }
    tables: dict[str, list[dict[str, Any]]] = {"retention": [], "contrasts": []}
    for step, rule in protocols(settings).items():
        counts = pl.concat([pl.read_parquet(parts(layout, step, bucket)[0]) for bucket in buckets])
        with threadpool_limits(limits=1):
            tables["retention"] += retention_rows(counts, rule, channels, **options)
            tables["contrasts"] += contrast_rows(counts, rule, channels, **options)
    if "svdd" in settings.memories:
        tallies = [_read(layout.generation("stream") / f"tally-{bucket_name(bucket)}.json") for bucket in buckets]
        tables["streaming"] = [streaming_row(settings, tallies)]
    for name, rows in tables.items():
        write_json(generation / f"{name}.json", {"schema_version": SCHEMA_VERSION, "rows": rows})


def _gather_retained(layout: RunLayout, settings: Settings, buckets: Sequence[int]) -> None:
    generation = _emptied(layout.generation("retained"))
    for bucket in buckets:
        frames = [pl.read_parquet(parts(layout, step, bucket)[1]) for step in protocols(settings)]
        pl.concat(frames).write_parquet(
            generation / f"{bucket_name(bucket)}.parquet", compression="zstd", statistics=False
        )


def _gather_memories(layout: RunLayout, settings: Settings, buckets: Sequence[int]) -> None:
    generation = _emptied(layout.generation("memories"))
    if "svdd" not in settings.memories:
        return
    (generation / "svdd").mkdir()
    for bucket in buckets:
        name = f"{bucket_name(bucket)}.safetensors"
        shutil.copyfile(layout.generation("stream") / name, generation / "svdd" / name)


def _emptied(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _never_measured(layout: RunLayout) -> list[str]:
    rows = _read(layout.cohort / "coverage.json")
    return [row["channel"] for row in rows if row["channel"] in EVENT_CHANNELS and not row["measured_hours"]]


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
