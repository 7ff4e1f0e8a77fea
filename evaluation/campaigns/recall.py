"""Recall against load: how many of n pairs each memory reads back, untrained, beside what was published after training.

Every memory is given n pairs of a random unit key and a Gaussian value in 32 dimensions once, in order, and asked for
all of them. A pair counts as recalled where the value nearest to the readout is its own [MATH A4].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from evaluation.campaigns.table import Findings, Progress, Row, Size, at_least, equals, judged
from evaluation.published import RECALL_PUBLISHED, SUPPORT_FRACTION_PUBLISHED
from memory.delta import DeltaBatch, LinearBatch
from memory.nc01 import NC01Bank, RandomOffers
from memory.nc01.limits import ALPHA_MAX
from memory.svdd import SVDDMemory
from memory.vla import VLABatch

WIDTH = 32
LOADS = {"ci": (4, 24, 48), "evidence": tuple(range(4, 49, 4))}
TRIALS = {"ci": 10, "evidence": 200}
GATE = 0.97  # of the gated delta rule
NU, SIGMA = 0.4, 0.5  # of the support-vector readout: caps of 1 / (nu n), a width well below the keys' distances
CADENCE = 4
MEMORIES = ("linear", "linear, quotient", "delta", "gated delta", "VLA unit", "VLA ridge", "NC01", "SVDD readout")
CLOSE = 0.01
UNTRAINED = {
    "VLA unit": "untrained write rule, random keys: below the width it recalls all without training",
    "delta": 'the published "DeltaNet" gates its state row by row by about a half a token: it is not the delta rule',
    "linear": "the published baseline answers like 1 / n after 3,000 steps: training fell short, not capacity",
    "penalty frozen": "a frozen penalty is the delta rule; the published entry is of a trained model",
}


def run(size: Size, seed: int, progress: Progress) -> Findings:
    """All loads; "ci" has three of them and few trials."""
    raw: list[dict[str, Any]] = []
    for done, load in enumerate(LOADS[size]):
        progress("recall", done / len(LOADS[size]))
        raw += at_load(load, TRIALS[size], seed)
    table = {(row["memory"], row["pairs"]): row for row in raw}
    where = f"d {WIDTH}, {TRIALS[size]} trials, untrained"
    rows = [*_claims(table, where), *_expected(table, where), support_fraction(seed)]
    progress("recall", 1.0)
    return Findings(rows, raw)


def at_load(pairs: int, trials: int, seed: int) -> list[dict[str, Any]]:
    """Recall and mean relative read error of every memory over `trials` draws of `pairs` pairs."""
    rng = np.random.default_rng([seed, 301, pairs])
    keys, values = (torch.from_numpy(rng.standard_normal((trials, pairs, WIDTH))) for _ in range(2))
    keys = keys / torch.linalg.vector_norm(keys, dim=2, keepdim=True) * (1 - 1e-15)
    reads = _batched(keys, values)
    reads["NC01"] = _protected(keys, values, seed)
    reads["SVDD readout"] = torch.stack([_support(*pair) for pair in zip(keys, values, strict=True)])
    return [{"memory": name, "pairs": pairs, "trials": trials, **_measured(reads[name], values)} for name in MEMORIES]


def _batched(keys: Tensor, values: Tensor) -> dict[str, Tensor]:
    trials = len(keys)
    memories = {
        "linear, quotient": LinearBatch(WIDTH, WIDTH, trials),
        "delta": DeltaBatch(WIDTH, WIDTH, trials),
        "gated delta": DeltaBatch(WIDTH, WIDTH, trials, alpha=GATE),
        "VLA unit": VLABatch(WIDTH, WIDTH, trials, gain="unit"),
        "VLA ridge": VLABatch(WIDTH, WIDTH, trials, gain="ridge"),
    }
    for memory in memories.values():
        memory.admit_many(keys, values)
    return {"linear": keys @ (keys.mT @ values)} | {name: memory.read(keys) for name, memory in memories.items()}


def _protected(keys: Tensor, values: Tensor, seed: int) -> Tensor:
    """Protected reads: largest gate, rate 1, a random token of every four offered; values within norm 1."""
    divisor = float(torch.linalg.vector_norm(values, dim=2).max())
    gates = torch.ones(keys.shape[:2], dtype=keys.dtype)
    bank = NC01Bank(len(keys), WIDTH, WIDTH, cadence=CADENCE, horizon=8 * CADENCE)
    bank.run(keys, values / divisor, gates * ALPHA_MAX, gates, RandomOffers(seed))
    return bank.read(keys) * divisor


def _support(keys: Tensor, values: Tensor) -> Tensor:
    memory = SVDDMemory(min(1.0, 1 / (NU * len(keys))), SIGMA).fit(keys.numpy(), values.numpy())
    return torch.from_numpy(memory.read(keys.numpy()))


def _measured(reads: Tensor, values: Tensor) -> dict[str, float]:
    read = reads.nan_to_num(0.0)
    nearest = torch.cdist(read, values).argmin(2)
    own = torch.arange(values.shape[1])
    error = torch.linalg.vector_norm(read - values, dim=2) / torch.linalg.vector_norm(values, dim=2)
    return {"recall": float((nearest == own).double().mean()), "relative_error": float(error.mean())}


def _claims(table: dict[tuple[str, int], dict[str, Any]], where: str) -> list[Row]:
    """Published recall beside ours at the same load."""
    rows = []
    for (name, pairs), published in sorted(RECALL_PUBLISHED.items()):
        found = table.get(("delta" if name == "penalty frozen" else name, pairs))
        if found is not None:
            target = equals(float(published.value), CLOSE)
            quantity = f"recall of {pairs} pairs, {name}"
            rows.append(judged(quantity, where, found["recall"], target, published, UNTRAINED[name]))
    return rows


def _expected(table: dict[tuple[str, int], dict[str, Any]], where: str) -> list[Row]:
    """What the equations say: even linear attention recalls 24 of 24 nearly always, and ridge reads best."""
    linear, ridge = table["linear", 24], table["VLA ridge", 24]
    others = min(table[name, 24]["relative_error"] for name in ("linear", "delta", "gated delta", "VLA unit"))
    return [
        judged("nearest-value recall of 24 pairs, linear", where, linear["recall"], at_least(0.99)),
        judged("error of the next best over ridge's, 24 pairs", where, others / ridge["relative_error"], at_least(10)),
    ]


def support_fraction(seed: int) -> Row:
    """Share of ten distinct keys that are support, the published drop-in layer's being 1."""
    keys = np.random.default_rng([seed, 302]).standard_normal((10, WIDTH))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    memory = SVDDMemory(1 / (NU * 10), SIGMA).fit(keys)
    share = (len(list(memory.margin)) + len(list(memory.bound))) / 10
    where = f"ten distinct unit keys, d {WIDTH}, nu {NU}, width {SIGMA}"
    return judged("share of support", where, share, equals(1.0), SUPPORT_FRACTION_PUBLISHED)
