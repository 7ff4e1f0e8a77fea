from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from evaluation.oracle_svdd import solve
from evaluation.retention import CHANNELS
from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.run.manifest import Manifest, write_manifest
from flows.run.states import read_states, write_states
from flows.settings import Settings
from flows.steps.stream import STREAM_SCHEMA
from flows.steps.wards import (
    Ward,
    build_ward,
    feed,
    make_ward,
    read_ward,
    subjects_of,
    ward_capacity,
    ward_counts,
    ward_counts_path,
    ward_of,
    ward_path,
    write_ward,
)
from memory.contract import MemoryRefused
from memory.svdd import SVDDMemory

SETTINGS = Settings.model_validate({"memories": "svdd", "ward_hours": 60, "wards": 3})
LENGTHS = (50, 44, 61, 38, 57, 40)


def rows(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys of autocorrelated hours, stay ids and hours of several stays, one after another."""
    drawn = np.random.default_rng(seed)
    keys = np.concatenate([np.round(np.cumsum(drawn.normal(size=(n, 6)), axis=0) / 4, 1) for n in lengths])
    return keys, np.repeat(np.arange(len(lengths)) + 100, lengths), np.concatenate([np.arange(n) for n in lengths])


def fed(order: np.ndarray | slice = slice(None), lengths: tuple[int, ...] = LENGTHS) -> Ward:
    keys, stay, hour = rows(lengths)
    return feed(keys[order], keys[order] * 10, stay[order], hour[order], SETTINGS)


def probes() -> np.ndarray:
    return np.random.default_rng(9).normal(size=(60, 6)) * 2


def agreement(left: Ward, right: Ward) -> tuple[float, float]:
    """Largest difference of the scores, and what the two certificates allow."""
    allowed = left.memory.certificate().score_bound + right.memory.certificate().score_bound
    gap = np.abs(left.memory.score(probes()) - right.memory.score(probes())).max()
    return float(gap), allowed + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_the_final_state_does_not_depend_on_the_order_of_the_tokens(seed: int) -> None:
    gap, allowed = agreement(fed(), fed(np.random.default_rng(seed).permutation(sum(LENGTHS))))
    assert gap <= allowed < 1e-9


@pytest.mark.parametrize("leaving", [{100}, {103, 105}, {101, 102, 104}])
def test_a_deletion_leaves_what_a_build_from_the_rest_holds(leaving: set[int]) -> None:
    keys, stay, hour = rows()
    rest = ~np.isin(stay, sorted(leaving))
    after, outcome = fed().without(leaving)
    fresh = feed(keys[rest], keys[rest] * 10, stay[rest], hour[rest], SETTINGS)
    gap, allowed = agreement(after, fresh)
    assert gap <= allowed < 1e-9
    refit = SVDDMemory(ward_capacity(SETTINGS), SETTINGS.sigma).fit(keys[rest])
    assert np.abs(after.memory.score(probes()) - refit.score(probes())).max() < 1e-9
    assert np.array_equal(after.stay, stay[rest])
    assert np.array_equal(after.hour, hour[rest])
    assert outcome.certificate is not None
    assert np.allclose(after.memory.read(keys[:20]), fresh.memory.read(keys[:20]), rtol=1e-7)


def test_a_deletion_is_right_against_the_proved_solution_of_the_rest() -> None:
    keys, stay, _ = rows()
    after, _ = fed().without({100, 104})
    solved = solve(keys[~np.isin(stay, [100, 104])], ward_capacity(SETTINGS), SETTINGS.sigma)
    assert np.abs(after.memory.score(probes()) - solved.score(probes())).max() < 1e-9


def test_hot_and_cold_tokens_of_a_stay_are_both_gone() -> None:
    ward = fed()
    mine = set(np.flatnonzero(ward.stay == 102).tolist())
    assert mine & set(ward.memory.ids.tolist())
    assert mine & set(ward.memory.cold_ids)
    after, _ = ward.without([102])
    assert len(after.memory) == sum(LENGTHS) - LENGTHS[2]
    assert 102 not in after.stay
    gone = {key.tobytes() for key in rows()[0][ward.stay == 102]} - {
        key.tobytes() for key in rows()[0][ward.stay != 102]
    }
    state = after.memory.to_state()
    held = {key.tobytes() for key in [*state["keys"], *state["cold"]["keys"]]}
    assert gone
    assert not gone & held


def test_ids_are_places_in_the_declared_order_after_a_deletion_as_before() -> None:
    ward, (after, _) = fed(), fed().without([101])
    for one in (ward, after):
        assert sorted([*one.memory.ids.tolist(), *one.memory.cold_ids]) == list(range(len(one.stay)))
        keys, stay, hour = rows()
        place = {(int(s), int(h)): key for s, h, key in zip(stay, hour, keys, strict=True)}
        state = one.memory.to_state()
        for token, location in zip(state["ids"], state["location"], strict=True):
            assert np.array_equal(state["keys"][location], place[int(one.stay[token]), int(one.hour[token])])
        for token, key in zip(state["cold"]["ids"], state["cold"]["keys"], strict=True):
            assert np.array_equal(key, place[int(one.stay[token]), int(one.hour[token])])


def test_a_state_tells_nothing_of_how_it_was_reached_and_stays_that_are_not_held_change_nothing() -> None:
    ward = fed()
    state = ward.memory.to_state()
    assert (state["operations"], state["cold"]["drift"]) == (0, 0.0)
    assert np.array_equal(state["ids"], np.sort(state["ids"]))
    assert ward.without([1, 2])[0].memory.digest() == ward.memory.digest()


def test_two_deletions_in_either_order_give_one_state_within_the_certificate() -> None:
    left = fed().without([100])[0].without([104])[0]
    right = fed().without([104])[0].without([100])[0]
    gap, allowed = agreement(left, right)
    assert gap <= allowed < 1e-9
    assert np.array_equal(left.stay, right.stay)


def test_a_rest_that_cannot_carry_the_mass_collects_as_a_memory_that_was_given_the_rest() -> None:
    ward = fed(lengths=(30, 10, 9))
    assert ward.memory.ready
    after, outcome = ward.without([100, 101])
    assert not after.memory.ready
    assert outcome.certificate is None
    keys, stay, _ = rows((30, 10, 9))
    assert np.array_equal(np.sort(after.memory.to_state()["keys"], axis=0), np.sort(keys[stay == 102], axis=0))
    assert len(ward.without([100, 101, 102])[0].memory) == 0


def test_the_ward_that_was_asked_stays_as_it_is() -> None:
    ward = fed()
    digest = ward.memory.digest()
    ward.without([100])
    assert ward.memory.digest() == digest


def test_a_ward_survives_the_disk_bit_for_bit(tmp_path: Path) -> None:
    for name, ward in {"full": fed(), "empty": fed().without(range(100, 106))[0]}.items():
        write_ward(tmp_path / name, ward)
        again = read_ward(tmp_path / name)
        assert again.memory.digest() == ward.memory.digest()
        assert np.array_equal(again.stay, ward.stay)
        assert np.array_equal(again.hour, ward.hour)


def test_a_file_that_is_no_ward_is_refused_by_name(tmp_path: Path) -> None:
    write_ward(tmp_path / "good", fed())
    stored = read_states(tmp_path / "good")["ward"]
    write_states(tmp_path / "other", {"7": stored["memory"]})
    write_states(tmp_path / "short", {"ward": stored | {"stay": stored["stay"][:-1]}})
    for name in ("other", "short"):
        with pytest.raises(FlowError, match=name):
            read_ward(tmp_path / name)
    moved = stored["memory"] | {"alpha": stored["memory"]["alpha"][::-1].copy() + 0.01}
    write_states(tmp_path / "moved", {"ward": stored | {"memory": moved}})
    with pytest.raises(MemoryRefused):
        read_ward(tmp_path / "moved")


@pytest.fixture
def layout(tmp_path: Path) -> RunLayout:
    """A run with a cohort of 12 stays of 8 patients in two buckets, in no telling order."""
    made = RunLayout(tmp_path / "run")
    keys, stay, hour = rows((40,) * 12)
    stays = pl.DataFrame({"stay_id": np.unique(stay), "subject_id": [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]})
    admitted = [datetime(2150, 1, 1) - timedelta(days=n) for n in range(12)]
    made.cohort.mkdir(parents=True)
    stays.with_columns(intime=pl.Series(admitted)).write_parquet(made.cohort / "stays.parquet")
    hourly = pl.DataFrame({"stay_id": stay, "hour": hour} | {f"{c}_z": keys[:, i] for i, c in enumerate(CHANNELS)})
    hourly = hourly.with_columns(**{c: pl.col(f"{c}_z") * 10 for c in CHANNELS})
    for bucket in (0, 1):
        place = made.cohort / "hourly" / f"bucket={bucket:02d}"
        place.mkdir(parents=True)
        hourly.filter(pl.col("stay_id") % 2 == bucket).write_parquet(place / "part.parquet")
    write_manifest(made, Manifest(settings={}, source={}, versions={}))
    return made


def test_every_patient_is_in_exactly_one_ward_with_all_hours(layout: RunLayout) -> None:
    subjects = subjects_of(layout.cohort)
    wards = [build_ward(layout, SETTINGS, ward) for ward in range(3)]
    assert sum(len(ward.stay) for ward in wards) == 12 * 40
    for number, ward in enumerate(wards):
        assert {ward_of(SETTINGS.seed, subjects[stay], 3) for stay in ward.stay.tolist()} <= {number}


def test_tokens_come_by_patient_then_admission_then_hour(layout: RunLayout) -> None:
    subjects = subjects_of(layout.cohort)
    for ward in (build_ward(layout, SETTINGS, number) for number in range(3)):
        listed = list(dict.fromkeys(ward.stay.tolist()))
        people = [subjects[stay] for stay in listed]
        assert len(list(dict.fromkeys(people))) == sum(a != b for a, b in zip([None, *people], people, strict=False))
        for earlier, later in pairwise(listed):
            assert subjects[earlier] != subjects[later] or earlier > later  # the fixture admits later ids earlier
        assert all(np.array_equal(ward.hour[ward.stay == stay], np.arange(40)) for stay in listed)


def test_a_ward_is_written_once_and_its_counts_add_up(layout: RunLayout) -> None:
    hours = sum(make_ward(layout, SETTINGS, ward) for ward in range(3))
    assert hours == 480
    before = [ward_path(layout, ward).read_bytes() for ward in range(3)]
    ward_path(layout, 0).unlink()
    ward_counts_path(layout, 0).unlink()
    assert sum(make_ward(layout, SETTINGS, ward) for ward in range(3)) == 480
    assert [ward_path(layout, ward).read_bytes() for ward in range(3)] == before
    counts = pl.concat([pl.read_parquet(ward_counts_path(layout, ward)) for ward in range(3)])
    totals = dict(counts.filter(pl.col("kind") == "count").group_by("quantity").agg(pl.col("value").sum()).iter_rows())
    assert totals["tokens"] == 480
    assert 0 < totals["active"] <= totals["hot"] < 480
    assert set(counts["stay_id"]) == set(range(100, 112))


def test_counts_after_a_deletion_are_those_of_a_ward_that_never_held_the_stay(layout: RunLayout) -> None:
    subjects = subjects_of(layout.cohort)
    ward = next(one for one in (build_ward(layout, SETTINGS, n) for n in range(3)) if len(one.stay) > 80)
    gone = int(ward.stay[0])
    after, _ = ward.without([gone])
    counts = ward_counts(after, subjects)
    assert gone not in set(counts["stay_id"])
    tokens = counts.filter(pl.col("quantity") == "tokens")["value"].sum()
    assert tokens == len(after.stay)


def test_a_ward_without_patients_is_a_file_without_tokens_and_without_counts(layout: RunLayout) -> None:
    many = SETTINGS.model_copy(update={"wards": 200})
    taken = {ward_of(many.seed, subject, 200) for subject in subjects_of(layout.cohort).values()}
    empty = next(ward for ward in range(200) if ward not in taken)
    assert make_ward(layout, many, empty) == 0
    assert len(read_ward(ward_path(layout, empty)).stay) == 0
    assert pl.read_parquet(ward_counts_path(layout, empty)).schema == pl.Schema(STREAM_SCHEMA)
