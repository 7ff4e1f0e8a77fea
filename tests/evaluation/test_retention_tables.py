"""Result rows from counts."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

from evaluation.bootstrap import paired_bootstrap
from evaluation.retention import LABELS, SCORES_SCHEMA
from evaluation.retention_tables import CONTRASTS, contrast_rows, retention_rows


class Five:
    """The names of a protocol; nothing is selected here."""

    name: ClassVar[str] = "fixed-context"
    policies: ClassVar[tuple[str, ...]] = ("svdd", "density", "least-dense", "recency", "random")

    def select(self, keys: Any, stay_id: int) -> dict[str, Any]:
        raise NotImplementedError


def counts(stay: int, patient: int, kept: dict[str, int], *, events: int = 4, measured: int = 2) -> list[dict]:
    row = {"protocol": "fixed-context", "stay_id": stay, "subject_id": patient, "channel": "hr", "hours": 50}
    return [
        row
        | {"policy": policy, "kept": 10 + stay, "events": events, "events_kept": n, "events_retrieved": events}
        | {"measured": measured, "measured_kept": min(n, measured), "measured_retrieved": 0}
        for policy, n in kept.items()
    ]


def frame(rows: list[dict]) -> pl.DataFrame:
    return pl.DataFrame(rows, SCORES_SCHEMA)


def table(*stays: tuple[int, int, int, int]) -> pl.DataFrame:
    """Stays as (stay, patient, event hours kept by svdd, by the others)."""
    names = Five.policies[1:]
    return frame([row for s, p, a, b in stays for row in counts(s, p, {"svdd": a, **dict.fromkeys(names, b)})])


SCORES = table((1, 8, 4, 0), (2, 8, 3, 2), (3, 5, 2, 2), (4, 6, 4, 1))


def pick(rows: list[dict], **wanted: Any) -> dict:
    (found,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return found


def test_means_run_over_stays_and_counts_over_hours():
    row = pick(retention_rows(SCORES, Five(), ["hr"]), policy="svdd", events="all")
    assert row["retention"] == pytest.approx((1 + 0.75 + 0.5 + 1) / 4)
    assert row["retrieval"] == 1.0
    assert row["budget"] == pytest.approx((11 + 12 + 13 + 14) / 200)
    assert (row["stays"], row["patients"], row["hours"], row["event_hours"]) == (4, 3, 200, 16)
    assert (row["measured_share"], row["reason"]) == (0.5, None)


def test_interval_of_a_row_resamples_patients():
    row = pick(retention_rows(SCORES, Five(), ["hr"], draws=500, seed=3), policy="svdd", events="all")
    expected = paired_bootstrap([1, 0.75, 0.5, 1], np.zeros(4), [8, 8, 5, 6], draws=500, seed=3)
    assert (row["low"], row["high"]) == (expected.low, expected.high)


def test_measured_rows_count_measured_event_hours_alone():
    scores = pl.concat([SCORES, frame(counts(9, 9, dict.fromkeys(Five.policies, 4), measured=0))])
    row = pick(retention_rows(scores, Five(), ["hr"]), policy="density", events="measured")
    assert row["retention"] == pytest.approx((0 + 1 + 1 + 0.5) / 4)
    assert row["retrieval"] == 0.0
    assert (row["stays"], row["event_hours"], row["measured_share"]) == (4, 8, 8 / 20)


def test_contrasts_are_paired_by_stay_and_by_patient():
    rows = contrast_rows(SCORES, Five(), ["hr"], draws=400)
    difference = np.array([1, 0.25, 0, 0.75])
    assert [(row["left"], row["right"], row["unit"]) for row in rows] == [
        (*pair, unit) for pair in CONTRASTS if set(pair) <= set(Five.policies) for unit in ("stay", "patient")
    ]
    by_stay = pick(rows, right="least-dense", unit="stay")
    draws = np.random.default_rng(0).choice(difference, (400, 4)).mean(axis=1)
    assert (by_stay["mean"], by_stay["groups"]) == (0.5, 4)
    assert (by_stay["low"], by_stay["high"]) == tuple(np.percentile(draws, [2.5, 97.5]))
    by_patient = pick(rows, right="least-dense", unit="patient")
    expected = paired_bootstrap(difference, np.zeros(4), [8, 8, 5, 6], draws=400)
    assert (by_patient["low"], by_patient["groups"]) == (expected.low, 3)


def test_order_of_the_counts_changes_no_row():
    shuffled = SCORES.sample(fraction=1.0, shuffle=True, seed=1)
    assert retention_rows(shuffled, Five(), ["hr"]) == retention_rows(SCORES, Five(), ["hr"])
    assert contrast_rows(shuffled, Five(), ["hr"]) == contrast_rows(SCORES, Five(), ["hr"])


def test_what_is_not_defined_is_null_with_its_reason():
    rows = retention_rows(SCORES, Five(), LABELS, unmeasured={"temp"})
    assert len(rows) == len(LABELS) * len(Five.policies) * 2
    for channel, events, reason in (
        ("temp", "all", "channel never measured"),
        ("spo2", "all", "no stay with an event hour"),
        ("spo2", "measured", "no stay with a measured event hour"),
    ):
        row = pick(rows, channel=channel, policy="svdd", events=events)
        assert row["reason"] == reason
        assert {row[key] for key in ("retention", "retrieval", "budget", "low", "high", "measured_share")} == {None}
        assert (row["stays"], row["patients"], row["event_hours"]) == (0, 0, 0)
    contrast = pick(contrast_rows(SCORES, Five(), ["rr"]), right="density", unit="patient")
    assert (contrast["mean"], contrast["groups"], contrast["reason"]) == (None, 0, "no stay with an event hour")
    json.dumps(rows, allow_nan=False)


def test_one_patient_has_a_mean_but_no_interval():
    one = table((1, 8, 4, 0), (2, 8, 3, 2))
    row = pick(retention_rows(one, Five(), ["hr"]), policy="svdd", events="all")
    assert (row["retention"], row["low"], row["high"]) == (0.875, None, None)
    assert row["reason"] == "fewer than two groups to resample"
    by_stay, by_patient = (
        pick(contrast_rows(one, Five(), ["hr"]), right="density", unit=u) for u in ("stay", "patient")
    )
    assert by_stay["reason"] is None
    assert (by_patient["low"], by_patient["reason"]) == (None, "fewer than two groups to resample")
