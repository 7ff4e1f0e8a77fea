"""The oracle against closed forms, another solver, and the conditions of the problem recomputed in rationals."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

import clarabel
import numpy as np
import pytest
from scipy import sparse

from evaluation.oracle_svdd import GAP_LIMIT, OracleError, deviation, solve, spread


def _kernel(left: np.ndarray, right: np.ndarray, sigma: float) -> np.ndarray:
    return np.exp(-((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2) / sigma**2)


def _interior_point(keys: np.ndarray, cap: float, sigma: float) -> np.ndarray:
    n = len(keys)
    kernel = _kernel(keys, keys, sigma)
    constraints = sparse.csc_matrix(np.vstack([np.ones((1, n)), -np.eye(n), np.eye(n)]))
    right = np.concatenate([[1.0], np.zeros(n), np.full(n, cap)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    upper = sparse.csc_matrix(np.triu(2 * kernel))
    return np.array(clarabel.DefaultSolver(upper, -np.diag(kernel), constraints, right, cones, settings).solve().x)


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_an_interior_point_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(8, 50)), int(rng.integers(1, 7))
    keys, sigma, cap = rng.normal(size=(n, d)), float(rng.uniform(0.5, 4)), float(rng.uniform(1.2, 8) / n)
    probes = np.vstack([keys, rng.normal(size=(10, d))])
    found = solve(keys, cap, sigma)
    other = _interior_point(keys, cap, sigma)
    np.testing.assert_allclose(found.f(probes), 2 * _kernel(probes, keys, sigma) @ other, atol=2e-6, rtol=0)
    assert found.gap < GAP_LIMIT


def test_two_keys_share_the_mass_and_rho_follows() -> None:
    found = solve([[0.0], [1.5]], 0.8, 2.0)
    kappa = np.exp(-(1.5**2) / 4)
    np.testing.assert_allclose(found.alpha, [0.5, 0.5], rtol=1e-16)
    assert found.rho == pytest.approx(1 - (1 + kappa), abs=2e-16)
    assert found.partition == ("margin", "margin")
    assert found.rho_lo == pytest.approx(found.rho_hi, abs=1e-16)


def test_one_key_takes_what_its_copies_may_carry() -> None:
    found = solve(np.zeros((5, 3)), 0.25, 1.0)
    np.testing.assert_allclose(found.alpha, np.full(5, 0.2), rtol=1e-16)
    assert found.score([[0.0, 0.0, 0.0]])[0] == pytest.approx(2.0 - found.rho, abs=1e-16)
    assert found.rho == -1.0


@pytest.mark.parametrize("sigma", [0.05, 1.0, 50.0, 1e5])
def test_a_regular_simplex_is_shared_equally(sigma: float) -> None:
    found = solve(np.eye(6), 0.3, sigma)
    kappa = np.exp(-2.0 / sigma**2)
    np.testing.assert_allclose(found.alpha, np.full(6, 1 / 6), rtol=1e-15)
    assert found.rho == pytest.approx(1 - 2 * (1 + 5 * kappa) / 6, abs=4e-16)
    assert set(found.partition) == {"margin"}


def test_copies_weigh_in_with_their_number() -> None:
    """Three copies at one place have three caps, so a pair of places shares the mass although one key could not."""
    found = solve([[0.0], [0.0], [0.0], [2.0], [2.0], [2.0]], 0.2, 1.0)
    np.testing.assert_allclose(found.alpha, np.full(6, 1 / 6), rtol=1e-15)
    capped = solve([[0.0], [0.0], [0.0], [0.0], [2.0]], 0.3, 1.0)
    np.testing.assert_allclose(capped.alpha, [0.175] * 4 + [0.3], rtol=1e-15)
    assert capped.partition == ("margin",) * 4 + ("bound",)


def test_an_empty_margin_gives_the_interval_of_rho_and_its_upper_end() -> None:
    keys = np.array([[-2.0], [2.0], [0.0]])
    found = solve(keys, 0.5, 4.0)
    level = 1 - 2 * _kernel(keys, keys, 4.0) @ found.alpha
    np.testing.assert_array_equal(found.alpha, [0.5, 0.5, 0.0])
    assert found.partition == ("bound", "bound", "reserve")
    assert found.rho_lo == pytest.approx(level[2], abs=1e-15)
    assert found.rho == found.rho_hi == pytest.approx(level[:2].min(), abs=1e-15)


def test_every_key_at_the_cap_leaves_rho_unbounded_below() -> None:
    found = solve(np.random.default_rng(3).normal(size=(7, 2)), 1 / 7, 1.0)
    np.testing.assert_array_equal(found.alpha, np.full(7, 1 / 7))
    assert found.rho_lo == -np.inf
    assert set(found.partition) == {"bound"}


@pytest.mark.parametrize("cap", [1 / 3 + 1e-17, np.nextafter(1 / 3, 0), 1 / 3 * (1 + 4e-13)])
def test_a_cap_beside_the_inverse_of_an_integer_is_that_inverse(cap: float) -> None:
    np.testing.assert_array_equal(solve([[0.0], [1.0], [3.0]], cap, 1.0).alpha, np.full(3, 1 / 3))


def test_a_cap_further_from_the_inverse_of_an_integer_is_taken_as_it_is() -> None:
    with pytest.raises(OracleError, match=r"n\*C = "):
        solve([[0.0], [1.0], [3.0]], 1 / 3 * (1 - 1e-9), 1.0)


def test_reproduces_the_published_example() -> None:
    keys = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 0.9], [0.0, -10.0]])
    before, full, pruned = solve(keys[:3], 1.0, 5.0), solve(keys, 1.0, 5.0), solve(keys[[0, 1, 3]], 1.0, 5.0)
    assert before.partition == ("margin", "margin", "reserve")
    assert round(full.alpha[2], 8) == 0.03327001
    assert float(f"{np.abs(full.score(keys) - pruned.score(keys)).max():.5e}") == 4.07857e-3


def _hourly(rng: np.random.Generator, n: int) -> np.ndarray:
    steps = rng.normal(size=(n, 4))
    held = np.repeat(np.cumsum(steps, axis=0)[::5], 5, axis=0)[:n]
    return held + np.where(rng.random((n, 4)) < 0.2, 1e-9 * steps, 0.0)


def _hostile(name: str, rng: np.random.Generator) -> tuple[np.ndarray, float, float]:
    return {
        "near duplicates": (np.repeat(rng.normal(size=(4, 3)), 6, axis=0) + 1e-7 * rng.normal(size=(24, 3)), 0.1, 2.0),
        "exact duplicates": (np.repeat(rng.normal(size=(6, 3)), 5, axis=0), 0.09, 2.0),
        "held vitals": (_hourly(rng, 60), 1 / 15, 2.0),
        "all at cap": (rng.normal(size=(20, 3)), 1 / 8, 40.0),
        "narrow kernel": (rng.normal(size=(30, 3)), 0.1, 0.01),
        "wide kernel": (rng.normal(size=(40, 2)), 0.0601, 1e5),
    }[name]


@pytest.mark.parametrize(
    "name", ["near duplicates", "exact duplicates", "held vitals", "all at cap", "narrow kernel", "wide kernel"]
)
def test_the_optimality_conditions_hold_when_recomputed_in_rationals(name: str) -> None:
    """Exponentials by their series in exact fractions: no interval arithmetic, no shifted kernel, no code shared."""
    keys, cap, sigma = _hostile(name, np.random.default_rng(11))
    found = solve(keys, cap, sigma)
    weights = [_fraction(value) for value in found.alpha_exact]
    assert abs(sum(weights) - 1) < Fraction(1, 10**60)
    level = [1 - 2 * sum(w * _kappa(x, y, sigma) for y, w in zip(keys, weights, strict=True) if w) for x in keys]
    rho = _fraction(found.rho_exact)
    for kind, own in zip(found.partition, level, strict=True):
        condition = rho - own
        assert {"margin": abs(condition), "bound": condition, "reserve": -condition}[kind] < Fraction(1, 10**40)


def _fraction(value: object) -> Fraction:
    mantissa, exponent = (int(part) for part in value.mid().man_exp())  # type: ignore[attr-defined]
    return Fraction(mantissa) * Fraction(2) ** exponent


def _kappa(x: np.ndarray, y: np.ndarray, sigma: float) -> Fraction:
    square = sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(x, y, strict=True))
    exponent = square / Fraction(sigma) ** 2
    if exponent > 10**3:
        return Fraction(0)
    halvings = max(0, int(exponent).bit_length() + 4)
    small = Fraction(round(exponent * 2 ** (400 - halvings)), 2**400)
    term = total = Fraction(1)
    for k in range(1, 60):
        term = Fraction(round(-term * small / k * 2**400), 2**400)
        total += term
    for _ in range(halvings):
        total = Fraction(round(total * total * 2**400), 2**400)
    return total


def test_the_answer_does_not_depend_on_the_order_of_the_keys() -> None:
    rng = np.random.default_rng(5)
    keys, order = _hourly(rng, 40), rng.permutation(40)
    first, second = solve(keys, 1 / 10, 2.0), solve(keys[order], 1 / 10, 2.0)
    np.testing.assert_array_equal(first.alpha[order], second.alpha)
    np.testing.assert_array_equal(first.score(keys), second.score(keys))


def test_the_readout_is_the_weighted_mean_of_the_values() -> None:
    rng = np.random.default_rng(9)
    keys, values, probes = rng.normal(size=(12, 3)), rng.normal(size=(12, 2)), rng.normal(size=(5, 3))
    found = solve(keys, 0.2, 1.5)
    weights = _kernel(probes, keys, 1.5) * found.alpha
    np.testing.assert_allclose(found.read(probes, values), weights @ values / weights.sum(axis=1)[:, None], rtol=1e-13)


def test_a_deviation_sees_one_unit_in_the_last_place() -> None:
    found = solve(np.random.default_rng(2).normal(size=(15, 3)), 0.2, 2.0)
    exact, rounded = found.exact_score(found.keys), found.score(found.keys)
    assert deviation(exact, rounded).max() <= np.spacing(np.abs(rounded)).max() / 2
    assert deviation(exact, np.nextafter(rounded, np.inf)).min() >= np.spacing(np.abs(rounded)).min() / 2


def test_the_spread_of_scores_survives_a_kernel_that_drowns_it_in_float64() -> None:
    """Kappa - 1 falls with 1/sigma^2, and so does the spread, far below the resolution of a score near 3."""
    keys = np.random.default_rng(2).normal(size=(15, 3))
    near, far = (solve(keys, 0.123, sigma) for sigma in (1e4, 1e8))
    ratio = spread(far.exact_score(keys)) / spread(near.exact_score(keys))
    assert ratio == pytest.approx(1e-8, rel=1e-6)
    assert np.ptp(far.score(keys)) < 4e-15


@pytest.mark.parametrize(("keys", "cap", "sigma"), [([[np.nan]], 1.0, 1.0), ([[0.0]], 0.5, 1.0), ([[0.0]], 1.0, 0.0)])
def test_refuses_what_has_no_solution(keys: list[list[float]], cap: float, sigma: float) -> None:
    with pytest.raises(OracleError):
        solve(keys, cap, sigma)


def test_imports_no_room() -> None:
    source = Path(__file__).parents[2] / "evaluation" / "oracle_svdd.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    names = {a.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not names & {"memory", "evaluation", "cohort_sql", "reports", "flows"}
