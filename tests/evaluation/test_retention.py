"""Per-stay counts and retained sets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import polars as pl
import pytest
from invented_stays import frames_of, invented_stay, of_keys

from evaluation import retention
from evaluation.errors import EvaluationError
from evaluation.protocol_fixed import FixedContext
from evaluation.retention import (
    CHANNELS,
    EVENT_CHANNELS,
    LABELS,
    RETAINED_SCHEMA,
    SCORES_SCHEMA,
    Label,
    evaluate_stays,
    nearest_kept,
    score,
    stays_from_bucket,
)
from evaluation.selectors import Choice, Seen


@dataclass(frozen=True)
class Told:
    """Keeps the positions it is told."""

    kept: tuple[int, ...]
    name: ClassVar[str] = "told"
    policies: ClassVar[tuple[str, ...]] = ("one",)

    def select(self, seen: Seen, stay_id: int) -> Choice:
        return Choice({"one": np.array(self.kept)})


def test_counts_follow_the_definitions():
    label = Label(
        "hr",
        events=np.array([1, 1, 1, 0, 0, 1], bool),
        measured=np.array([1, 0, 1, 0, 0, 0], bool),
        seen=of_keys(np.array([[0.0], [1.0], [8.0], [9.0], [4.0], [-1.0]])),
    )
    # kept 0 (event) and 3 (no event): hours 0, 1, 5 lie nearest to 0, hour 2 nearest to 3
    assert score(label, np.array([0, 3])) == {
        "hours": 6,
        "kept": 2,
        "events": 4,
        "events_kept": 1,
        "events_retrieved": 3,
        "measured": 2,
        "measured_kept": 1,
        "measured_retrieved": 1,
    }


@pytest.mark.parametrize("cells", [1, 1 << 21])
def test_nearest_kept_hour_equals_the_loop_and_ties_go_to_the_earliest(cells, monkeypatch):
    monkeypatch.setattr(retention, "BLOCK_CELLS", cells)
    keys = invented_stay(50, seed=9).keys
    kept = np.arange(1, 50, 3)
    expected = [min(kept, key=lambda k: (((keys[i] - keys[k]) ** 2).sum(), k)) for i in range(50)]
    assert nearest_kept(keys, np.arange(50), kept).tolist() == expected
    assert nearest_kept(np.array([[0.0], [1.0], [-1.0]]), np.array([0]), np.array([1, 2])).tolist() == [1]


def test_a_measured_composite_event_is_one_whose_own_channel_was_charted():
    stay = invented_stay(4)
    events, measured = np.zeros((4, 5), bool), np.zeros((4, 6), bool)
    events[0, 0] = events[1, 0] = events[2, 4] = True  # hr, hr, temperature
    measured[0, 0] = measured[1, 1] = measured[2, 5] = True  # hr, sbp, temperature
    label = replace(stay, events=events, measured=measured).label("composite")
    assert label.events.tolist() == [True, True, True, False]
    assert label.measured.tolist() == [True, False, True, False]
    assert (label.seen.keys == stay.keys).all()


@pytest.mark.parametrize("channel", EVENT_CHANNELS)
def test_the_held_out_channel_its_mask_and_its_events_change_no_selector(channel):
    stay = invented_stay(60, seed=2)
    rng = np.random.default_rng(1)
    keys, measured, events = stay.keys.copy(), stay.measured.copy(), stay.events.copy()
    keys[:, CHANNELS.index(channel)] = rng.normal(size=60)
    measured[:, CHANNELS.index(channel)] ^= True
    events[1:, EVENT_CHANNELS.index(channel)] ^= True
    other = replace(stay, keys=keys, measured=measured, events=events)
    plain, changed = (evaluate_stays([each], FixedContext(), [channel]) for each in (stay, other))
    assert plain.retained.equals(changed.retained)
    assert not plain.scores.equals(changed.scores)


def test_a_stay_without_an_event_hour_has_no_row_and_no_retained_set():
    calm = replace(invented_stay(50, stay_id=3), events=np.zeros((50, 5), bool))
    frames = evaluate_stays([calm, invented_stay(50, stay_id=2)], Told((0, 4)))
    assert frames.scores["stay_id"].unique().to_list() == [2]
    assert frames.scores["channel"].to_list() == list(LABELS)
    assert frames.retained["hours"].to_list() == [[3, 7]] * len(LABELS)  # hours of the stay, not positions
    empty = evaluate_stays([calm], Told((0,)))
    assert (empty.scores.height, empty.retained.height) == (0, 0)
    assert (dict(empty.scores.schema), dict(empty.retained.schema)) == (SCORES_SCHEMA, RETAINED_SCHEMA)


def test_order_of_stays_and_their_buckets_change_nothing():
    stays = [invented_stay(50 + i, seed=i, stay_id=90 - i, patient=i // 2) for i in range(4)]
    whole = evaluate_stays(stays, FixedContext(), ["composite", "spo2"])
    parts = [evaluate_stays(part, FixedContext(), ["composite", "spo2"]) for part in (stays[2:], stays[:2])]
    assert pl.concat(part.scores for part in parts).equals(whole.scores)
    assert pl.concat(part.retained for part in parts).equals(whole.retained)


def test_stays_come_back_from_frames_in_any_row_order():
    stays = [invented_stay(48, seed=i, stay_id=10 + i, patient=7) for i in range(3)]
    hourly, table = frames_of(stays)
    read = stays_from_bucket(hourly.sample(fraction=1.0, shuffle=True, seed=1), table)
    assert [stay.stay_id for stay in read] == [10, 11, 12]
    for got, given in zip(read, stays, strict=True):
        assert got.patient == 7
        for field in ("hours", "keys", "events", "measured", "values"):
            assert (getattr(got, field) == getattr(given, field)).all()


def test_unusable_frames_are_refused_in_one_line_without_ids():
    hourly, table = frames_of([invented_stay(48, stay_id=31_415_926)])
    bad = hourly.with_columns(pl.when(pl.col("hour") < 5).then(None).otherwise(pl.col("rr_z")).alias("rr_z"))
    for frame, stays, message in (
        (hourly.drop("sbp_z", "temp_event"), table, "no column sbp_z, temp_event"),
        (hourly, table.clear(), "1 stays are not in the table of stays"),
        (bad, table, "2 hours hold a value that is not finite"),
    ):
        with pytest.raises(EvaluationError, match=message) as refusal:
            stays_from_bucket(frame, stays)
        assert "31415926" not in str(refusal.value)
        assert "\n" not in str(refusal.value)
