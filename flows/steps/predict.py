"""Prediction as a step: a source in, one JSON table of what each model is worth on its test patients out."""

from __future__ import annotations

import csv
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from cohort_sql.build import build_cohort
from evaluation.prediction.hours import StayHours, stays_of
from evaluation.prediction.models import ROWS, predictions, sides
from evaluation.prediction.tables import table
from flows.errors import FlowError
from flows.progress import current_progress
from flows.run.layout import RunLayout
from flows.run.manifest import package_versions
from flows.run.publish import write_json
from flows.settings import Settings
from flows.steps.cohort import cohort_arguments, left_out
from flows.steps.preflight import locate_source

REFERENCE = "current margin"  # untrained: what every model has to be better than


def predict(source_name: str, out: Path, seeds: int, settings: Settings) -> dict[str, Any]:
    """Fit every row of the causal protocol, write the table to ``out`` and return it.

    Patients that the site has suppressed are left out. The table holds measures of models, no value and no id.
    Neither models nor predictions are kept. Raises FlowError for fewer than one seed.
    """
    if seeds < 1:
        raise FlowError(f"--seeds {seeds}: at least 1 is needed; leave it out for five")
    layout = RunLayout(out.absolute())
    layout.data_root.mkdir(parents=True, exist_ok=True)
    source = locate_source(source_name, layout, settings)
    with tempfile.TemporaryDirectory(prefix=".predict-", dir=layout.data_root) as place:
        cohort, scratch = Path(place) / "cohort", Path(place) / "scratch"
        scratch.mkdir()
        build_cohort(source, cohort, scratch=scratch, **cohort_arguments(settings), **left_out(source, settings))
        hourly = pl.read_parquet(cohort / "hourly" / "**" / "*.parquet")
        stays = stays_of(hourly, pl.read_parquet(cohort / "stays.parquet"))
    document = {
        "versions": package_versions(),
        "source": {"release": source.release, "simulated": source.simulated},
        "protocol": "causal",
        "reference": REFERENCE,
        "rows": _rows(stays, seeds, settings),
    }
    write_json(layout.root, document)
    return document


def _rows(stays: list[StayHours], seeds: int, settings: Settings) -> list[dict[str, Any]]:
    progress, names = current_progress(), list(ROWS)
    parts = sides(stays, event_limits())
    with threadpool_limits(limits=1):
        found = predictions(
            parts, names, seeds, tell=lambda name: progress.fraction("predict", names.index(name) / len(names))
        )
        rows = table(parts["test"].truth, parts["test"].patient, found, REFERENCE, settings.bootstrap_draws)
    progress.fraction("predict", 1.0)
    return rows


def event_limits() -> dict[str, tuple[float | None, float | None]]:
    """The thresholds of the events by channel: (below, above), None where there is none."""
    with (files("cohort_sql") / "events.csv").open(encoding="utf-8") as stream:
        return {row["channel"]: (_number(row["below"]), _number(row["above"])) for row in csv.DictReader(stream)}


def _number(text: str) -> float | None:
    return float(text) if text else None
