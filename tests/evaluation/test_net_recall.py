"""Net recall against memories rebuilt without the hour, planted memories and keys that give their value away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from invented_stays import invented_stay

from evaluation import recall_memories as memories
from evaluation.net_recall import DELAYS, TOLERANCES, RecallPlan, ask, fit_recall_features, recall_counts
from evaluation.policies import kernel_sums
from evaluation.recall_memories import Asked
from evaluation.recall_tables import recall_rows
from memory.delta import DeltaMemory, LinearMemory
from memory.features import VitalFeatures
from memory.nc01 import ICU, NC01Bank, NoveltyOffers
from memory.svdd import SVDDMemory
from memory.vla import VLAMemory

PLAN = RecallPlan(events=5, widths=(8, 16), directions=16)
SIGMA = 1.5


@pytest.fixture(scope="module")
def stay():
    return invented_stay(130, seed=3, stay_id=41)


@pytest.fixture(scope="module")
def features(stay):
    return fit_recall_features(stay.keys, stay.hours, PLAN)


@pytest.fixture(scope="module")
def asked(stay) -> Asked:
    return ask(stay, PLAN)


def each(asked: Asked):
    """Every read: its (event, delay), the places written before it, and those without the hour itself."""
    for event, delay in np.argwhere(asked.at >= 0):
        before = np.arange(asked.at[event, delay] + 1)
        yield (event, delay), before, before[before != asked.events[event]]


def keys_of(asked: Asked, features: VitalFeatures) -> np.ndarray:
    return features.keys(asked.z[:, :5], asked.z[:, 5] * 24)


MATRICES = {
    "ridge": (
        lambda asked, features: memories.ridge_reads(asked, features, 0.1),
        lambda d_k: VLAMemory(d_k, 1, gain="ridge", lam0=0.1),
    ),
    "unit": (memories.unit_reads, lambda d_k: VLAMemory(d_k, 1, gain="unit")),
    "delta": (memories.delta_reads, lambda d_k: DeltaMemory(d_k, 1)),
    "linear": (memories.linear_reads, lambda d_k: LinearMemory(d_k, 1)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrix_memories_read_and_ghost_as_memories_built_with_and_without_the_hour(name, asked, features):
    measure, make = MATRICES[name]
    reads, keys = measure(asked, features[16]), keys_of(asked, features[16])
    for (event, delay), before, without in each(asked):
        for places, got in ((before, reads.recalled), (without, reads.ghost)):
            built = make(16)
            built.admit_many(keys[places], asked.values[places, None])
            assert got[event, delay] == pytest.approx(built.read(keys[asked.events[event]])[0], abs=1e-9)


def test_ridge_ghost_survives_a_leverage_of_one(asked, features):
    reads, keys = memories.ridge_reads(asked, features[16], 1e-13), keys_of(asked, features[16])
    first = (asked.at[:, 0] < 16).nonzero()[0]
    for event in first:
        _, _, without = next(found for found in each(asked) if found[0] == (event, 0))
        gram = keys[without].T @ keys[without] + 1e-13 * np.eye(16)
        fit = np.linalg.solve(gram, keys[without].T @ asked.values[without])
        assert reads.ghost[event, 0] == pytest.approx(keys[asked.events[event]] @ fit, abs=0.05)
    assert np.isfinite(reads.ghost[asked.at >= 0]).all()


def test_bank_reads_and_ghosts_as_one_bank_given_the_stream_with_a_hole(asked, features):
    reads, keys = memories.nc01_reads(asked, features[16], 0.995, 0.5), keys_of(asked, features[16])
    values = features[16].scaled(asked.values[:, None])
    for (event, delay), before, without in each(asked):
        for places, got in ((before, reads.recalled), (without, reads.ghost)):
            bank = NC01Bank(1, **{**ICU, "d_k": 16, "d_v": 1})
            gates = torch.full((1, len(before)), 0.995, dtype=torch.float64)
            present = torch.from_numpy(np.isin(before, places))[None]
            some = (keys[None, : len(before)], values[None, : len(before)], gates, torch.ones_like(gates))
            bank.run(*some, NoveltyOffers(0.5), present=present)
            read = bank.read(keys[None, asked.events[event]])[0, 0].item() * features[16].largest
            assert got[event, delay] == pytest.approx(read, abs=1e-9)


@pytest.mark.parametrize("policy", ["density", "novelty", "recency", "random"])
def test_caches_read_and_ghost_as_caches_that_took_the_hours_one_by_one(policy, asked):
    reads = memories.cache_reads(asked, policy, 12, SIGMA)
    for (event, delay), before, without in each(asked):
        for places, got in ((before, reads.recalled), (without, reads.ghost)):
            held = cached_one_by_one(asked, policy, places, 12)
            far = ((asked.z[held] - asked.z[asked.events[event]]) ** 2).sum(axis=1)
            assert got[event, delay] == asked.values[held[far.argmin()]]
            if places is before:
                assert reads.kept[event, delay] == (asked.events[event] in held)


def cached_one_by_one(asked: Asked, policy: str, places: np.ndarray, capacity: int) -> np.ndarray:
    """Take hours in, and at every one leave the least worth, the latest of equals, from its definition."""
    held: list[int] = []
    for count, hour in enumerate(places, start=1):
        seen = places[:count]
        held.append(hour)
        if len(held) <= capacity:
            continue
        sums = dict(zip(seen, kernel_sums(asked.z[seen], SIGMA), strict=True))
        worth = {
            "density": sums,
            "novelty": {place: -total for place, total in sums.items()},
            "recency": {place: place for place in seen},
            "random": dict(enumerate(asked.luck)),
        }[policy]
        least = min(worth[place] for place in held)
        held.remove(max(place for place in held if worth[place] == least))
    return np.array(held)


def test_support_vector_memory_ghosts_as_a_memory_fitted_without_the_hour(asked):
    found = memories.svdd_reads(asked, 1 / 12, SIGMA)
    for (event, delay), before, without in each(asked):
        query = asked.z[[asked.events[event]]]
        for places, got in ((before, found["svdd"].recalled), (without, found["svdd"].ghost)):
            if len(places) < 12:
                assert np.isnan(got[event, delay])
                continue
            built = SVDDMemory(1 / 12, SIGMA).fit(asked.z[places], asked.values[places, None], places)
            assert got[event, delay] == pytest.approx(built.read(query)[0, 0], abs=1e-7)


def planted(values: np.ndarray, z: np.ndarray, events: list[int]) -> Asked:
    at = np.full((len(events), len(DELAYS)), len(z) - 1)
    return Asked(z, values, np.array(events), at, np.random.default_rng(0).random(len(z)))


def test_a_key_that_gives_its_value_away_has_recall_without_net_recall():
    """Ridge learns the identity: it reads hours it never saw as well as those it saw."""
    rng = np.random.default_rng(5)
    z = np.concatenate([rng.normal(size=(400, 5)) * 0.3, np.zeros((400, 1))], axis=1)
    case = planted(z[:, 0] + 0.2 * z[:, 1], z, list(range(20, 60)))
    reads = memories.ridge_reads(case, VitalFeatures.fit(z[:, :5], z[:, 5], z[:, :1], d_k=48, seed=1), 1e-3)
    own = case.values[case.events, None]
    recalled, ghost = (np.mean(np.abs(side - own) <= 0.25) for side in (reads.recalled, reads.ghost))
    assert recalled > 0.95
    assert recalled - ghost == pytest.approx(0.0, abs=0.03)


def test_a_value_that_nothing_predicts_is_recalled_by_what_holds_it_and_by_no_ghost():
    rng = np.random.default_rng(6)
    z = np.concatenate([rng.normal(size=(40, 5)) * 3, np.zeros((40, 1))], axis=1)
    values = 10.0 * np.arange(40)  # no two within any tolerance
    case = planted(values, z, [3, 4, 5])
    whole, small = (memories.cache_reads(case, "recency", size, SIGMA) for size in (40, 5))
    own = values[case.events, None]
    assert (np.abs(whole.recalled - own) <= 0.25).all()
    assert whole.kept.all()
    assert not (np.abs(whole.ghost - own) <= 1.0).any()
    assert not (np.abs(small.recalled - own) <= 1.0).any()
    assert not small.kept.any()


def test_counts_are_of_the_same_hours_for_all_memories_and_no_ghost_exceeds_what_was_asked(stay, features):
    counts = recall_counts([stay], PLAN, features)
    one_cell = counts.group_by("delay").agg(pl.col("asked").n_unique(), pl.len())
    assert (one_cell["asked"] == 1).all()
    named = counts.select("memory", "size").unique().height
    assert counts.height == named * len(TOLERANCES) * counts["delay"].n_unique()
    for part in ("recalled", "ghosts"):
        assert (counts[part] <= counts["asked"]).all()
        assert (counts[f"measured_{part}"] <= counts["measured_asked"]).all()
        wide, narrow = (counts.filter(pl.col("tolerance") == tol)[part] for tol in (1.0, 0.25))
        assert (wide >= narrow).all()


def test_the_draw_of_hours_is_capped_seeded_and_leaves_none_out_that_fits(stay):
    label = stay.label("spo2").events
    few, many = ask(stay, PLAN), ask(stay, replace(PLAN, events=1000))
    assert len(few.events) == 5
    assert few.events.tolist() == ask(stay, PLAN).events.tolist()
    assert set(few.events) < set(many.events)
    assert many.events.tolist() == np.flatnonzero(label[: len(label) - 6]).tolist()
    assert ((many.at >= 0) == (stay.hours[many.events, None] + np.array(DELAYS) <= stay.hours[-1])).all()


def test_permuting_the_held_out_vital_of_other_hours_changes_no_cache(stay):
    keys = stay.keys.copy()
    keys[:, 4] = np.random.default_rng(0).permutation(keys[:, 4])
    other = replace(stay, keys=keys)
    one, two = ask(stay, PLAN), ask(other, PLAN)
    for policy in ("density", "novelty", "random"):
        held, same = (memories.cache_streams(case, policy, 12, SIGMA) for case in (one, two))
        assert all((held[moment] == same[moment]).all() for moment in held)


def test_rows_hold_every_budget_and_net_is_recalled_less_ghost(features):
    stays = [invented_stay(60 + 9 * i, seed=i, stay_id=i, patient=i // 2) for i in range(6)]
    counts = recall_counts(stays, PLAN, features)
    rows = recall_rows(counts, PLAN, draws=200)
    assert {(row["budget"], row["budget_bytes"]) for row in rows} == {
        ("same state", 8 * memories.vla_floats(8)),
        ("same state", 8 * memories.vla_floats(16)),
        ("a third of the hours", None),
    }
    for row in rows:
        if row["budget"] == "same state" and row["memory"] not in ("svdd", "svdd-support") and row["net"] is not None:
            assert row["state_bytes"] <= row["budget_bytes"]
        if row["net"] is not None:
            assert row["net"] == pytest.approx(row["recalled"] - row["ghost"], abs=1e-12)
    one = next(r for r in rows if (r["delay"], r["tolerance"], r["memory"], r["events"]) == (6, 0.5, "delta", "all"))
    mine = counts.filter(
        (pl.col("delay") == 6)
        & (pl.col("tolerance") == 0.5)
        & (pl.col("memory") == "delta")
        & (pl.col("size") == one["size"])
    )
    assert one["recalled"] == pytest.approx((mine["recalled"] / mine["asked"]).mean())
    assert (one["stays"], one["patients"]) == (mine.height, mine["subject_id"].n_unique())


def test_no_stay_to_ask_gives_rows_that_say_why(features):
    counts = recall_counts([invented_stay(5, stay_id=1)], PLAN, features)
    assert counts.height == 0
    rows = recall_rows(counts, PLAN, draws=10)
    assert {row["net"] for row in rows} == {None}
    assert {row["reason"] for row in rows} == {"no stay lasts so long after such an event hour"}
    never = recall_rows(counts, PLAN, unmeasured=("spo2",), draws=10)
    assert {row["reason"] for row in never} == {"channel never measured"}


def test_one_patient_has_net_recall_without_an_interval(stay, features):
    rows = recall_rows(recall_counts([stay], PLAN, features), PLAN, draws=10)
    some = [row for row in rows if row["net"] is not None]
    assert some
    assert {(row["low"], row["reason"]) for row in some} == {(None, "fewer than two groups to resample")}
