"""Certificates bound the true error of any feasible state, right or wrong."""

from __future__ import annotations

import numpy as np
import pytest
from streams import STREAMS

from evaluation.oracle_svdd import deviation, solve
from memory.contract import MemoryRefused
from memory.svdd import SVDDMemory
from memory.svdd.certificate import LocationState, certify

CAP, SIGMA = 1 / 9.5, 2.0


def loaded(keys, mass, shifted_rho=None):
    """A memory holding given coefficients at distinct keys, right or wrong."""
    state = SVDDMemory(CAP, SIGMA).fit(keys).to_state()
    if shifted_rho is not None:
        state["rho_shifted"] = shifted_rho
    return SVDDMemory.from_state(state | {"alpha": mass, "mass": mass}, verify=False)


def interval_distance(rho, truth):
    return max(truth.rho_lo - rho, rho - truth.rho_hi, 0.0)


@pytest.mark.parametrize("size", [1e-12, 1e-9, 1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_covers_the_error_of_a_disturbed_state(size, seed):
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(30, 4))
    right = SVDDMemory(CAP, SIGMA).fit(keys)
    mass = right.alpha.copy()
    giver, taker = rng.permutation(30)[:2]
    move = min(size, mass[giver], CAP - mass[taker])
    mass[giver] -= move
    mass[taker] += move
    memory = loaded(keys, mass)
    truth = solve(keys, CAP, SIGMA)
    probes = np.vstack([keys, rng.normal(size=(200, 4)) * 2])
    certificate = memory.certificate()
    wrong_sum = np.abs((memory.score(probes) + memory.rho) - truth.f(probes)).max()
    assert wrong_sum + interval_distance(memory.rho, truth) <= certificate.score_bound + 1e-15


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_an_exact_state_is_certified_linearly_and_the_bound_covers_it(name):
    keys = np.unique(STREAMS[name](np.random.default_rng(1), 60), axis=0)
    memory = SVDDMemory(CAP, SIGMA).fit(keys)
    certificate = memory.certificate()
    truth = solve(keys, CAP, SIGMA)
    assert certificate.bound_kind == "B"
    assert deviation(truth.exact_score(keys), memory.score(keys)).max() <= certificate.score_bound < 1e-12


def test_the_linear_bound_shrinks_in_step_with_the_error():
    keys = np.random.default_rng(2).normal(size=(30, 4))
    memory = SVDDMemory(CAP, SIGMA).fit(keys)
    first, second = memory.margin[:2]
    bounds = []
    for size in (1e-7, 1e-9):
        mass = memory.alpha.copy()
        mass[first] -= size
        mass[second] += size
        bounds.append(loaded(keys, mass).certificate())
    assert bounds[1].score_bound < bounds[0].score_bound / 50
    assert bounds[1].duality_gap < bounds[0].duality_gap / 50
    assert {bound.bound_kind for bound in bounds} == {"B"}


def test_the_gap_is_an_upper_bound_of_the_objective_error():
    rng = np.random.default_rng(3)
    keys = rng.normal(size=(25, 3))
    kernel = np.exp(-((keys[:, None] - keys[None]) ** 2).sum(axis=2) / SIGMA**2)
    best = SVDDMemory(CAP, SIGMA).fit(keys).alpha
    for _ in range(30):
        mass = np.clip(best + 0.02 * rng.normal(size=25), 0, CAP)
        mass /= mass.sum()
        if mass.max() > CAP:
            continue
        gap = loaded(keys, mass).certificate().duality_gap
        assert gap >= mass @ kernel @ mass - best @ kernel @ best - 1e-14


def test_the_certificate_is_computed_from_the_state_not_carried_along():
    keys = np.random.default_rng(4).normal(size=(30, 4))
    memory = SVDDMemory(CAP, SIGMA).fit(keys)
    mass = memory.alpha.copy()
    first, second = memory.margin[:2]
    mass[first], mass[second] = mass[second], mass[first]
    assert loaded(keys, mass).certificate().kkt_residual > 1e3 * memory.certificate().kkt_residual


def test_a_coefficient_outside_its_box_is_no_certified_state():
    keys = np.random.default_rng(5).normal(size=(20, 2))
    memory = SVDDMemory(CAP, SIGMA).fit(keys)
    mass = memory.alpha.copy()
    mass[np.argmax(mass)] += 0.01
    mass[np.argmin(mass)] -= 0.01
    assert loaded(keys, mass).certificate().kkt_residual >= 0.01 - 1e-9


def pruned_state(seed=6):
    keys = np.random.default_rng(seed).normal(size=(60, 2))
    memory = SVDDMemory(CAP, SIGMA).fit(keys)
    memory.prune()
    return memory.to_state(), keys


def forged(state, **cold):
    return state | {"cold": state["cold"] | cold}


def test_a_cold_token_that_would_be_active_is_seen_once_its_expiry_has_passed():
    state, _ = pruned_state()
    keys = state["cold"]["keys"].copy()
    keys[0] = [6.0, 6.0]
    expiry = state["cold"]["expiry"].copy()
    expiry[0] = state["cold"]["drift"] + state["cold"]["drift_low"]
    memory = SVDDMemory.from_state(forged(state, keys=keys, expiry=expiry), verify=False)
    everyone = np.vstack([state["keys"][state["location"]], keys])
    truth = solve(everyone, CAP, SIGMA)
    error = deviation(truth.exact_score(everyone), memory.score(everyone)).max()
    assert 0.01 < error <= memory.certificate().score_bound


@pytest.mark.parametrize(
    "change",
    [
        lambda cold: {"keys": np.vstack([[6.0, 6.0], cold["keys"][1:]])},
        lambda cold: {"expiry": cold["expiry"] + 0.5},
        lambda cold: {"drift": cold["drift"] - 0.5},
        lambda cold: {"expiry": np.full_like(cold["expiry"], np.nan)},
        lambda cold: {"expiry": np.full_like(cold["expiry"], np.inf)},
        lambda cold: {"drift": np.nan},
        lambda cold: {"keys": cold["keys"][:, :1]},
        lambda cold: {"values": np.zeros((len(cold["ids"]), 3))},
        lambda cold: {"ids": cold["ids"].astype(float)},
        lambda cold: {"ids": cold["ids"][:, None]},
    ],
)
def test_forged_cold_tokens_are_refused(change):
    state, _ = pruned_state()
    with pytest.raises(MemoryRefused):
        SVDDMemory.from_state(forged(state, **change(state["cold"])))


def test_lapsed_expiries_are_honest_and_load():
    state, keys = pruned_state()
    lapsed = forged(state, expiry=np.full_like(state["cold"]["expiry"], -np.inf))
    memory = SVDDMemory.from_state(lapsed)
    assert memory.certificate().score_bound < 1e-12
    assert memory.admit(keys[0] + 0.1, id=99).reexamined >= len(memory.cold_ids)


def test_one_location_is_certified():
    certificate = SVDDMemory(1.0, 1.0).fit(np.zeros((4, 2))).certificate()
    assert certificate.kkt_residual == 0.0
    assert certificate.rho_interval[0] <= -1.0 + 1e-15


def test_the_mass_error_is_reported():
    state = LocationState(np.array([[0.0], [1.0]]), np.array([0.5, 0.4]), np.array([1.0, 1.0]), 1.0, 0.3)
    assert certify(state).mass_error == pytest.approx(0.1)


def tampered(change):
    keys = np.random.default_rng(7).normal(size=(30, 4))
    state = SVDDMemory(CAP, SIGMA).fit(keys).to_state()
    change(state)
    return state


def move_mass(state, size):
    alpha = state["alpha"].copy()
    inside = np.flatnonzero((alpha > size) & (alpha < CAP - size))[:2]
    alpha[inside] += [size, -size]
    state["alpha"] = alpha


@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-6, 1e-7])
def test_a_state_whose_score_was_moved_is_refused_and_can_be_audited(size):
    state = tampered(lambda state: move_mass(state, size))
    with pytest.raises(MemoryRefused, match="may be off by"):
        SVDDMemory.from_state(state)
    assert SVDDMemory.from_state(state, verify=False).certificate().kkt_residual > 1e-12


