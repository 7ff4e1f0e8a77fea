"""Admissions into fp32 states that are hard to admit into, beside the textbook form without verification [MATH B8]."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evaluation.campaigns.nc01_streams import INSIDE, WIDTH, directions, unit
from evaluation.campaigns.table import Findings, at_least, at_most, equals, judged
from evaluation.published import NC01_PUBLISHED
from memory.nc01 import CP64, NC01Bank
from memory.nc01.limits import ACQUISITION, PIN_RADIUS

BANKS = 100
HELD = (4, 5, 6, 7)
EIGENVALUE = 0.29  # about the smallest one of the enlarged Gram matrix; the limit is 1/4
WORST = 0.0156098
CURED = "the source found 6 of 512: see the unverified form"


def hard_admissions(admissions: int, seed: int) -> Findings:
    """At least `admissions` ones into fp32 states with 4 to 7 addresses near the Gram limit and a norm near 64."""
    rng = np.random.default_rng([seed, 103])
    ours: list[Tensor] = []
    textbook: list[Tensor] = []
    refused = group = 0
    while sum(len(part) for part in ours) < admissions:
        bank, offer, value = hard_state(min(BANKS, admissions), HELD[group % len(HELD)], rng)
        group += 1
        naive = textbook_misses(bank, offer, value)
        taken = torch.tensor([outcome is None for outcome in bank.boundary(offer, value)])
        refused += int((~taken).sum())
        reads = (offer[:, None, :] @ bank.physical().double())[:, 0]
        ours.append(torch.linalg.vector_norm(reads - value, dim=1)[taken])
        textbook.append(naive[taken])
    miss, naive = torch.cat(ours), torch.cat(textbook)
    over, worst = int((miss > ACQUISITION).sum()), float(miss.max())
    naive_over, naive_worst = int((naive > ACQUISITION).sum()), float(naive.max())
    over_limit = at_least(ACQUISITION)
    share = naive_over / len(naive)
    where = f"{len(miss):,} hard fp32 admissions, {refused} refused"
    form = f"{where}; textbook form, one fp32 pass, unverified"
    own = "shares depend on the states, which the source does not publish; ours are harder"
    raw = {"part": "hard", "admitted": len(miss), "refused": refused, "over": over, "worst": worst}
    return Findings(
        [
            judged("hard fp32 admissions over 1/64", where, over, equals(0), reason=CURED),
            judged("worst hard fp32 admission error", where, worst, at_most(WORST)),
            judged("over 1/64 in 512, unverified", form, 512 * share, at_least(1), NC01_PUBLISHED["hard_over"], own),
            judged("worst error, unverified", form, naive_worst, over_limit, NC01_PUBLISHED["hard_worst"], own),
        ],
        [raw | {"textbook_over": naive_over, "textbook_worst": naive_worst}],
    )


def hard_state(banks: int, held: int, rng: np.random.Generator) -> tuple[NC01Bank, Tensor, Tensor]:
    """fp32 banks with `held` addresses, nearly all of a norm near 64 along the offer; offer and value (banks, 128)."""
    bank = NC01Bank(banks, **CP64, dtype=torch.float32)
    common = directions(rng, banks)
    own = EIGENVALUE / (1 - np.sqrt((held + 1) / WIDTH)) ** 2
    keys = [unit(np.sqrt(1 - own) * common + np.sqrt(own) * directions(rng, banks)) for _ in range(held + 1)]
    for key in keys[:held]:
        bank.boundary(torch.from_numpy(key), torch.from_numpy(directions(rng, banks)))
    offer = torch.from_numpy(keys[held])
    frames = [np.linalg.qr(part.T)[0] for part in bank.addresses()]
    fresh = np.stack([key - frame @ (frame.T @ key) for key, frame in zip(keys[held], frames, strict=True)])
    k = torch.from_numpy(unit(fresh) * INSIDE).float()
    v = torch.from_numpy(directions(rng, banks)).float() * 1e6
    bank.step(k, v, torch.zeros(banks), torch.ones(banks))
    return bank, offer, torch.from_numpy(directions(rng, banks))


def textbook_misses(bank: NC01Bank, offer: Tensor, value: Tensor) -> Tensor:
    """Distances at the offer after X' = X - K'(H'^-1 (K'^T X)) in fp32: what an unverified admission would store."""
    missed = []
    physical = bank.physical()
    for B, K, U, r, v in zip(physical, bank.addresses(), bank.pins(), offer, value, strict=True):
        held, pins = torch.from_numpy(K).T.float(), torch.from_numpy(U).float()
        X = B - held @ (torch.linalg.inv(held.T @ held) @ pins)
        w = B.double().T @ r
        u = v + (w - v) * min(1.0, PIN_RADIUS / float(torch.linalg.vector_norm(w - v)))
        keys, reads = torch.cat([held, r.float()[:, None]], 1), torch.cat([pins, u.float()[None]])
        inverse = torch.linalg.inv(keys.T @ keys)
        changed = keys @ (inverse @ reads) + (X - keys @ (inverse @ (keys.T @ X)))
        missed.append(torch.linalg.vector_norm(changed.double().T @ r - v))
    return torch.stack(missed)
