"""Where every source row, stay and patient went: the numbers of the cohort-flow figure, which add up exactly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cohort_sql.errors import CohortError

# The order in which stays are left out. A patient without a used stay has the reason of the stay that got furthest.
STAY_REASONS = (
    "patient_minor",
    "stay_minor",
    "los_missing",
    "los_under_2_days",
    "intime_missing",
    "age_unknown",
    "outtime_missing",
    "outtime_not_after_intime",
    "death_not_after_intime",
    "not_drawn",
    "no_vitals",
    "under_48_hours",
)


def balance(source: int, used: int, left_out: Mapping[str, int]) -> dict[str, Any]:
    """Return {"source", "used", "left_out"} without zeros; raises CohortError unless it adds up."""
    reasons = {reason: int(count) for reason, count in sorted(left_out.items()) if count}
    if used + sum(reasons.values()) != source:
        raise CohortError(
            f"attrition: {source:,} in the source, but {used:,} used and {sum(reasons.values()):,} left out; "
            "this is a fault of the program, please report it"
        )
    return {"source": int(source), "used": int(used), "left_out": reasons}


def stay_level(outcomes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the balances of stays and patients from rows of (subject_id, reason); reason None means used."""
    stays: dict[str | None, int] = {}
    furthest: dict[Any, str | None] = {}
    for row in outcomes:
        reason = row["reason"]
        stays[reason] = stays.get(reason, 0) + 1
        patient = row["subject_id"]
        if patient not in furthest or _rank(reason) > _rank(furthest[patient]):
            furthest[patient] = reason
    patients: dict[str | None, int] = {}
    for reason in furthest.values():
        patients[reason] = patients.get(reason, 0) + 1
    return {"stays": _from_counts(stays), "patients": _from_counts(patients)}


def _rank(reason: str | None) -> int:
    return len(STAY_REASONS) if reason is None else STAY_REASONS.index(reason)


def _from_counts(counts: Mapping[str | None, int]) -> dict[str, Any]:
    left_out = {reason: count for reason, count in counts.items() if reason is not None}
    return balance(sum(counts.values()), counts.get(None, 0), left_out)


def against_release(releases: Iterable[Mapping[str, Any]], stays: int, rows: int) -> dict[str, Any] | None:
    """Return observed beside expected counts of the release that has this many stays, or None if none is known to."""
    for release in releases:
        if stays == release["stays"]:
            return {
                "release": release["release"],
                "stays": {"observed": stays, "expected": release["stays"]},
                "rows": {"observed": rows, "expected": release["rows"]},
            }
    return None
