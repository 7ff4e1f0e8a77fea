"""What is known at hour t does not depend on what comes later; only the label looks ahead."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest

from evaluation.errors import EvaluationError
from evaluation.prediction.features import (
    current_margin,
    feature_names,
    recency,
    sequence_inputs,
    standardised,
    window_features,
)
from evaluation.prediction.hours import AHEAD, StayHours, label, stays_of
from evaluation.retention import CHANNELS, EVENT_CHANNELS

LIMITS = {"hr": (None, 100.0), "sbp": (90.0, None), "rr": (None, 24.0), "spo2": (90.0, None), "temp": (None, 38.3)}
SPREAD = dict.fromkeys(EVENT_CHANNELS, 2.0)


def invented(seed: int, n: int = 40) -> StayHours:
    rng = np.random.default_rng(seed)
    values = rng.normal([90, 110, 60, 20, 95, 37.5], [12, 20, 10, 4, 4, 0.8], (n, 6))
    measured, crossed = rng.random((n, 6)) < 0.7, rng.random((n, 5)) < 0.1
    ages = np.where(rng.random((n, 6)) < 0.1, np.nan, rng.integers(0, 50, (n, 6)).astype(float))
    keys = (values - values.mean()) / 10
    return StayHours(7, 3, "test", np.arange(n), values, keys, measured, ages, crossed)


def shuffled_after(stay: StayHours, at: int, seed: int) -> StayHours:
    order = np.arange(len(stay.hours))
    order[at + 1 :] = np.random.default_rng(seed).permutation(order[at + 1 :])
    parts = {name: getattr(stay, name)[order] for name in ("values", "keys", "measured", "ages", "crossed")}
    return dataclasses.replace(stay, **parts)


@pytest.mark.parametrize("at", [0, 5, 6, 23, 30])
def test_permuting_the_hours_after_t_changes_no_feature_up_to_t(at: int) -> None:
    stay = invented(at)
    other = shuffled_after(stay, at, 1)
    for events in ("filled", "measured"):
        one, two = (window_features(s, current_margin(s, LIMITS, SPREAD), events) for s in (stay, other))
        assert np.array_equal(one[: at + 1], two[: at + 1])
        assert not np.array_equal(one[at + 1 :], two[at + 1 :])
    one, two = (sequence_inputs(s, careful=True) for s in (stay, other))
    assert np.array_equal(one[: at + 1], two[: at + 1])


def test_window_features_equal_a_recount_of_every_window() -> None:
    stay, names = invented(2), feature_names()
    rows = window_features(stay, current_margin(stay, LIMITS, SPREAD), "measured")
    assert rows.shape == (40, len(names)) == (40, 104)
    assert np.isfinite(rows).all()
    for t in (0, 3, 17, 39):
        past = slice(max(0, t - 5), t + 1)
        assert rows[t, names.index("hr SD 6 h")] == pytest.approx(stay.keys[past, 0].std())
        assert rows[t, names.index("temp least 6 h")] == stay.keys[past, CHANNELS.index("temp")].min()
        assert rows[t, names.index("event hours 6 h")] == stay.events("measured")[past].sum()
        assert rows[t, names.index("sbp change 6 h")] == stay.keys[t, 1] - stay.keys[max(0, t - 6), 1]


def test_a_stay_shorter_than_the_lag_has_features() -> None:
    stay = invented(5).until(3)
    rows = window_features(stay, current_margin(stay, LIMITS, SPREAD), "filled")
    assert np.isfinite(rows).all()
    assert np.array_equal(rows[:, feature_names().index("hr change 6 h")], stay.keys[:, 0] - stay.keys[0, 0])


def test_the_current_margin_is_positive_exactly_where_a_threshold_is_crossed() -> None:
    stay = invented(11)
    crossed = np.zeros(len(stay.hours), bool)
    for channel, (low, high) in LIMITS.items():
        value = stay.values[:, CHANNELS.index(channel)]
        crossed |= value < low if low is not None else value > high
    assert 0 < crossed.sum() < len(crossed)
    assert np.array_equal(current_margin(stay, LIMITS, SPREAD) > 0, crossed)


def test_recency_is_cut_at_a_day_and_never_measured_counts_as_a_day() -> None:
    stay = dataclasses.replace(invented(1).until(1), ages=np.array([[0.0, 12.0, 24.0, 50.0, np.nan, 6.0]]))
    assert recency(stay).tolist() == [[0.0, 0.5, 1.0, 1.0, 1.0, 0.25]]


def test_a_constant_feature_becomes_zero_and_test_rows_do_not_move_the_scale() -> None:
    train = [np.array([[1.0, 5.0], [3.0, 5.0]])]
    assert standardised(train, np.array([[4.0, 99.0]])).tolist() == [[2.0, 0.0]]


@pytest.mark.parametrize("seed", range(4))
def test_a_label_speaks_of_the_next_six_hours_and_counts_when_they_are_known(seed: int) -> None:
    events = np.random.default_rng(seed).random(30) < 0.1
    found = label(events)
    for t in range(30):
        seen = events[t + 1 : t + 1 + AHEAD]
        assert found.ahead[t] == seen.any()
        assert found.counts[t] == (len(seen) == AHEAD or seen.any())


def test_the_past_and_the_hour_itself_do_not_label_it() -> None:
    assert not label(np.arange(20) <= 10).ahead[10]
    assert label(np.arange(20) == 16).ahead.nonzero()[0].tolist() == list(range(10, 16))


def hourly_frame(stay_id: int, n: int) -> pl.DataFrame:
    columns: dict[str, object] = {"stay_id": [stay_id] * n, "hour": list(range(n))}
    for index, channel in enumerate(CHANNELS):
        columns |= {channel: np.arange(n) + 10.0 * index, f"{channel}_z": np.arange(n) + 0.5}
        columns |= {f"{channel}_measured": np.arange(n) % 2 == 0, f"{channel}_age": np.arange(n) % 2.0}
    return pl.DataFrame(columns | {f"{channel}_event": np.arange(n) == 3 for channel in EVENT_CHANNELS})


def test_stays_come_by_id_with_their_hours_in_order_and_only_charted_events_count_as_measured() -> None:
    frame = pl.concat([hourly_frame(9, 5), hourly_frame(4, 6)]).sample(fraction=1.0, shuffle=True, seed=2)
    table = pl.DataFrame({"stay_id": [9, 4], "subject_id": [1, 2], "split": ["test", "train"]})
    first, second = stays_of(frame, table)
    assert (first.stay_id, first.patient, first.split, second.stay_id) == (4, 2, "train", 9)
    assert first.hours.tolist() == list(range(6))
    assert first.values[2].tolist() == [2.0 + 10 * index for index in range(6)]
    assert first.events("filled").nonzero()[0].tolist() == [3]
    assert not first.events("measured").any()


def test_a_stay_that_the_table_lacks_is_refused_by_count() -> None:
    table = pl.DataFrame({"stay_id": [4], "subject_id": [2], "split": ["train"]})
    with pytest.raises(EvaluationError, match="1 stays are not in the table") as refusal:
        stays_of(hourly_frame(987654, 3), table)
    assert "987654" not in str(refusal.value)
