"""The deletion audit over regimes: seeded trials, both ways of building a memory, rows that hide nothing."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from evaluation.audit.regimes import HOURS, REGIMES, Regime
from evaluation.audit.streams import Floats
from evaluation.audit.table import summarise
from evaluation.audit.trial import BUILDS, Trial, run_trial
from evaluation.errors import EvaluationError
from memory.svdd import SVDDMemory

SCHEMA_VERSION = 1
Progress = Callable[[str, float], None]


def run_audit(
    regimes: Iterable[str],
    trials: int,
    seed: int,
    vitals: Sequence[Floats] | None = None,
    progress: Progress | None = None,
    memory: type[SVDDMemory] = SVDDMemory,
) -> dict[str, Any]:
    """Audit deletion in the named regimes ("all" for every one) and return {"schema_version", "rows"}.

    `vitals` holds one (hours, 6) array of standardised vitals per stay, for the regimes that cut cases out of real
    stays. Each trial removes two keys (or one patient) from a memory that was fitted and from one that was streamed,
    and compares its score with the proved retained-key solution. Errors are deterministic in (regime, seed, trial),
    times are not. Raises EvaluationError for an unknown regime, fewer than one trial, or missing vitals [SVA audit].
    """
    chosen = _chosen(regimes, trials, vitals)
    rows = []
    for regime in chosen:
        done = [
            t for number in range(trials) for t in _one(regime, number, trials, seed, vitals or (), progress, memory)
        ]
        rows += [summarise(regime, built, [t for t in done if t.built == built]) for built in BUILDS]
    return {"schema_version": SCHEMA_VERSION, "seed": seed, "trials": trials, "rows": rows}


def seeded(regime: str, seed: int, number: int) -> np.random.Generator:
    """Return the generator of one trial, which no other regime or trial shares."""
    return np.random.default_rng([seed, zlib.crc32(regime.encode()), number])


def _one(
    regime: Regime,
    number: int,
    trials: int,
    seed: int,
    vitals: Sequence[Floats],
    progress: Progress | None,
    memory: type[SVDDMemory],
) -> list[Trial]:
    rng = seeded(regime.name, seed, number)
    measured = run_trial(number, regime.draw(rng, vitals), rng, memory)
    if progress:
        progress(regime.name, (number + 1) / trials)
    return measured


def _chosen(regimes: Iterable[str], trials: int, vitals: Sequence[Floats] | None) -> list[Regime]:
    names = list(dict.fromkeys(regimes))
    names = list(REGIMES) if "all" in names else names
    unknown = sorted(set(names) - set(REGIMES))
    if unknown:
        raise EvaluationError(f"audit: unknown regime {', '.join(unknown)}; known are all, {', '.join(REGIMES)}")
    if trials < 1:
        raise EvaluationError(f"audit: {trials} trials asked for; ask for at least 1")
    usable = sum(len(stay) >= HOURS for stay in vitals or ())
    hungry = [name for name in names if REGIMES[name].needs_vitals]
    if hungry and not usable:
        raise EvaluationError(
            f"audit: {', '.join(hungry)} cut cases out of stays of at least {HOURS} hours, and none was given; "
            "give a source with such stays or leave these regimes out"
        )
    return [REGIMES[name] for name in names]
