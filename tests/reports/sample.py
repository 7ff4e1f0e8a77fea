"""A realistic study for the report: every section filled, a small cell, a number that is not defined, both protocols.

The fixed-context composite and SpO2 figures are those of the open demo; the others are invented and stand for nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any

POLICIES = ("svdd", "least-dense", "density", "recency", "random")
# channel: stays, patients, measured share, retention per policy
FIXED: dict[str, tuple[int, int, float, tuple[float, ...]]] = {
    "composite": (64, 61, 0.742, (0.688, 0.717, 0.092, 0.392, 0.323)),
    "hr": (31, 30, 0.981, (0.552, 0.561, 0.141, 0.344, 0.318)),
    "sbp": (52, 50, 0.873, (0.611, 0.604, 0.118, 0.371, 0.327)),
    "rr": (44, 43, 0.958, (0.583, 0.597, 0.127, 0.405, 0.331)),
    "spo2": (40, 39, 0.934, (0.497, 0.581, 0.178, 0.529, 0.302)),
    "temp": (7, 7, 0.218, (0.403, 0.388, 0.266, 0.377, 0.329)),
}
INTERVALS = {"composite": 0.055, "hr": 0.094, "sbp": 0.067, "rr": 0.079, "spo2": 0.112, "temp": 0.21}
CONTRASTS = {
    ("composite", "least-dense"): (-0.029, 0.023),
    ("spo2", "least-dense"): (-0.084, 0.064),
    ("spo2", "density"): (0.319, 0.174),
}


def retention_rows(protocol: str = "fixed-context", shift: float = 0.0, budget: float = 0.3226) -> list[dict[str, Any]]:
    """Rows as in RUN/results/retention.json."""
    rows = []
    for channel, (stays, patients, share, values) in FIXED.items():
        for policy, value in zip(POLICIES, values, strict=True):
            for events in ("all", "measured"):
                level = value + shift + (0.0 if events == "all" else 0.021 * (-1) ** len(policy))
                half = INTERVALS[channel] * (1.0 if events == "all" else 1.2)
                rows.append(
                    {
                        "protocol": protocol,
                        "channel": channel,
                        "policy": policy,
                        "retention": level,
                        "retrieval": min(level + 0.068, 1.0),
                        "budget": budget,
                        "stays": stays,
                        "patients": patients,
                        "events": events,
                        "measured_share": share,
                        "low": max(level - half, 0.0),
                        "high": min(level + half, 1.0),
                    }
                )
    empty = [row for row in rows if row["channel"] == "hr" and row["events"] == "measured" and protocol == "streamed"]
    for row in empty:
        row.update(retention=None, retrieval=None, low=None, high=None, stays=0, patients=0)
    return rows


def contrast_rows(protocol: str = "fixed-context") -> list[dict[str, Any]]:
    """Rows as in RUN/results/contrasts.json."""
    rows = []
    for channel, (stays, patients, _, values) in FIXED.items():
        for right in ("density", "least-dense", "recency"):
            mean, half = CONTRASTS.get(
                (channel, right), (values[0] - values[POLICIES.index(right)], INTERVALS[channel] * 0.9)
            )
            for unit, groups, wider in (("stay", stays, 1.0), ("patient", patients, 1.06)):
                rows.append(
                    {
                        "protocol": protocol,
                        "channel": channel,
                        "left": "svdd",
                        "right": right,
                        "unit": unit,
                        "mean": mean,
                        "low": mean - half * wider,
                        "high": mean + half * wider,
                        "groups": groups,
                    }
                )
    return rows


def coverage_rows() -> list[dict[str, Any]]:
    """Rows as in RUN/cohort/coverage.json."""
    measured = {"hr": 11_901, "sbp": 11_388, "dbp": 11_380, "rr": 11_790, "spo2": 11_544, "temp": 3_402}
    events = {"hr": 402, "sbp": 1_104, "rr": 871, "spo2": 296, "temp": 118}
    return [
        {
            "channel": channel,
            "hours": 12_273,
            "measured_hours": hours,
            "measured_share": hours / 12_273,
            "event_hours": events.get(channel),
            "measured_event_hours": round(events[channel] * 0.9) if channel in events else None,
            "stays_without": 3 if channel == "temp" else 0,
        }
        for channel, hours in measured.items()
    ]


def published_rows() -> list[dict[str, Any]]:
    """Rows as evaluation hands them over."""
    cohort = "MIMIC-IV v3.1, 1,465 stays"
    source = "SV-Attention, arXiv 2607.12204"
    common = {"source": source, "cohort": cohort, "protocol": "fixed-context"}
    composite = {"svdd": 0.80, "density": 0.05, "random": 0.34, "recency": 0.30}
    spo2 = {"svdd": 0.4644, "density": 0.2254, "recency": 0.4088, "random": 0.3326}
    rows = [
        {**common, "channel": "composite", "policy": p, "value": v, "stays": 1_329, "budget": 0.33}
        for p, v in composite.items()
    ]
    rows += [
        {**common, "channel": "spo2", "policy": p, "value": v, "stays": 718, "budget": 0.3226} for p, v in spo2.items()
    ]
    difference = {
        "policy": "svdd",
        "right": "density",
        "unit": "stay",
        "value": 0.2390,
        "low": 0.1944,
        "high": 0.2835,
        "groups": 718,
    }
    return [*rows, {**common, "channel": "spo2", **difference}]


def audit_rows() -> list[dict[str, Any]]:
    """Rows as `evaluation.audit` writes them; the published columns are those of the paper."""
    published = {
        "published_attempted": 300,
        "published_completed": 299,
        "published_partition_agreement": 0.98,
        "published_error_median": 1.6e-9,
        "published_error_mean": 5.6e-5,
        "published_error_worst": 1.1e-2,
        "published_decay_median": 1.5e-1,
    }
    worst = {"Gaussian": 3.1e-15, "Hourly vitals, deduplicated": 8.4e-14, "Forward-filled": 2.2e-12}
    rows = [{"regime": title.lower(), "title": title, **_audit_row(error)} for title, error in worst.items()]
    rows[1] |= published
    rows[2] |= {"completed": 299, "failures": {"not ready": 1}, "within_target": 299, "covered": 299}
    return rows


def _audit_row(worst: float) -> dict[str, Any]:
    return {
        "built": "admission",
        "attempted": 300,
        "completed": 300,
        "target": 1e-9,
        "within_target": 300,
        "error_worst": worst * 3,
        "absolute_median": worst / 40,
        "absolute_mean": worst / 15,
        "absolute_worst": worst,
        "partition_agreement": 0.997,
        "decay_median": 0.083,
        "covered": 300,
        "path_walk": 288,
        "path_reserve": 12,
    }


def attrition() -> dict[str, Any]:
    """Three levels that add up, with small cells in two of them."""
    return {
        "rows": {
            "source": 668_862,
            "used": 98_411,
            "left_out": {
                "other_item": 541_270,
                "stay_los_under_2_days": 27_911,
                "no_number": 842,
                "implausible_hr": 417,
                "before_intime": 8,
                "charted after the last hour of a stay that was closed": 3,
            },
        },
        "stays": {
            "source": 140,
            "used": 68,
            "left_out": {
                "los_under_2_days": 65,
                "under_48_hours": 7,
                "no_vitals": 0,
            },
        },
        "patients": {"source": 100, "used": 65, "left_out": {"los_under_2_days": 35}},
    }


def study(*, simulated: bool = False, show_records: bool = False) -> dict[str, Any]:
    """The whole input."""
    names = ("attrition.sql", "grid.sql", "hourly.sql", "readings.sql", "standardise.sql", "stays.sql")
    return {
        "title": "What an exact memory keeps of an ICU stay",
        "simulated": simulated,
        "source": {"release": "MIMIC-IV demo layout (2.2)", "observed_rows": 668_862, "expected_rows": 668_862},
        "settings": {
            "preset": "paper",
            "seed": 0,
            "stays": 1500,
            "svdd": {"nu": 0.3, "sigma": 3.0},
            "bootstrap": {"draws": 10_000, "seed": 0},
            "buckets": 16,
        },
        "versions": {
            "icu-stream-memory": "0.1.0",
            "python": "3.11.7",
            "duckdb": "2.0.1",
            "numpy": "2.3.5",
            "polars": "2.1.0",
            "torch": "2.13.0",
        },
        "queries": {name: hashlib.sha256(name.encode()).hexdigest() for name in names},
        "attrition": attrition(),
        "coverage": coverage_rows(),
        "retention": retention_rows() + retention_rows("streamed", -0.06, 0.241),
        "contrasts": contrast_rows() + contrast_rows("streamed"),
        "published": published_rows(),
        "audit": audit_rows(),
        "streaming": {
            "stays": 68,
            "patients": 65,
            "tokens": 12_273,
            "retained": 2_958,
            "score_bound": 3.4e-11,
            "capacity": "48 declared hours, nu 0.3, sigma 3",
            "paths": {"reserve": 8_122, "walk": 4_140, "repaired": 11},
        },
        "memories": [
            {
                "name": "nc01",
                "deletion": "bit-identical to the replay of the retained hours",
                "stays": 68,
                "patients": 65,
                "tokens": 12_273,
                "counts": {"written": 12_273, "protected": 211, "offer_admitted": 640, "offer_gram": 330},
                "worst": {"protected_error": 0.0156},
            }
        ],
        "events": {
            "hr": "above 130 or below 40 per minute",
            "sbp": "below 90 or above 200 mmHg",
            "rr": "above 30 or below 6 per minute",
            "spo2": "below 90 %",
            "temp": "above 38.5 or below 35 °C",
            "composite": "at least one of the five thresholds crossed",
        },
        "show_records": show_records,
    }
