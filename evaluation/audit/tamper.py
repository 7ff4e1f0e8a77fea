"""Stored states whose coefficients were moved: a load must refuse them, and the certificate must own up to the error.

Mass is moved from an active token to one of another key, so mass and file stay plausible and only the optimality
conditions can tell; or all coefficients are scaled, which leaves those conditions nearly as they were and only the mass
can tell. Mass moved between exact copies changes no score; such a state must load.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.audit.regimes import REGIMES, Case
from evaluation.audit.streams import Floats
from evaluation.audit.trial import score_scale
from evaluation.oracle_svdd import OracleSolution, deviation, solve
from memory.svdd import SVDDMemory

TOLERANCE = 1e-8  # a state off by more than this share of the range of the score is refused
SCALED = 1 / 3  # share of states that are scaled rather than moved
REGIMES_TAMPERED = (
    "gaussian",
    "near_duplicates",
    "exact_duplicates",
    "forward_filled",
    "all_at_cap",
    "patient_block_filled",
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Tampered:
    """One tampered state: how far its score is off relative to the tolerance, and what was said about it."""

    moved: float
    flagged: bool
    covered: bool
    sound_loads: bool
    copies_load: bool | None


def run_tamper(
    trials: int, seed: int, memory: type[SVDDMemory] = SVDDMemory, progress: Callable[[int], None] | None = None
) -> Row:
    """Tamper with `trials` states over several regimes and return the audit row `tamper`."""
    results = []
    for number in range(trials):
        rng = np.random.default_rng([seed, 0x7A, number])
        name = REGIMES_TAMPERED[number % len(REGIMES_TAMPERED)]
        results.append(_tamper(REGIMES[name].draw(rng, ()), rng, memory))
        if progress:
            progress(number + 1)
    wrong = [r for r in results if r.moved > 1]
    copies = [r.copies_load for r in results if r.copies_load is not None]
    return {
        "regime": "tamper",
        "title": "States moved by more than the tolerance",
        "attempted": len(results),
        "moved_beyond_tolerance": len(wrong),
        "flagged": sum(r.flagged for r in wrong),
        "smallest_flagged": min((r.moved for r in wrong if r.flagged), default=None),
        "largest_missed": max((r.moved for r in wrong if not r.flagged), default=None),
        "covered": sum(r.covered for r in results),
        "sound_states_loaded": sum(r.sound_loads for r in results),
        "copies_attempted": len(copies),
        "copies_loaded": sum(copies),
    }


def _tamper(case: Case, rng: np.random.Generator, memory: type[SVDDMemory]) -> Tampered:
    truth = solve(case.keys, case.C, case.sigma)
    exact = truth.exact_score(case.keys)
    scale = score_scale(truth, exact, truth.exact_score(case.keys + rng.normal(size=case.keys.shape)))
    built = memory(case.C, case.sigma)
    built.fit(case.keys)
    state = built.to_state()
    wanted = TOLERANCE * scale * float(np.exp(rng.uniform(np.log(1.5), np.log(1e6))))
    bad = copy.deepcopy(state)
    bad["alpha"] = (_scaled if rng.random() < SCALED else _moved_between_keys)(state, truth, wanted, rng)
    loaded = memory.from_state(bad, verify=False)
    error = float(deviation(exact, loaded.score(case.keys)).max())
    return Tampered(
        moved=error / (TOLERANCE * scale),
        flagged=not _loads(memory, bad),
        covered=error <= float(loaded.certificate().score_bound) + 2.0**-53 * 4,
        sound_loads=_loads(memory, state),
        copies_load=_copies_load(memory, state, truth, rng),
    )


def _loads(memory: type[SVDDMemory], state: dict[str, Any]) -> bool:
    try:
        memory.from_state(state)
    except ValueError:
        return False
    return True


def _scaled(state: Mapping[str, Any], truth: OracleSolution, wanted: float, rng: np.random.Generator) -> Floats:
    """Scale every coefficient, up or down, so that the score of some key shifts by `wanted`."""
    part = wanted / float(truth.f(truth.keys).max())
    return np.asarray(np.array(state["alpha"], dtype=np.float64) * (1 + part * rng.choice([-1, 1])))


def _moved_between_keys(
    state: Mapping[str, Any], truth: OracleSolution, wanted: float, rng: np.random.Generator
) -> Floats:
    """Move mass from one active token to a token elsewhere so that the score of some key shifts by `wanted`."""
    alpha = np.array(state["alpha"], dtype=np.float64)
    ids = np.asarray(state["ids"]).astype(int)
    giver = int(rng.choice(np.flatnonzero(alpha > 0)))
    elsewhere = np.flatnonzero((truth.keys[ids] != truth.keys[ids[giver]]).any(axis=1))
    taker = int(rng.choice(elsewhere))
    pair = truth.keys[ids[[giver, taker]]]
    kernel = np.exp(-((truth.keys[:, None, :] - pair[None, :, :]) ** 2).sum(axis=2) / truth.sigma**2)
    effect = 2 * float(np.abs(kernel[:, 0] - kernel[:, 1]).max())
    amount = min(wanted / effect, float(alpha[giver]))
    alpha[giver] -= amount
    alpha[taker] += amount
    return alpha


def _copies_load(
    memory: type[SVDDMemory], state: dict[str, Any], truth: OracleSolution, rng: np.random.Generator
) -> bool | None:
    """Shift mass between two exact copies inside the box; None where no active key has a copy."""
    alpha = np.array(state["alpha"], dtype=np.float64)
    ids = np.asarray(state["ids"]).astype(int)
    _, place, copies = np.unique(truth.keys[ids], axis=0, return_inverse=True, return_counts=True)
    twins = np.flatnonzero((copies[place.reshape(-1)] > 1) & (alpha > 0))
    if not len(twins):
        return None
    giver = int(rng.choice(twins))
    same = np.flatnonzero((place.reshape(-1) == place.reshape(-1)[giver]) & (np.arange(len(ids)) != giver))
    taker = int(rng.choice(same))
    amount = min(float(alpha[giver]), max(0.0, float(alpha.max() - alpha[taker]))) / 2
    alpha[giver] -= amount
    alpha[taker] += amount
    return _loads(memory, {**state, "alpha": alpha})
