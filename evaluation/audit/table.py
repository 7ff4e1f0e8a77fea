"""Trials as flat rows, one per regime and way of building, with the published row beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from evaluation.audit.regimes import Regime
from evaluation.audit.trial import Measured, Trial
from evaluation.published import AUDIT_PUBLISHED, PublishedAudit

PATHS = ("reserve", "walk", "repaired", "resolved")
Row = dict[str, Any]


def summarise(regime: Regime, built: str, trials: Sequence[Trial]) -> Row:
    """Return the row of one regime and way of building; statistics cover completed trials, None without any."""
    measured = [trial.measured for trial in trials if trial.measured is not None]
    failed = [trial for trial in trials if trial.measured is None]
    return {
        "regime": regime.name,
        "title": regime.title,
        "built": built,
        "attempted": len(trials),
        "completed": len(measured),
        "failures": dict(sorted(Counter(trial.reason for trial in failed).items())),
        "failed_trials": [trial.number for trial in failed],
        "target": regime.target,
        **_errors(regime, trials),
        **_states(measured),
        **_certificates(measured),
        **_times(measured),
        **_published(AUDIT_PUBLISHED.get(regime.name)),
    }


def _errors(regime: Regime, trials: Sequence[Trial]) -> Row:
    done = {trial.number: trial.measured for trial in trials if trial.measured is not None}
    errors = {number: measured.error for number, measured in done.items()}
    return {
        "within_target": sum(error <= regime.target for error in errors.values()),
        "error_median": _median(list(errors.values())),
        "error_mean": float(np.mean(list(errors.values()))) if errors else None,
        "error_worst": max(errors.values(), default=None),
        "worst_trial": max(errors, key=lambda number: errors[number], default=None),
        "absolute_median": _median([m.absolute for m in done.values()]),
        "absolute_mean": float(np.mean([m.absolute for m in done.values()])) if done else None,
        "absolute_worst": max((m.absolute for m in done.values()), default=None),
        "admission_error_worst": max((m.admission_error for m in done.values()), default=None),
        "decay_median": _median([m.decay for m in done.values()]),
    }


def _states(measured: Sequence[Measured]) -> Row:
    paths = Counter(m.path for m in measured)
    return {
        **{f"path_{path}": paths[path] for path in PATHS},
        "active_removed": sum(m.active_removed for m in measured),
        "margin_empty": sum(m.margin_empty for m in measured),
        "partition_agreement": float(np.mean([m.agreed for m in measured])) if measured else None,
    }


def _certificates(measured: Sequence[Measured]) -> Row:
    kinds = Counter(m.bound_kind for m in measured)
    return {
        "covered": sum(m.covered for m in measured),
        "score_bound_median": _median([m.score_bound for m in measured]),
        "duality_gap_median": _median([m.duality_gap for m in measured]),
        "kkt_residual_median": _median([m.kkt_residual for m in measured]),
        "mass_error_median": _median([m.mass_error for m in measured]),
        **{f"bound_{kind}": kinds[kind] for kind in ("A", "B")},
    }


def _times(measured: Sequence[Measured]) -> Row:
    return {
        "delete_seconds_median": _median([m.delete_seconds for m in measured]),
        "fit_seconds_median": _median([m.fit_seconds for m in measured]),
        "fit_to_delete_ratio_median": _median([m.fit_seconds / m.delete_seconds for m in measured]),
    }


def _published(row: PublishedAudit | None) -> Row:
    return {
        "published_attempted": row and row.attempted,
        "published_completed": row and row.completed,
        "published_partition_agreement": row and row.partition_agreement,
        "published_error_median": row and row.error_median,
        "published_error_mean": row and row.error_mean,
        "published_error_worst": row and row.error_worst,
        "published_decay_median": row and row.decay_median,
    }


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None
