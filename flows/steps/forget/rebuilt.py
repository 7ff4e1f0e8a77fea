"""The whole study again, from a source that never held the deleted: the next generation under `--restandardise`."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from cohort_sql.source import SourceError, Suppressed, find_source, source_stays
from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.run.manifest import write_manifest
from flows.settings import Settings
from flows.steps import cohort, evaluate, recall, stream, summarise, wards
from flows.steps.forget.plan import Plan
from flows.steps.opened import opened_manifest, opened_settings
from flows.steps.preflight import same_source, source_facts


def rebuild(layout: RunLayout, made: RunLayout, plan: Plan) -> None:
    """Do every step of a run's study in the empty directory `made`, leaving out whom the plan names.

    The result has the bytes of a study of a source without them: standardisation, medians, features and attrition are
    fitted again.  Raises FlowError where the source is not there any more or is another one.
    """
    manifest, settings = opened_manifest(layout), opened_settings(layout)
    place = Path(manifest.source["path"])
    try:
        source = find_source(place)
    except SourceError:
        raise FlowError(
            f"--restandardise: the source of run {layout.root} is not at {place} any more; put it back, or delete "
            "without --restandardise"
        ) from None
    if not same_source(source_facts(source), manifest.source):
        raise FlowError(
            f"--restandardise: the source at {place} is not the one run {layout.root} was made from; put that back, or "
            "delete without --restandardise"
        )
    write_manifest(made, replace(manifest, steps={}))
    subjects, stays = source_stays(source)
    leaving = stays[np.isin(subjects, plan.subjects) | np.isin(stays, plan.stays)]
    all_steps(made, settings, Suppressed(frozenset(leaving.tolist()), frozenset(plan.subjects)))
    shutil.rmtree(made.generations)


def all_steps(made: RunLayout, settings: Settings, leaving: Suppressed = cohort.NOBODY) -> None:
    """Every step of a study but the report, one after another in this process, without the orchestrator."""
    buckets = cohort.build(made, settings, leaving)
    stream.prepare(made, settings)
    if settings.recall_events:
        recall.prepare_recall(made, settings)
    for bucket in buckets:
        evaluate.measure_bucket(made, settings, bucket)
        if settings.memories:
            stream.stream_bucket(made, settings, bucket)
        if settings.recall_events:
            recall.recall_bucket(made, settings, bucket)
    for ward in wards.ward_numbers(settings):
        wards.make_ward(made, settings, ward)
    summarise.summarise(made, settings)