def test_a_moved_rho_is_refused():
    state = tampered(lambda state: state.update(rho_shifted=state["rho_shifted"] + 1e-6))
    with pytest.raises(MemoryRefused, match="may be off by"):
        SVDDMemory.from_state(state)


def test_a_wrong_mass_is_refused():
    def grow(state):
        state["alpha"] = state["alpha"] * (1 + 1e-8)

    with pytest.raises(MemoryRefused):
        SVDDMemory.from_state(tampered(grow))


def test_mass_moved_between_exact_copies_is_no_error():
    keys = np.repeat(np.random.default_rng(8).normal(size=(10, 3)), 2, axis=0)
    state = SVDDMemory(1 / 7.5, 2.0).fit(keys).to_state()
    alpha = state["alpha"].copy()
    first = int(np.argmax((alpha > 0.01) & (alpha < 1 / 7.5 - 0.01)))
    copy = first ^ 1
    alpha[first] += 0.005
    alpha[copy] -= 0.005
    again = SVDDMemory.from_state(state | {"alpha": alpha})
    assert again.score(keys) == pytest.approx(SVDDMemory.from_state(state).score(keys), abs=1e-15)


@pytest.mark.parametrize("alpha", [0.0, -1.0])
def test_a_solved_state_without_mass_is_refused(alpha):
    with pytest.raises(MemoryRefused, match="no mass"):
        SVDDMemory.from_state(tampered(lambda state: state.update(alpha=np.full_like(state["alpha"], alpha))))


@pytest.mark.parametrize("size", [1e-8, 1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize("giver", ["margin", "bound", "reserve"])
def test_the_bound_covers_a_coefficient_outside_its_box(size, giver):
    keys = np.random.default_rng(9).normal(size=(30, 4))
    memory = SVDDMemory(CAP, SIGMA).fit(keys)
    mass = memory.alpha.copy()
    mass[getattr(memory, giver)[0]] -= size if giver == "reserve" else -CAP - size
    mass[memory.margin[-1]] += size if giver == "reserve" else -CAP - size
    spoilt, truth = loaded(keys, mass), solve(keys, CAP, SIGMA)
    wrong_sum = np.abs((spoilt.score(keys) + spoilt.rho) - truth.f(keys)).max()
    assert wrong_sum + interval_distance(spoilt.rho, truth) <= spoilt.certificate().score_bound
