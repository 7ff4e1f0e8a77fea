"""The summary: all buckets together as tables of counts, results, retained sets and memory states, published."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from evaluation import synthetic_tasks
from evaluation.curve_tables import curve_rows
from evaluation.retention import EVENT_CHANNELS, RetentionProtocol
from evaluation.retention_tables import contrast_rows, retention_rows
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import recorded_step, step_is_done
from flows.run.publish import publish_directory, write_json
from flows.settings import Settings
from flows.steps.evaluate import curves_path, measured_channels, parts, protocol
from flows.steps.memories import features_path
from flows.steps.opened import opened_manifest
from flows.steps.recall import RECALL, recall_path, recall_table
from flows.steps.stream import TALLY, protected_path, states_path, streamed, streaming_rows, tally_path
from flows.steps.wards import WARDS, ward_counts_path, ward_numbers, ward_path

SCHEMA_VERSION = 1
CURVES = "curves"

Tables = dict[str, list[dict[str, Any]]]
CountPart = Callable[[RunLayout, int], Path]


def summarise(layout: RunLayout, settings: Settings) -> None:
    """Write RUN/counts, RUN/results, RUN/retained and RUN/memories from the buckets' parts, unless they are there.

    Parts are copied rather than moved, so that a kill before the record keeps every finished bucket.
    """
    manifest = opened_manifest(layout)
    if step_is_done(layout, manifest, "evaluate"):
        return
    buckets: Sequence[int] = manifest.steps["cohort"]["buckets"]
    published = (layout.counts, layout.results, layout.retained, layout.memories)
    with recorded_step(layout, "evaluate", published) as facts:
        counts = _emptied(layout.generation(layout.counts.name))
        _gather_counts(layout, settings, buckets, counts)
        _gather_retained(layout, settings, buckets)
        _gather_memories(layout, settings, buckets)
        _gather_wards(layout, settings, counts)
        write_results(layout.cohort, counts, settings, _emptied(layout.generation(layout.results.name)))
        for part in published:
            publish_directory(layout.generation(part.name), part)
        facts.update(buckets=len(buckets))


def protocols(settings: Settings) -> dict[str, RetentionProtocol]:
    """The retention protocols of a study by the step that measures them."""
    rules: dict[str, RetentionProtocol] = {"evaluate": protocol(settings)}
    return rules | ({"stream": streamed(settings)} if "svdd" in settings.memories else {})


def write_results(cohort: Path, counts: Path, settings: Settings, out: Path) -> None:
    """Write one JSON table a file into `out`, from a cohort and its tables of counts alone."""
    for name, rows in result_tables(cohort, counts, settings).items():
        write_json(out / f"{name}.json", {"schema_version": SCHEMA_VERSION, "rows": rows})


def result_tables(cohort: Path, counts: Path, settings: Settings) -> Tables:
    """The result tables by name, each a function of RUN/cohort and RUN/counts alone.

    A deletion takes rows out of both and calls this again: what comes out is what a study without them would count.
    """
    tables: Tables = {}
    for made in RESULTS:
        tables |= made(cohort, counts, settings)
    return tables


def _retention(cohort: Path, counts: Path, settings: Settings) -> Tables:
    channels = measured_channels(settings)
    options: dict[str, Any] = {
        "unmeasured": _never_measured(cohort),
        "draws": settings.bootstrap_draws,
        "seed": settings.bootstrap_seed,
    }
    tables: Tables = {"retention": [], "contrasts": []}
    for rule in protocols(settings).values():
        scores = read_counts(counts, rule.name)
        with threadpool_limits(limits=1):
            tables["retention"] += retention_rows(scores, rule, channels, **options)
            tables["contrasts"] += contrast_rows(scores, rule, channels, **options)
    return tables


def _curves(cohort: Path, counts: Path, settings: Settings) -> Tables:
    options = {"draws": settings.bootstrap_draws, "seed": settings.bootstrap_seed}
    return {CURVES: curve_rows(read_counts(counts, CURVES), unmeasured=_never_measured(cohort), **options)}


def _streaming(cohort: Path, counts: Path, settings: Settings) -> Tables:
    del cohort
    if not settings.memories:
        return {}
    shared = [WARDS] if ward_numbers(settings) else []
    tallies = pl.concat([read_counts(counts, name) for name in (TALLY, *shared)])
    return {"streaming": streaming_rows([*settings.memories, *shared], settings, tallies)}


def _recall(cohort: Path, counts: Path, settings: Settings) -> Tables:
    if not settings.recall_events:
        return {}
    rows = recall_table(read_counts(counts, RECALL), settings, _never_measured(cohort))
    return {RECALL: rows, "tasks": synthetic_tasks.rows(seed=settings.seed)}


# Makers of result tables from (cohort, counts, settings): a further result is a further maker.
RESULTS: tuple[Callable[[Path, Path, Settings], Tables], ...] = (_retention, _curves, _streaming, _recall)


def count_parts(settings: Settings) -> dict[str, CountPart]:
    """Names of the tables of counts, and where each bucket's part waits: a further table is a further entry.

    Every table has columns stay_id and subject_id, so that a deletion can take rows out of any of them.
    """
    tables: dict[str, CountPart] = {rule.name: partial(_scores, step) for step, rule in protocols(settings).items()}
    tables[CURVES] = lambda layout, bucket: curves_path(layout, "evaluate", bucket)
    tables |= {TALLY: tally_path} if settings.memories else {}
    return tables | ({RECALL: recall_path} if settings.recall_events else {})


def read_counts(counts: Path, name: str) -> pl.DataFrame:
    """One table of counts over all buckets, in order of bucket."""
    files = sorted((counts / name).glob("*.parquet"), key=lambda file: (len(file.name), file.name))
    return pl.concat([pl.read_parquet(file) for file in files])


def _scores(step: str, layout: RunLayout, bucket: int) -> Path:
    return parts(layout, step, bucket)[0]


def _gather_counts(layout: RunLayout, settings: Settings, buckets: Iterable[int], out: Path) -> None:
    for name, part in count_parts(settings).items():
        (out / name).mkdir()
        for bucket in buckets:
            shutil.copyfile(part(layout, bucket), out / name / f"{bucket_name(bucket)}.parquet")


def _gather_wards(layout: RunLayout, settings: Settings, counts: Path) -> None:
    """Copy the wards and their counts; the counts of a ward are a file named by its number."""
    places = (counts / WARDS, layout.generation(layout.memories.name) / WARDS)
    for ward in ward_numbers(settings):
        for place in places:
            place.mkdir(exist_ok=True)
        shutil.copyfile(ward_counts_path(layout, ward), places[0] / f"{bucket_name(ward)}.parquet")
        shutil.copyfile(ward_path(layout, ward), places[1] / ward_path(layout, ward).name)


def _gather_retained(layout: RunLayout, settings: Settings, buckets: Iterable[int]) -> None:
    generation = _emptied(layout.generation(layout.retained.name))
    for bucket in buckets:
        files = [parts(layout, step, bucket)[1] for step in protocols(settings)]
        files += [protected_path(layout, bucket)] if settings.memories else []
        pl.concat([pl.read_parquet(file) for file in files]).write_parquet(
            generation / f"{bucket_name(bucket)}.parquet", compression="zstd", statistics=False
        )


def _gather_memories(layout: RunLayout, settings: Settings, buckets: Iterable[int]) -> None:
    generation = _emptied(layout.generation(layout.memories.name))
    if features_path(layout).exists():
        shutil.copyfile(features_path(layout), generation / features_path(layout).name)
    for name in settings.memories:
        (generation / name).mkdir()
        for bucket in buckets:
            shutil.copyfile(states_path(layout, name, bucket), generation / name / f"{bucket_name(bucket)}.safetensors")


def _emptied(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _never_measured(cohort: Path) -> list[str]:
    rows = json.loads((cohort / "coverage.json").read_text(encoding="utf-8"))
    return [row["channel"] for row in rows if row["channel"] in EVENT_CHANNELS and not row["measured_hours"]]
