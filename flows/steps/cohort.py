"""The cohort step: source files in, hourly tokens out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cohort_sql.build import CohortResult, build_cohort
from cohort_sql.source import Source, Suppressed, find_source
from flows.errors import FlowError
from flows.progress import current_progress
from flows.run.layout import RunLayout
from flows.run.manifest import recorded_step, step_is_done
from flows.run.publish import publish_directory
from flows.settings import Settings
from flows.steps.opened import opened_manifest
from flows.steps.site import suppressed_of

NOBODY = Suppressed()


def cohort_arguments(settings: Settings) -> dict[str, Any]:
    """The settings as the arguments of the cohort builder."""
    return {
        "preset": settings.preset,
        "stays": settings.stays,
        "seed": settings.seed,
        "buckets": settings.buckets,
        "threads": settings.threads,
        "memory_limit": settings.memory_limit,
    }


def left_out(source: Source, settings: Settings, leaving: Suppressed = NOBODY) -> dict[str, Any]:
    """Who the site has suppressed and who is leaving, as the arguments of the cohort builder."""
    suppressed = suppressed_of(source, settings)
    return {
        "suppressed": suppressed.stays | leaving.stays,
        "suppressed_subjects": suppressed.subjects | leaving.subjects,
    }


def scratch(layout: RunLayout) -> Path:
    """Where DuckDB spills and keeps the ingested readings, until the study is finished; made where absent."""
    place = layout.generation("scratch")
    place.mkdir(parents=True, exist_ok=True)
    return place


def refuse_without_events(result: CohortResult, settings: Settings) -> None:
    """Raise FlowError when no hour of the cohort crosses a threshold, since retention is then not defined."""
    events = {row["channel"]: row["event_hours"] for row in result.coverage if row["event_hours"]}
    if settings.held_out is not None and settings.held_out not in events:
        raise FlowError(f"cohort: no {settings.held_out} event hour in {result.stays} stays; choose another --held-out")
    if not events:
        raise FlowError(
            f"cohort: no event hour in {result.stays} stays and {result.tokens} hours, so retention is not defined; "
            "give more stays or another source"
        )


def build(layout: RunLayout, settings: Settings, leaving: Suppressed = NOBODY) -> list[int]:
    """Build and publish RUN/cohort unless it is there already; returns the buckets that hold stays.

    Patients whom the site has suppressed, and those who are leaving, are as if the source had never held them.  Raises
    the cohort's own refusals.
    """
    manifest = opened_manifest(layout)
    if step_is_done(layout, manifest, "cohort"):
        return list(manifest.steps["cohort"]["buckets"])
    generation = layout.generation("cohort")
    source = find_source(Path(manifest.source["path"]))
    progress = current_progress()
    with recorded_step(layout, "cohort", [layout.cohort]) as facts:
        result = build_cohort(
            source,
            generation,
            scratch=scratch(layout),
            progress=progress.fraction,
            **cohort_arguments(settings),
            **left_out(source, settings, leaving),
        )
        refuse_without_events(result, settings)
        publish_directory(generation, layout.cohort)
        facts.update(stays=result.stays, patients=result.patients, tokens=result.tokens, queries=result.queries)
        facts.update(buckets=list(result.buckets))
    return list(result.buckets)
