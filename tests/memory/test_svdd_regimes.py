"""Deletion in every regime against the proved solution, at CI size; the evidence runs the same audit at 300 trials."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cohort_sql.build import build_cohort
from cohort_sql.source import find_source
from evaluation.audit import REGIMES, run_audit, run_tamper
from evaluation.audit.run import seeded
from evaluation.audit.streams import forward_filled
from evaluation.oracle_svdd import deviation, solve
from evaluation.retention import stays_from_bucket
from memory.svdd import SVDDMemory

DATA = Path(os.environ.get("ICU_MEMORY_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRIALS = 20
SEED = 1


@pytest.fixture(scope="module")
def charted(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    root = DATA / "mimic_demo_iv"
    assert root.is_dir(), f"no recordings at {root}; set ICU_MEMORY_TEST_DATA to the folder that holds mimic_demo_iv"
    out = tmp_path_factory.mktemp("cohort")
    build_cohort(
        find_source(root),
        out / "cohort",
        preset="paper",
        stays=None,
        seed=0,
        buckets=4,
        scratch=out / "scratch",
        threads=1,
    )
    hourly = pl.read_parquet(out / "cohort" / "hourly" / "**" / "*.parquet")
    return [stay.keys for stay in stays_from_bucket(hourly, pl.read_parquet(out / "cohort" / "stays.parquet"))]


@pytest.mark.parametrize("name", REGIMES)
def test_deletion_equals_the_retained_optimum(name: str, request: pytest.FixtureRequest) -> None:
    vitals = request.getfixturevalue("charted") if REGIMES[name].needs_vitals else None
    for row in run_audit([name], TRIALS, SEED, vitals=vitals)["rows"]:
        assert row["failures"] == {}
        assert row["completed"] == TRIALS
        assert row["error_worst"] <= row["target"], f"trial {row['worst_trial']} built by {row['built']}"
        assert row["admission_error_worst"] <= row["target"]
        assert row["covered"] == TRIALS


def test_the_regimes_reach_the_cases_they_are_named_after() -> None:
    """An audit of empty margins that never met one, or of copies without copies, would prove nothing."""
    at_cap = run_audit(["all_at_cap"], TRIALS, SEED)["rows"][0]
    full = run_audit(["mass_just_fits"], TRIALS, SEED)["rows"][0]
    assert at_cap["margin_empty"] >= TRIALS // 2
    assert full["margin_empty"] == TRIALS
    assert min(at_cap["active_removed"], full["active_removed"]) >= TRIALS // 4
    copies = REGIMES["exact_duplicates"].draw(seeded("exact_duplicates", SEED, 0), ()).keys
    assert len(np.unique(copies, axis=0)) == 6 < len(copies)


@pytest.fixture(scope="module")
def tampered() -> dict[str, Any]:
    return run_tamper(60, SEED)


def test_a_state_moved_by_more_than_its_tolerance_is_always_flagged(tampered: dict[str, Any]) -> None:
    missed = f"missed a state off by {tampered['largest_missed']} tolerances"
    assert tampered["flagged"] == tampered["moved_beyond_tolerance"] >= 50, missed
    assert tampered["sound_states_loaded"] == tampered["attempted"]


def test_mass_moved_between_exact_copies_is_no_error(tampered: dict[str, Any]) -> None:
    assert tampered["copies_loaded"] == tampered["copies_attempted"] >= 10


def test_the_certificate_of_a_tampered_state_covers_what_was_moved(tampered: dict[str, Any]) -> None:
    assert tampered["covered"] == tampered["attempted"]


@pytest.mark.parametrize("name", ["gaussian", "near_duplicates", "all_at_cap"])
def test_the_certificate_covers_a_state_that_left_an_active_key_out(name: str) -> None:
    """Optimal for every key but one, which sits at alpha = 0 and violates its condition from outside the margin."""
    for number in range(TRIALS):
        case = REGIMES[name].draw(seeded(name, SEED, number), ())
        whole = SVDDMemory(case.C, case.sigma).fit(case.keys)
        left_out = int((whole.margin + whole.bound)[0])
        rest = np.delete(np.arange(len(case.keys)), left_out)
        part = SVDDMemory(case.C, case.sigma).fit(case.keys[rest])
        alpha = np.zeros(len(case.keys))
        alpha[rest] = part.alpha
        state = whole.to_state() | {"alpha": alpha, "rho_shifted": part.to_state()["rho_shifted"]}
        loaded = SVDDMemory.from_state(state, verify=False)
        exact = solve(case.keys, case.C, case.sigma).exact_score(case.keys)
        assert deviation(exact, loaded.score(case.keys)).max() <= loaded.certificate().score_bound
        with pytest.raises(ValueError, match="may be off"):
            SVDDMemory.from_state(state)


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_deletion_and_a_fresh_fit_are_one_state(seed: int) -> None:
    """Delete A then B, B then A and both at once, on held vitals where most hours have a twin."""
    rng = np.random.default_rng(seed)
    keys = forward_filled(rng, 60)
    first, second = (sorted(int(i) for i in part) for part in np.split(rng.permutation(60)[:24], 2))
    kept = np.delete(keys, first + second, axis=0)
    truth = solve(kept, 1 / 15, 2.0).exact_score(keys)
    for order in ([first, second], [second, first], [first + second]):
        memory = SVDDMemory(1 / 15, 2.0).fit(keys)
        for ids in order:
            memory.delete(ids)
        assert deviation(truth, memory.score(keys)).max() <= memory.certificate().score_bound
    fresh = SVDDMemory(1 / 15, 2.0).fit(kept)
    assert deviation(truth, fresh.score(keys)).max() <= fresh.certificate().score_bound


@pytest.mark.parametrize("name", ["gaussian", "exact_duplicates", "forward_filled", "all_at_cap"])
def test_admitting_and_deleting_a_key_returns_to_the_same_score(name: str) -> None:
    rng = seeded(name, SEED, 3)
    case = REGIMES[name].draw(rng, ())
    memory = SVDDMemory(case.C, case.sigma).fit(case.keys)
    probes = case.keys + 0.1 * rng.normal(size=case.keys.shape)
    before, bound = memory.score(probes), memory.certificate().score_bound
    for number, stranger in enumerate([case.keys[0], 3 * rng.normal(size=case.keys.shape[1])]):
        memory.admit(stranger, id=10_000 + number)
        memory.delete([10_000 + number])
        after = memory.score(probes)
        assert np.abs(after - before).max() <= bound + memory.certificate().score_bound
