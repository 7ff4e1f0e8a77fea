"""The audit harness: what it counts, what it refuses to hide, and that it sees a wrong memory."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evaluation.audit import REGIMES, run_audit, run_tamper
from evaluation.audit.streams import autocorrelated, forward_filled
from evaluation.audit.trial import relative_error
from evaluation.errors import EvaluationError
from evaluation.oracle_svdd import OracleSolution, solve, spread


class Reference:
    """A memory that is right because it asks the oracle again after every operation."""

    def __init__(self, C: float, sigma: float) -> None:
        self.C, self.sigma, self.keys, self.ids = C, sigma, np.empty((0, 0)), np.empty(0, dtype=int)

    def fit(self, keys: np.ndarray) -> Reference:
        self.keys, self.ids = keys, np.arange(len(keys))
        return self

    def admit(self, key: np.ndarray) -> None:
        self.fit(np.vstack([*self.keys, key]))

    def delete(self, ids: list[int]) -> SimpleNamespace:
        kept = ~np.isin(self.ids, ids)
        self.keys, self.ids = self.keys[kept], self.ids[kept]
        self.__dict__.pop("solution", None)
        return SimpleNamespace(path="resolved")

    @cached_property
    def solution(self) -> OracleSolution:
        return solve(self.keys, self.C, self.sigma)

    @property
    def alpha(self) -> np.ndarray:
        return self.solution.alpha

    def score(self, queries: np.ndarray) -> np.ndarray:
        return self.solution.score(queries)

    def _of(self, kind: str) -> list[int]:
        return [int(i) for i, k in zip(self.ids, self.solution.partition, strict=True) if k == kind]

    margin = property(lambda self: self._of("margin"))
    bound = property(lambda self: self._of("bound"))

    def certificate(self) -> SimpleNamespace:
        return SimpleNamespace(score_bound=1e-16, bound_kind="B", duality_gap=0.0, kkt_residual=0.0, mass_error=0.0)


class Wrong(Reference):
    """Scores a little off, with a certificate that denies it."""

    def score(self, queries: np.ndarray) -> np.ndarray:
        return super().score(queries) + 1e-7


class Breaking(Reference):
    """Refuses every third deletion."""

    deletions = 0

    def delete(self, ids: list[int]) -> SimpleNamespace:
        type(self).deletions += 1
        if type(self).deletions % 3 == 0:
            raise ValueError(f"margin empty after {type(self).deletions} steps")
        return super().delete(ids)


SMALL = [
    name for name, regime in REGIMES.items() if not regime.needs_vitals and "block" not in name and name[:3] != "ill"
]


def _rows(memory: Any, names: list[str], trials: int = 2, **options: Any) -> list[dict[str, Any]]:
    return run_audit(names, trials, 7, memory=memory, **options)["rows"]


def test_a_right_memory_passes_every_regime() -> None:
    rows = _rows(Reference, SMALL)
    assert {row["regime"] for row in rows} == set(SMALL)
    for row in rows:
        assert row["attempted"] == row["completed"] == row["covered"] == row["within_target"] == 2
        assert row["partition_agreement"] == 1.0
        assert row["error_worst"] <= row["target"]
        assert row["failures"] == {}


def test_a_score_off_by_less_than_any_eye_sees_is_reported_and_uncovered() -> None:
    fit, _ = _rows(Wrong, ["gaussian"])
    assert fit["within_target"] == fit["covered"] == 0
    assert fit["absolute_worst"] == pytest.approx(1e-7, rel=1e-6)
    assert fit["error_worst"] > fit["absolute_worst"]  # the range of the score is below 1
    assert fit["admission_error_worst"] > 1e-7


def test_failing_trials_are_counted_by_reason_and_named() -> None:
    Breaking.deletions = 0
    rows = _rows(Breaking, ["gaussian"], trials=3)
    assert sum(row["completed"] for row in rows) == 4
    assert [row["attempted"] for row in rows] == [3, 3]
    reasons = [row["failures"] for row in rows]
    assert sum(sum(counts.values()) for counts in reasons) == 2
    assert {reason for counts in reasons for reason in counts} == {"ValueError: margin empty after # steps"}
    assert sorted(number for row in rows for number in row["failed_trials"]) == [1, 2]


def test_statistics_of_a_regime_without_a_completed_trial_are_missing_not_zero() -> None:
    class Never(Reference):
        def fit(self, keys: np.ndarray) -> Reference:
            raise ValueError("no")

        def admit(self, key: np.ndarray) -> None:
            raise ValueError("no")

    row = _rows(Never, ["gaussian"])[0]
    assert row["completed"] == 0
    assert row["error_worst"] is None
    assert row["error_median"] is None
    assert row["failures"] == {"ValueError: no": 2}


def test_the_published_row_stands_beside_the_regimes_that_have_one() -> None:
    gaussian, wide = _rows(Reference, ["gaussian"])[0], _rows(Reference, ["wide_kernel"])[0]
    assert gaussian["published_error_worst"] == 6.4e-3
    assert gaussian["published_completed"] == 300
    assert wide["published_error_worst"] is None


def test_decaying_coefficients_leaves_a_visible_error() -> None:
    """The published alternative to solving is off by 8.3e-2 in the median; ours must be of that order."""
    row = _rows(Reference, ["gaussian"], trials=10)[0]
    assert 2e-2 < row["decay_median"] < 3e-1


def test_a_trial_depends_on_its_seed_and_regime_only() -> None:
    timed = {"delete_seconds_median", "fit_seconds_median", "fit_to_delete_ratio_median"}

    def bare(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if k not in timed} for row in rows]

    alone = bare(_rows(Reference, ["forward_filled"]))
    together = bare(_rows(Reference, ["gaussian", "forward_filled"]))
    assert alone == together[2:]


def test_stays_are_cut_into_forty_hours_and_the_distinct_regime_drops_repeats() -> None:
    rng = np.random.default_rng(0)
    stays = [forward_filled(rng, 200), autocorrelated(rng, 20)]
    charted = REGIMES["hourly"].draw(np.random.default_rng(1), stays)
    distinct = REGIMES["hourly_distinct"].draw(np.random.default_rng(1), stays)
    assert charted.keys.shape == distinct.keys.shape == (40, 6)
    gaps = np.sqrt(((distinct.keys[:, None] - distinct.keys[None]) ** 2).sum(axis=2)) + np.eye(40)
    assert gaps.min() > 0.1
    assert len(np.unique(charted.keys, axis=0)) < 40


def test_the_deduplicated_regime_refuses_stays_that_never_change() -> None:
    with pytest.raises(EvaluationError, match="longer stays"):
        REGIMES["hourly_distinct"].draw(np.random.default_rng(0), [np.zeros((100, 6))])


@pytest.mark.parametrize("name", ["patient_block", "patient_block_filled"])
def test_a_block_is_one_patient_of_48_hours_in_a_ward_of_200_to_300(name: str) -> None:
    for seed in range(20):
        case = REGIMES[name].draw(np.random.default_rng(seed), ())
        assert 200 <= len(case.keys) <= 300
        assert case.removed == tuple(range(case.removed[0], case.removed[0] + 48))
        assert (len(case.keys) - 48) * case.C >= 1


def test_forward_filled_hours_repeat_and_hold_each_channel() -> None:
    keys = forward_filled(np.random.default_rng(3), 2000)
    held = (np.diff(keys, axis=0) == 0).mean()
    assert 0.7 < held < 0.8
    assert len(np.unique(keys, axis=0)) < 1800


def test_autocorrelated_hours_have_unit_variance_and_the_stated_persistence() -> None:
    keys = autocorrelated(np.random.default_rng(4), 20_000, channels=2)
    assert keys.std(axis=0) == pytest.approx([1, 1], abs=0.1)
    assert np.corrcoef(keys[:-1, 0], keys[1:, 0])[0, 1] == pytest.approx(0.9, abs=0.02)


def test_an_unsolved_vector_does_not_pass_under_a_wide_kernel() -> None:
    """Scores of a wide kernel agree to ten digits whatever the coefficients: the error is read against their range."""
    case = REGIMES["wide_kernel"].draw(np.random.default_rng(5), ())
    truth = solve(case.keys, case.C, 1e4)
    exact = truth.exact_score(case.keys)
    uniform = 2 * np.exp(-((case.keys[:, None] - case.keys[None]) ** 2).sum(axis=2) / 1e8).mean(axis=1) - truth.rho
    assert np.abs(uniform - truth.score(case.keys)).max() < 1e-6
    assert relative_error(exact, uniform, spread(exact)) > 1e-2


@pytest.mark.parametrize(
    ("names", "trials", "vitals", "message"),
    [
        (["gausian"], 1, None, "unknown regime gausian"),
        (["gaussian"], 0, None, "at least 1"),
        (["hourly"], 1, None, "none was given"),
        (["all"], 1, [np.zeros((39, 6))], "at least 40 hours"),
    ],
)
def test_refuses_in_one_line(names: list[str], trials: int, vitals: Any, message: str) -> None:
    with pytest.raises(EvaluationError, match=message) as caught:
        run_audit(names, trials, 0, vitals=vitals)
    assert "\n" not in str(caught.value)


def test_progress_reaches_the_end_of_each_regime() -> None:
    seen: list[tuple[str, float]] = []
    _rows(Reference, ["gaussian"], progress=lambda name, share: seen.append((name, share)))
    assert seen == [("gaussian", 0.5), ("gaussian", 1.0)]


class Stored(Reference):
    """A reference with a state; `from_state` checks nothing and its certificate is blind."""

    def to_state(self) -> dict[str, Any]:
        return {"keys": self.keys, "ids": self.ids, "alpha": self.alpha, "C": self.C, "sigma": self.sigma}

    @classmethod
    def from_state(cls, state: dict[str, Any], verify: bool = True) -> Stored:
        memory = cls(state["C"], state["sigma"])
        memory.fit(state["keys"])
        memory.stored = state["alpha"]
        return memory

    def score(self, queries: np.ndarray) -> np.ndarray:
        square = ((queries[:, None] - self.keys[None]) ** 2).sum(axis=2)
        return 2 * np.exp(-square / self.sigma**2) @ self.stored - self.solution.rho


def test_a_load_that_checks_nothing_is_caught_tampering() -> None:
    row = run_tamper(12, 3, Stored)  # type: ignore[arg-type]
    assert row["attempted"] == 12
    assert row["moved_beyond_tolerance"] >= 10
    assert row["flagged"] == 0
    assert row["largest_missed"] > 1
    assert row["covered"] < 12
    assert row["sound_states_loaded"] == 12
    assert row["copies_attempted"] == row["copies_loaded"] >= 1
