"""One audited deletion: a memory is built, loses its keys, and is compared with the proved retained-key solution."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.audit.regimes import Case
from evaluation.audit.streams import Floats
from evaluation.oracle_svdd import Exact, OracleSolution, deviation, solve, spread
from memory.svdd import SVDDMemory

BUILDS = ("fit", "stream")
JITTER = 0.1  # published standard deviation of the noise on the probes
DECAY = 0.01  # published alternative to solving: multiply the coefficients of the deleted keys
ULP = 2.0**-52


@dataclass(frozen=True)
class Truth:
    """Exact scores before the deletion (at all keys) and after it (at the probes), each with its scale."""

    case: Case
    kept: Floats
    probes: Floats
    partition: tuple[str, ...]
    before: list[Exact]
    before_scale: float
    after: list[Exact]
    after_scale: float


@dataclass(frozen=True)
class Measured:
    """What one deletion showed: errors of scores, `error` relative to the range of the score where that is below 1."""

    path: str
    error: float
    absolute: float
    admission_error: float
    decay: float
    agreed: bool
    active_removed: bool
    margin_empty: bool
    score_bound: float
    bound_kind: str
    duality_gap: float
    kkt_residual: float
    mass_error: float
    covered: bool
    delete_seconds: float
    fit_seconds: float


@dataclass(frozen=True)
class Trial:
    """A trial that was measured, or the reason why it was not."""

    number: int
    built: str
    measured: Measured | None
    reason: str = ""


def run_trial(number: int, case: Case, rng: np.random.Generator, factory: type[SVDDMemory]) -> list[Trial]:
    """Delete the case's keys from a fitted and from a streamed memory; a trial that raises comes with its reason."""
    try:
        truth = establish(case, rng)
    except ValueError as error:
        return [Trial(number, built, None, f"no truth: {_reason(error)}") for built in BUILDS]
    return [_attempt(number, built, truth, factory) for built in BUILDS]


def establish(case: Case, rng: np.random.Generator) -> Truth:
    """Solve the problem before and after the deletion; probes are the retained and removed keys and jittered copies."""
    kept = np.delete(case.keys, case.removed, axis=0)
    jittered = kept + JITTER * rng.normal(size=kept.shape)
    probes = np.vstack([kept, case.keys[list(case.removed)], jittered])
    before, after = solve(case.keys, case.C, case.sigma), solve(kept, case.C, case.sigma)
    all_scores, scores = before.exact_score(case.keys), after.exact_score(probes)
    return Truth(
        case=case,
        kept=kept,
        probes=probes,
        partition=after.partition,
        before=all_scores,
        before_scale=score_scale(before, all_scores, scores),
        after=scores,
        after_scale=score_scale(after, scores[: len(kept)], scores),
    )


def score_scale(truth: OracleSolution, at_keys: list[Exact], elsewhere: list[Exact]) -> float:
    """Range of the score over the keys, at most 1; elsewhere, when all keys have one score by being on the margin."""
    return min(1.0, spread(elsewhere if set(truth.partition) == {"margin"} else at_keys))


def relative_error(exact: list[Exact], scores: Floats, scale: float) -> float:
    """Worst error of float64 scores over `scale`, less the two units in the last place that float64 cannot hold.

    A wide kernel gives scores near 3 that differ in the tenth digit; without the allowance the format would fail.
    """
    excess = deviation(exact, scores) - 2 * ULP * np.abs(scores)
    return float(max(excess.max(), 0.0) / scale)


def _attempt(number: int, built: str, truth: Truth, factory: type[SVDDMemory]) -> Trial:
    try:
        return Trial(number, built, _measure(built, truth, factory))
    except Exception as error:  # whatever it is, a failing trial is counted with its reason
        return Trial(number, built, None, _reason(error))


def _measure(built: str, truth: Truth, factory: type[SVDDMemory]) -> Measured:
    case = truth.case
    memory = _built(built, case, factory)
    admitted = relative_error(truth.before, memory.score(case.keys), truth.before_scale)
    decay = _decayed_error(memory, truth)
    active = bool(set(case.removed) & {int(i) for i in [*memory.margin, *memory.bound]})
    seconds, outcome = _timed(lambda: memory.delete(list(case.removed)))
    fit_seconds, _ = _timed(lambda: factory(case.C, case.sigma).fit(truth.kept))
    scores = memory.score(truth.probes)
    absolute = deviation(truth.after, scores)
    certificate = memory.certificate()
    return Measured(
        path=str(outcome.path),
        error=relative_error(truth.after, scores, truth.after_scale),
        absolute=float(absolute.max()),
        admission_error=admitted,
        decay=decay,
        agreed=_agreed(memory, truth),
        active_removed=active,
        margin_empty="margin" not in truth.partition,
        score_bound=float(certificate.score_bound),
        bound_kind=str(certificate.bound_kind),
        duality_gap=float(certificate.duality_gap),
        kkt_residual=float(certificate.kkt_residual),
        mass_error=float(certificate.mass_error),
        covered=bool((absolute - ULP / 2 * np.abs(scores) <= certificate.score_bound).all()),
        delete_seconds=seconds,
        fit_seconds=fit_seconds,
    )


def _built(built: str, case: Case, factory: type[SVDDMemory]) -> SVDDMemory:
    memory = factory(case.C, case.sigma)
    if built == "fit":
        return memory.fit(case.keys)
    for key in case.keys:
        memory.admit(key)
    return memory


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def _decayed_error(memory: SVDDMemory, truth: Truth) -> float:
    """Score error of multiplying the deleted coefficients by 0.01 and leaving the rest, as the paper shows it."""
    removed = list(truth.case.removed)
    weight = dict(zip((int(i) for i in memory.ids), np.asarray(memory.alpha, dtype=np.float64), strict=True))
    alpha = np.array([weight.get(i, 0.0) for i in removed])
    square = ((truth.probes[:, None, :] - truth.case.keys[removed][None, :, :]) ** 2).sum(axis=2)
    lost = 2 * (1 - DECAY) * np.exp(-square / truth.case.sigma**2) @ alpha
    return float(deviation(truth.after, memory.score(truth.probes) - lost).max())


def _agreed(memory: SVDDMemory, truth: Truth) -> bool:
    kept = np.delete(np.arange(len(truth.case.keys)), truth.case.removed)
    kinds = dict.fromkeys((int(i) for i in kept), "reserve")
    kinds |= dict.fromkeys((int(i) for i in memory.margin), "margin")
    kinds |= dict.fromkeys((int(i) for i in memory.bound), "bound")
    return kinds == dict(zip((int(i) for i in kept), truth.partition, strict=True))


def _reason(error: Exception) -> str:
    """Name the failure without its numbers, so that equal causes are counted together."""
    line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {re.sub(r'[-+]?[0-9][0-9.e+-]*', '#', line)}"
