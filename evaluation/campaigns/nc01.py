"""The campaign of protected-read banks: regimes, stress, a long run, both paths, hard states [NC01; MATH B7, B8]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from evaluation.campaigns import nc01_cost, nc01_local
from evaluation.campaigns.nc01_hard import hard_admissions
from evaluation.campaigns.nc01_streams import REGIMES, Floats, Stream, out_of_domain, plain, regimes, stressed
from evaluation.campaigns.nc01_watch import Watch, watched_run
from evaluation.campaigns.table import Findings, Progress, Row, Size, at_most, equals, judged, not_attempted
from evaluation.errors import EvaluationError
from evaluation.published import NC01_PUBLISHED, PublishedFigure
from memory.nc01 import CP64, NC01Bank, RandomOffers
from memory.nc01.bank import Run
from memory.nc01.limits import PIN_RADIUS, RADIUS, RETENTION, Path

DTYPES = {"float64": torch.float64, "float32": torch.float32}
# seeds, tokens, stress banks and tokens, tokens of the long run, tokens of the two paths, hard states, local cases
SIZES = {
    "ci": (1, 640, 4, 256, 1_088, 256, 100, 8),
    "evidence": (3, 4_096, 24, 512, 32_832, 1_024, 10_000, 145),
}
ROUNDED = "the loop rounds X at every token; on segments it is rounded once in 64"
LONG_BANKS = 32
PATHS: tuple[Path, Path] = ("segment", "sequential")
OFFER_EVERY = 8  # boundaries of the long run between offers: 2,080 admissions of 32 banks are 65 each
GENERATORS = "the source publishes no generator: counts and norms are those of ours"
PATH_GAP = {"float64": 1e-14, "float32": 1e-6}
DRIFT = {"float64": 1e-11, "float32": 4e-7}


def run(size: Size, seed: int, progress: Progress) -> Findings:
    """All parts of the campaign; "ci" is a small version of the same."""
    seeds, tokens, banks, stress_tokens, long_tokens, path_tokens, states, cases = SIZES[size]
    parts: tuple[Callable[[], Findings], ...] = (
        lambda: regimes_part(seeds, tokens, seed),
        lambda: stress_part(banks, stress_tokens, seed),
        lambda: paths_part(seeds, path_tokens, seed),
        lambda: from_zero(long_tokens, seed),
        lambda: hard_admissions(states, seed),
        lambda: nc01_local.checks(cases, seed) + nc01_cost.cost() + _elsewhere(),
    )
    found = Findings([], [])
    for done, part in enumerate(parts):
        progress("nc01", done / len(parts))
        found += part()
    progress("nc01", 1.0)
    return found


def regimes_part(seeds: int, tokens: int, seed: int) -> Findings:
    """Every protected read after every token of seven regimes, in both precisions."""
    conditions = f"{len(REGIMES)} regimes x {seeds} seeds x {tokens:,} tokens"
    found, transitions, outside = Findings([], []), 0, 0
    for name, dtype in DTYPES.items():
        stream = regimes(tokens, seeds, seed, dtype)
        outside += out_of_domain(stream)
        transitions += stream[2].numel()
        bank = NC01Bank(len(REGIMES) * seeds, **CP64, dtype=dtype)
        watch = watched_run(bank, stream, RandomOffers(seed))
        raw = [{"part": "regimes", "dtype": name, **watch.record()}, *_by_regime(name, seeds, watch)]
        found += Findings([*_regime_rows(name, conditions, watch), _segment_drift(name, conditions, stream, seed)], raw)
    both = conditions + " x 2 precisions"
    return found + Findings(
        [
            judged("transitions", both, transitions, equals(172_032), NC01_PUBLISHED["transitions"]),
            judged("tokens outside the domain", both, outside, equals(0), NC01_PUBLISHED["out_of_domain"]),
        ],
        [],
    )


def _by_regime(name: str, seeds: int, watch: Watch) -> list[dict[str, Any]]:
    """The largest figures of each regime."""
    parts = {"retention": watch.retentions, "drift": watch.drifts, "norm": watch.norms}
    largest = {what: part.reshape(len(REGIMES), seeds).amax(1).tolist() for what, part in parts.items()}
    return [
        {"part": "regime", "dtype": name, "regime": regime, **{what: part[i] for what, part in largest.items()}}
        for i, regime in enumerate(REGIMES)
    ]


def _regime_rows(name: str, conditions: str, watch: Watch) -> list[Row]:
    where, digits = f"{conditions}, {name}", {"float64": 1e-9, "float32": 2e-7}[name]
    rows = [
        _published(f"retention error, {name}", where, watch.retention, f"retention_{name}", digits),
        _published(f"admission error, {name}", where, watch.admission, f"admission_{name}", digits),
        judged(f"drift of a protected read, {name}", where, watch.drift, at_most(DRIFT[name]), reason=ROUNDED),
        judged(
            f"retention violations in {watch.reads:,} protected reads, {name}",
            where,
            watch.violations,
            equals(0),
            NC01_PUBLISHED["violations"],
        ),
    ]
    for quantity, ours in (("admissions", float(watch.admitted)), ("norm", watch.norm)):
        figure = NC01_PUBLISHED[quantity]
        near = equals(float(figure.value), 5e-4 if quantity == "norm" else 0)
        rows.append(judged(f"{quantity}, {name}", where, ours, near, figure, GENERATORS))
    return rows


def _segment_drift(name: str, conditions: str, stream: Stream, seed: int) -> Row:
    """The drift of protected reads on the segment path, which rounds X once in 64 tokens instead of 64 times."""
    bank, policy, worst = NC01Bank(len(stream[0]), **CP64, dtype=DTYPES[name]), RandomOffers(seed), 0.0
    for start in range(0, stream[2].shape[1], CP64["cadence"]):
        k, v, alpha, beta = (part[:, start : start + CP64["cadence"]] for part in stream)
        bank.segment(k, v, alpha, beta)
        worst = max(worst, float(distances(bank, bank.pins()).max(initial=0.0)))
        policy.see(k, v)
        offer = policy.offer(bank.read)
        bank.boundary(offer.key, offer.value)
    where = f"{conditions}, {name}, segment path, before every boundary"
    return judged(f"drift of a protected read, {name}, segments", where, worst, at_most(DRIFT[name]))


def _published(quantity: str, where: str, ours: float, name: str, digits: float) -> Row:
    """Reproduced where ours is not above the published error by more than `digits`."""
    return judged(quantity, where, ours, at_most(float(NC01_PUBLISHED[name].value) + digits), NC01_PUBLISHED[name])


def stress_part(banks: int, tokens: int, seed: int) -> Findings:
    """Values of up to 10^4 at the largest gate: norm and reads must hold, refusals may happen."""
    found = Findings([], [])
    for name, dtype in DTYPES.items():
        stream = stressed(banks, tokens, seed, dtype)
        watch = watched_run(NC01Bank(banks, **CP64, dtype=dtype), stream, RandomOffers(seed))
        where = f"{banks} banks x {tokens} tokens, {name}, {out_of_domain(stream)} outside the domain"
        error, norm = NC01_PUBLISHED["stress_error"], NC01_PUBLISHED["stress_norm"]
        rows = [
            judged("stress: largest distance of a protected read", where, watch.retention, at_most(RETENTION), error),
            judged("stress: norm", where, watch.norm, at_most(RADIUS), norm),
        ]
        found += Findings(rows, [{"part": "stress", "dtype": name, **watch.record()}])
    return found


def paths_part(seeds: int, tokens: int, seed: int) -> Findings:
    """The sequential and the segment path on the same streams: decisions, matrices and reads after every token."""
    found = Findings([], [])
    for name, dtype in DTYPES.items():
        stream = regimes(tokens, seeds, seed + 1, dtype)
        queries = stream[0].roll(1, 1)
        banks = [NC01Bank(len(stream[0]), **CP64, dtype=dtype) for _ in range(2)]
        runs = [
            bank.run(*stream, RandomOffers(seed), queries=queries, path=path)
            for bank, path in zip(banks, PATHS, strict=True)
        ]
        pairs = zip(runs[0].decisions, runs[1].decisions, strict=True)
        differ = sum(one != other for one, other in pairs)
        matrices = (banks[0].physical() - banks[1].physical()).abs().amax((1, 2))
        reads = (_reads(runs[0]) - _reads(runs[1])).abs().amax((1, 2))
        where = f"{len(stream[0])} banks x {tokens:,} tokens, {name}, CPU"
        published = NC01_PUBLISHED["path_gap_float32"] if name == "float32" else None
        rows = [
            judged("decisions that differ by path", where, differ, equals(0), NC01_PUBLISHED["path_decisions_changed"]),
            judged("reads, segment against sequential", where, float(reads.max()), at_most(PATH_GAP[name]), published),
            judged("matrix, segment against sequential", where, float(matrices.max()), at_most(PATH_GAP[name])),
        ]
        raw = [
            {"part": "paths", "dtype": name, "regime": regime, "matrix": float(one), "reads": float(other)}
            for regime, one, other in zip(
                REGIMES, *(part.reshape(len(REGIMES), seeds).amax(1) for part in (matrices, reads)), strict=True
            )
        ]
        found += Findings(rows, raw)
    return found


def _reads(run: Run) -> torch.Tensor:
    """The reads of a run that was given queries."""
    if run.reads is None:
        raise EvaluationError("a run without queries has no reads to compare")
    return run.reads


class EveryEighth(RandomOffers):
    """Random offers at the first boundary and every eighth after it; none at the others."""

    def scores(self, window: object, read: object) -> torch.Tensor:
        """As random offers, or nothing."""
        drawn = super().scores(window, read)  # type: ignore[arg-type]
        due = self.clock // CP64["cadence"] % OFFER_EVERY == 1
        return drawn if due else torch.full_like(drawn, -torch.inf)


def from_zero(tokens: int, seed: int) -> Findings:
    """Banks from zero over a long stream in fp32 segments; every protected read before every boundary."""
    rng, bank = np.random.default_rng([seed, 102]), NC01Bank(LONG_BANKS, **CP64, dtype=torch.float32)
    policy = EveryEighth(seed)
    admitted = breaches = reads = outside = 0
    for _ in range(tokens // CP64["cadence"]):
        stream: Stream = plain(rng, LONG_BANKS, CP64["cadence"], torch.float32)
        outside += out_of_domain(stream)
        bank.segment(*stream)
        policy.see(stream[0], stream[1])
        miss = distances(bank, bank.targets())
        reads, breaches = reads + len(miss), breaches + int((miss > RETENTION).sum())
        offer = policy.offer(bank.read)
        keys = [key if there else None for key, there in zip(offer.key, offer.offered.tolist(), strict=True)]
        values = [value if key is not None else None for key, value in zip(keys, offer.value, strict=True)]
        admitted += sum(outcome is None for outcome in bank.boundary(keys, values))
    where = f"{LONG_BANKS} banks x {tokens:,} tokens, float32, {outside} outside the domain"
    reading = "one offer every 512 tokens, our reading of 2,080 admissions by 32 banks"
    rows = [
        judged("from zero: admissions", where, admitted, equals(2_080), NC01_PUBLISHED["zero_admissions"], reading),
        judged("from zero: breaches", where, breaches, equals(0), NC01_PUBLISHED["zero_breaches"]),
    ]
    return Findings(rows, [{"part": "from zero", "admitted": admitted, "breaches": breaches, "protected_reads": reads}])


def distances(bank: NC01Bank, there: list[Floats]) -> Floats:
    """Distances of all protected reads of all banks from the rows of `there`, targets or pins."""
    listed = zip(bank.physical().double().numpy(), bank.addresses(), there, strict=True)
    return np.concatenate([np.linalg.norm(keys @ matrix - rows, axis=1) for matrix, keys, rows in listed])


def _elsewhere() -> Findings:
    device = PublishedFigure(9, NC01_PUBLISHED["hard_over"].source, "512 hard fp32 admissions, GPU")
    return Findings(
        [not_attempted("hard admissions over 1/64 on a GPU", device, f"CPU only; pin radius {PIN_RADIUS:.10f}")], []
    )
