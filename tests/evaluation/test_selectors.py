"""What makes an hour worth keeping, against loops over the definitions; and what no selector may see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from invented_stays import invented_stay

from evaluation.early_warning import BANDS, points
from evaluation.protocol_fixed import FixedContext
from evaluation.protocol_streamed import Streamed
from evaluation.retention import (
    CHANNELS,
    EVENT_CHANNELS,
    HELD_OUT,
    SHARES,
    curve_points,
    evaluate_stays,
)
from evaluation.selectors import channel_density, ensemble, farthest_order, herding_order, stride_order
from memory.svdd import SVDDMemory

STAY = invented_stay(90, seed=3)


@pytest.mark.parametrize("protocol", [FixedContext(), Streamed(24)])
@pytest.mark.parametrize("channel", [*EVENT_CHANNELS, "sbp+dbp"])
def test_no_selector_sees_the_held_out_channel_its_mask_or_its_events(protocol, channel):
    """Everything of the held-out channels is replaced; every policy keeps the same hours."""
    rng = np.random.default_rng(0)
    keys, values, measured = STAY.keys.copy(), STAY.values.copy(), STAY.measured.copy()
    for name in HELD_OUT[channel]:
        column = CHANNELS.index(name)
        keys[:, column], values[:, column] = rng.normal(size=(2, len(keys)))
        measured[:, column] = ~measured[:, column]
    other = replace(STAY, keys=keys, values=values, measured=measured, events=~STAY.events)
    before, after = (protocol.select(stay.label(channel).seen, 1) for stay in (STAY, other))
    for part in ("kept", "orders"):
        for policy, hours in getattr(before, part).items():
            assert hours.tolist() == getattr(after, part)[policy].tolist(), policy


def test_every_other_channel_is_seen():
    assert STAY.label("composite").seen.channels == CHANNELS
    assert STAY.label("sbp").seen.channels == ("hr", "dbp", "rr", "spo2", "temp")
    assert STAY.label("sbp+dbp").seen.channels == ("hr", "rr", "spo2", "temp")
    assert STAY.label("sbp+dbp").events.tolist() == STAY.label("sbp").events.tolist()


@pytest.mark.parametrize(
    ("channel", "value", "expected"),
    [
        ("rr", 8, 3), ("rr", 9, 1), ("rr", 12, 0), ("rr", 20, 0), ("rr", 21, 2), ("rr", 25, 3),
        ("spo2", 91, 3), ("spo2", 92, 2), ("spo2", 94, 1), ("spo2", 96, 0),
        ("sbp", 90, 3), ("sbp", 100, 2), ("sbp", 110, 1), ("sbp", 111, 0), ("sbp", 219, 0), ("sbp", 220, 3),
        ("hr", 40, 3), ("hr", 50, 1), ("hr", 51, 0), ("hr", 90, 0), ("hr", 110, 1), ("hr", 130, 2), ("hr", 131, 3),
        ("temp", 35.0, 3), ("temp", 36.0, 1), ("temp", 36.1, 0), ("temp", 38.1, 1), ("temp", 39.1, 2),
    ],
)  # fmt: skip
def test_early_warning_points_are_those_of_the_chart(channel, value, expected):
    assert points(np.array([[float(value)]]), [channel]).tolist() == [expected]


def test_early_warning_points_add_up_and_the_diastolic_pressure_has_none():
    assert points(np.array([[131.0, 90.0, 40.0]]), ["hr", "sbp", "dbp"]).tolist() == [6.0]
    assert set(BANDS) == set(EVENT_CHANNELS)


def test_channel_density_equals_the_double_loop():
    keys = STAY.keys[:30, :2]
    naive = [
        sum(np.log(np.mean([np.exp(-((row[c] - other[c]) ** 2)) for other in keys])) for c in range(2)) for row in keys
    ]
    assert channel_density(keys) == pytest.approx(naive, abs=1e-8)


def test_leverage_is_the_squared_distance_under_the_ridged_covariance():
    seen = STAY.label("spo2").seen
    rows = []
    for hour in range(len(seen.keys)):
        past = slice(max(0, hour - 5), hour + 1)
        change = seen.keys[hour] - seen.keys[max(hour - 1, 0)]
        rows.append([*seen.keys[hour], *change, *seen.keys[past].std(0), *(2 * seen.measured[past].mean(0))])
    rows = np.array(rows)
    inverse = np.linalg.inv(np.cov(rows.T) + 0.1 * np.eye(rows.shape[1]))
    centred = rows - rows.mean(0)
    assert seen.leverage == pytest.approx([row @ inverse @ row for row in centred], rel=1e-9)


def test_windows_look_only_back():
    seen = STAY.label("spo2").seen
    changed = replace(seen, keys=np.concatenate([seen.keys[:40], seen.keys[40:] + 5.0]))
    assert (changed.spread[:40] == seen.spread[:40]).all()
    assert (changed.spread[40:45] != seen.spread[40:45]).any()


def test_the_ensemble_ranks_an_hour_far_from_all_others_first():
    seen = STAY.label("spo2").seen
    keys = 0.1 * seen.keys
    keys[50] = 8.0
    lonely = replace(seen, keys=keys, values=np.tile([80.0, 120.0, 60.0, 15.0, 37.0], (90, 1)))
    inside = SVDDMemory(1 / 27, 3.0).fit(keys).score(keys)
    assert 50 in np.argsort(-ensemble(lonely, inside, 3.0))[:3]


def test_a_low_diastolic_pressure_stands_in_for_a_systolic_one_that_is_held_out():
    inside = np.zeros(len(STAY.keys))
    for channel, expected in (("sbp", True), ("spo2", False)):
        seen = STAY.label(channel).seen
        at = seen.channels.index("dbp")
        mirrored = seen.keys.copy()
        mirrored[:, at] = -mirrored[:, at]
        flat = replace(seen, values=np.full(seen.values.shape, 100.0))
        before, after = (ensemble(replace(flat, keys=keys), inside, 3.0) for keys in (seen.keys, mirrored))
        moved = np.corrcoef(before - after, -seen.keys[:, at])[0, 1] > 0.9
        assert moved == expected


def test_any_first_hours_of_the_stride_are_spread_over_the_stay():
    order = stride_order(96)
    assert sorted(order.tolist()) == list(range(96))
    for k in (3, 12, 24, 48):
        gaps = np.diff(np.sort(np.concatenate([order[:k], [96]])))
        assert gaps.max() <= 2 * 128 / k


def test_each_next_centre_is_the_farthest_from_those_before():
    keys = STAY.keys[:40]
    order = farthest_order(keys)
    for k in range(1, 39):
        distance = ((keys[:, None] - keys[order[:k]]) ** 2).sum(2).min(1)
        left = order[k:]
        assert distance[order[k]] == pytest.approx(distance[left].max())


def test_herding_follows_the_mean_embedding_better_than_chance():
    keys = STAY.keys
    among = np.exp(-((keys[:, None] - keys) ** 2).sum(2) / 9.0)

    def discrepancy(chosen: np.ndarray) -> float:
        return float(among.mean() - 2 * among[chosen].mean() + among[np.ix_(chosen, chosen)].mean())

    rng = np.random.default_rng(0)
    ours = discrepancy(herding_order(keys, 3.0)[:15])
    assert ours < min(discrepancy(rng.choice(90, 15, replace=False)) for _ in range(50))


def test_curves_count_what_every_order_keeps_at_every_budget():
    label = STAY.label("spo2")
    rows = {(row["policy"], row["share"]): row for row in curve_points(label, {"first": np.arange(90)})}
    assert set(rows) == {("first", share) for share in SHARES}
    for share in SHARES:
        row, k = rows["first", share], int(np.ceil(share * 90))
        assert (row["kept"], row["hours"]) == (k, 90)
        assert row["events_kept"] == label.events[:k].sum()
        assert row["measured_kept"] == label.measured[:k].sum()
        assert row["locations"] == len(np.unique(label.seen.keys[:k], axis=0))


def test_curves_are_for_policies_that_rank_and_hold_both_pressures_out_once():
    frames = evaluate_stays([STAY], FixedContext(), ["sbp"])
    assert set(frames.scores["channel"]) == {"sbp"}
    assert set(frames.curves["channel"]) == {"sbp", "sbp+dbp"}
    assert set(frames.curves["policy"]) == set(FixedContext.policies)
    assert evaluate_stays([STAY], Streamed(24), ["sbp"]).curves.is_empty()
