"""Speed of the matrix memories as ratios within one run, in processor time of one thread.

Segments of protected-read banks against their token loop, boundaries included; VLA over many stays in lock-step against
one stay. Absolute rates are reported beside the ratios and mean something on an idle core only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from evaluation.campaigns.nc01_streams import Stream, plain
from memory.nc01 import CP64, NC01Bank, RandomOffers
from memory.vla import VLABatch

BANKS = 32
STAYS, HOURS, WIDTH = 256, 48, 32
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
VLA_CASES = tuple((name, how, d_v) for name in PRECISIONS for how in ("hourly", "many") for d_v in (1, WIDTH))
Row = dict[str, Any]


def run_bench(seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Return {"rows"}: protected-read segments and batched VLA in both precisions; `quick` takes fewer repeats."""
    repeats = 3 if quick else 9
    rows = [segments(name, repeats, seed) for name in PRECISIONS]
    rows += [batched_vla(name, how, d_v, repeats, seed) for name, how, d_v in VLA_CASES]
    return {"rows": rows}


def segments(precision: str, repeats: int, seed: int) -> Row:
    """A segment of 64 tokens and its boundary with full registers against 64 single tokens, at 32 banks.

    `loop_ratio` is the loop's time over the segment's with its boundary; `boundary_share_ratio` the boundary's share.
    """
    cadence, dtype = CP64["cadence"], PRECISIONS[precision]
    rng, bank, policy = np.random.default_rng([seed, 401]), NC01Bank(BANKS, **CP64, dtype=dtype), RandomOffers(seed)
    for _ in range(CP64["slots"]):
        bank.run(*plain(rng, BANKS, cadence, dtype), policy)
    loop = NC01Bank.from_state(bank.to_state())
    times: dict[str, list[float]] = {"loop": [], "segment": [], "boundary": []}
    for _ in range(repeats):
        k, v, alpha, beta = tokens = plain(rng, BANKS, cadence, dtype)
        times["loop"].append(_seconds(partial(_looped, loop, tokens)))
        times["segment"].append(_seconds(partial(bank.segment, k, v, alpha, beta)))
        policy.see(k, v)
        offer = policy.offer(bank.read)
        times["boundary"].append(_seconds(partial(bank.boundary, offer.key, offer.value)))
    least = {name: min(spent) for name, spent in times.items()}
    whole = least["segment"] + least["boundary"]
    return {
        "bench": "protected-read segments",
        "kind": precision,
        "banks": BANKS,
        "loop_ratio": least["loop"] / whole,
        "boundary_share_ratio": least["boundary"] / whole,
        "tokens_per_second": BANKS * cadence / whole,
        "bytes_per_bank": bank.bytes_per_bank,
    }


def batched_vla(precision: str, how: str, d_v: int, repeats: int, seed: int) -> Row:
    """Token rate of 256 stays in lock-step over the rate of one stay, hour by hour or in one call."""
    dtype, rng = PRECISIONS[precision], np.random.default_rng([seed, 402])
    keys, values = (torch.from_numpy(rng.standard_normal((STAYS, HOURS, width))).to(dtype) for width in (WIDTH, d_v))
    times: dict[int, list[float]] = {1: [], STAYS: []}
    for _ in range(repeats):
        for stays, spent in times.items():
            batch = VLABatch(WIDTH, d_v, stays, dtype=dtype)
            spent.append(_seconds(partial(_admitted, batch, keys[:stays], values[:stays], how)))
    rates = {stays: stays * HOURS / min(spent) for stays, spent in times.items()}
    return {
        "bench": "batched VLA",
        "kind": f"{precision}, {how}, d_v {d_v}",
        "stays": STAYS,
        "one_stay_ratio": rates[STAYS] / rates[1],
        "tokens_per_second": rates[STAYS],
    }


def _looped(bank: NC01Bank, tokens: Stream) -> None:
    for place in range(tokens[2].shape[1]):
        k, v, alpha, beta = (part[:, place] for part in tokens)
        bank.step(k, v, alpha, beta)


def _admitted(batch: VLABatch, keys: torch.Tensor, values: torch.Tensor, how: str) -> None:
    if how == "many":
        batch.admit_many(keys, values)
        return
    for hour in range(keys.shape[1]):
        batch.admit(keys[:, hour], values[:, hour])


def _seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
