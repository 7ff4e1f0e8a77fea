"""The deletion audit as a step: real or invented stays in, one JSON table out."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from cohort_sql.build import build_cohort
from cohort_sql.source import Source
from evaluation.audit import REGIMES, run_audit, run_tamper
from evaluation.retention import StayTokens, stays_from_bucket
from flows.progress import current_progress
from flows.run.layout import RunLayout
from flows.run.manifest import package_versions
from flows.run.publish import write_json
from flows.settings import Settings
from flows.steps.cohort import cohort_arguments, left_out
from flows.steps.preflight import locate_source
from memory.svdd import SVDDMemory


def audit(source_name: str, out: Path, regimes: Sequence[str], settings: Settings) -> dict[str, Any]:
    """Audit deletion in the named regimes ("all" for every one), write the table to ``out`` and return it.

    A source is read only when a regime cuts its cases out of real stays.  The table holds counts, errors and times of
    trials, no value and no id; the times differ from one machine to another.
    """
    layout = RunLayout(out.absolute())
    layout.data_root.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"versions": package_versions()}
    vitals: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    if any(name == "all" or (name in REGIMES and REGIMES[name].needs_vitals) for name in regimes):
        source = locate_source(source_name, layout, settings)
        document["source"] = {"release": source.release, "simulated": source.simulated}
        vitals = [stay.keys for stay in cohort_tokens(source, settings, layout.data_root)]
    progress = current_progress()
    with threadpool_limits(limits=1):
        table = run_audit(regimes, settings.audit_trials, settings.seed, vitals, progress.fraction)
        tamper = run_tamper(settings.audit_trials, settings.seed, SVDDMemory)
    document |= table | {"tamper": tamper}
    write_json(layout.root, document)
    return document


def cohort_tokens(source: Source, settings: Settings, data_root: Path) -> list[StayTokens]:
    """The stays of a source, by stay id, from a cohort that is built beside ``data_root``'s runs and dropped."""
    with tempfile.TemporaryDirectory(prefix=".audit-", dir=data_root) as place:
        cohort, scratch = Path(place) / "cohort", Path(place) / "scratch"
        scratch.mkdir()
        build_cohort(source, cohort, scratch=scratch, **cohort_arguments(settings), **left_out(source, settings))
        hourly = pl.read_parquet(cohort / "hourly" / "**" / "*.parquet")
        return stays_from_bucket(hourly, pl.read_parquet(cohort / "stays.parquet"))
