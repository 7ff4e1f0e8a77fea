"""The key sets on which deletion is audited: the three published ones and those that real vitals bring.

A regime draws one case per trial: keys in their order of admission, the positions to delete, the cap and the width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.audit.learned import learned_keys
from evaluation.audit.streams import Floats, autocorrelated, forward_filled
from evaluation.errors import EvaluationError

NU = 0.4  # published share of tokens meant to be active; the cap is 1 / (nu * n)
WIDTH = 2.0  # published kernel width in standard deviations
CHANNELS = 6
HOURS = 40  # hours of one stay in a case
SAME = 0.1  # hours closer than this count as one in the deduplicated regime
PATIENT_HOURS = 48
STRICT, LOOSE = 1e-12, 1e-9  # admissible error of a score, relative to the range of the score

Vitals = Sequence[Floats]


@dataclass(frozen=True)
class Case:
    """One trial's problem: keys (n, d) in order of admission, positions to delete, cap and kernel width."""

    keys: Floats
    removed: tuple[int, ...]
    C: float
    sigma: float


@dataclass(frozen=True)
class Regime:
    """A named way of drawing cases, the error it may show, and whether it needs hourly stays of a source."""

    name: str
    title: str
    draw: Callable[[np.random.Generator, Vitals], Case]
    target: float = LOOSE
    needs_vitals: bool = False


def _two_of(rng: np.random.Generator, keys: Floats, cap: float | None = None, sigma: float = WIDTH) -> Case:
    removed = rng.choice(len(keys), size=2, replace=False)
    return Case(keys, tuple(sorted(int(i) for i in removed)), cap or 1 / (NU * len(keys)), sigma)


def _gaussian_keys(rng: np.random.Generator) -> Floats:
    return rng.normal(size=(24, CHANNELS))


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _near_duplicates(rng: np.random.Generator, _: Vitals) -> Case:
    centres = np.repeat(rng.normal(size=(4, CHANNELS)), 6, axis=0)
    return _two_of(rng, rng.permutation(centres + 0.02 * rng.normal(size=centres.shape)))


def _exact_duplicates(rng: np.random.Generator, _: Vitals) -> Case:
    places = rng.normal(size=(6, CHANNELS))
    return _two_of(rng, rng.permutation(np.repeat(places, rng.integers(3, 9, size=6), axis=0)))


def _hours_of_a_stay(rng: np.random.Generator, vitals: Vitals) -> Case:
    stay = vitals[rng.choice([i for i, hours in enumerate(vitals) if len(hours) >= HOURS])]
    start = int(rng.integers(len(stay) - HOURS + 1))
    return _two_of(rng, stay[start : start + HOURS])


def _distinct_hours_of_a_stay(rng: np.random.Generator, vitals: Vitals) -> Case:
    """Keep an hour only when it is farther than 0.1 from every hour kept before, as the published audit does."""
    for position in rng.permutation(len(vitals)):
        stay = vitals[position]
        kept: list[int] = []
        for hour, key in enumerate(stay):
            if len(kept) < HOURS and (((stay[kept] - key) ** 2).sum(axis=1) > SAME**2).all():
                kept.append(hour)
        if len(kept) == HOURS:
            return _two_of(rng, stay[kept])
    raise EvaluationError(
        f"audit: no stay has {HOURS} hours farther than {SAME} apart; give a source with longer stays"
    )


def _all_at_cap(rng: np.random.Generator, _: Vitals) -> Case:
    """As many keys on an outer shell as the mass fills: each is at the cap, the inner keys in reserve, none between."""
    outer = int(rng.integers(6, 13))
    direction = rng.normal(size=(outer, CHANNELS))
    shell = rng.uniform(3.0, 4.0, size=(outer, 1)) * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    inner = 0.2 * rng.normal(size=(24 - outer, CHANNELS))
    return _two_of(rng, rng.permutation(np.vstack([shell, inner])), 1 / outer, _log_uniform(rng, 6, 200))


def _mass_just_fits(rng: np.random.Generator, _: Vitals) -> Case:
    keys = _gaussian_keys(rng)
    return _two_of(rng, keys, 1 / (len(keys) - 2))


def _wide_kernel(rng: np.random.Generator, _: Vitals) -> Case:
    cap = 1 / (NU * 24) if rng.random() < 0.5 else 1 / 10
    return _two_of(rng, _gaussian_keys(rng), cap, _log_uniform(rng, 20, 1e5))


def _block(rng: np.random.Generator, stay: Callable[[np.random.Generator, int], Floats]) -> Case:
    """A ward of several patients, 200 to 300 hours in all, from which one patient of 48 hours leaves."""
    total = int(rng.integers(200, 301))
    others = rng.integers(30, 70, size=12)
    lengths = others[: int(np.searchsorted(np.cumsum(others), total - PATIENT_HOURS)) + 1].tolist()
    lengths[-1] -= sum(lengths) - (total - PATIENT_HOURS)
    leaving = int(rng.integers(len(lengths) + 1))
    lengths.insert(leaving, PATIENT_HOURS)
    start = sum(lengths[:leaving])
    keys = np.vstack([stay(rng, length) for length in lengths if length])
    return Case(keys, tuple(range(start, start + PATIENT_HOURS)), 1 / (NU * total), WIDTH)


def _learned(rng: np.random.Generator, _: Vitals) -> Case:
    keys, sigma = learned_keys(rng, HOURS)
    return _two_of(rng, keys, sigma=sigma)


def _ill_conditioned(rng: np.random.Generator, _: Vitals) -> Case:
    cap = 1 / (NU * 400) if rng.random() < 0.5 else 1 / _log_uniform(rng, 4, 150)
    return _two_of(rng, rng.normal(size=(400, 2)), cap, _log_uniform(rng, 2, 30))


_ALL = (
    Regime("gaussian", "Gaussian, 24 keys", lambda rng, _: _two_of(rng, _gaussian_keys(rng)), STRICT),
    Regime("near_duplicates", "Near duplicates, 4 clusters of 6", _near_duplicates),
    Regime("hourly", "Hourly vitals as charted, 40 hours", _hours_of_a_stay, STRICT, needs_vitals=True),
    Regime("hourly_distinct", "Hourly vitals, distinct at 0.1", _distinct_hours_of_a_stay, STRICT, needs_vitals=True),
    Regime("learned_keys", "Keys that a trained layer learned, 40 hours", _learned),
    Regime("exact_duplicates", "Exact duplicates, 3 to 8 copies", _exact_duplicates),
    Regime("forward_filled", "Forward-filled, 40 hours", lambda rng, _: _two_of(rng, forward_filled(rng, HOURS))),
    Regime("all_at_cap", "Every active key at the cap", _all_at_cap),
    Regime("mass_just_fits", "n C = 1 after deletion", _mass_just_fits),
    Regime(
        "narrow_kernel",
        "Very small sigma",
        lambda rng, _: _two_of(rng, _gaussian_keys(rng), sigma=_log_uniform(rng, 0.01, 0.3)),
    ),
    Regime("wide_kernel", "Very large sigma", _wide_kernel),
    Regime("patient_block", "One patient of 48 hours, autocorrelated", lambda rng, _: _block(rng, autocorrelated)),
    Regime(
        "patient_block_filled", "One patient of 48 hours, forward-filled", lambda rng, _: _block(rng, forward_filled)
    ),
    Regime("ill_conditioned", "2-D keys, wide kernel, n = 400", _ill_conditioned),
)
REGIMES: dict[str, Regime] = {regime.name: regime for regime in _ALL}
