"""Expiry and admission after a token whose clock is a multiple of the cadence [NC01 B5].

All decisions are taken in float64 on the numbers that will be stored. Work is done for the banks that need it only, and
the arrays of a bank are published together or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from memory.nc01.limits import ACQUISITION, GRAM, PIN_RADIUS, RADIUS, RETENTION, ROOM, Refusal
from memory.nc01.register import EXACT, State, columns, factor, padded, rows, smallest_eigenvalue

OUTCOMES: tuple[Refusal | None, ...] = (None, "none", "invalid", "full", "gram", "norm", "verify")
_ADMITTED, _NONE, _INVALID, _FULL, _GRAM, _NORM, _VERIFY = range(7)


@dataclass(frozen=True)
class _Proposal:
    """Arrays that are about to replace those of some banks, and what was measured on them."""

    complement: Tensor
    basis: Tensor
    pinned: Tensor
    reads: Tensor
    norm2: Tensor


def expire(state: State, clock: int) -> None:
    """End every protection whose time has come; the matrix stays, only its split into protected part and rest changes.

    Expiry is not erasure: the read of an expired pair stays where it was until later tokens move it.
    """
    lapsed = state.active & (state.expires <= clock)
    at = lapsed.any(1).nonzero()[:, 0]
    if not len(at):
        return
    active = (state.active & ~lapsed)[at]
    addresses, pins = columns(state.addresses[at], active), rows(state.pins[at], active)
    old_basis, old_pinned = (part[at].to(EXACT) for part in state.protected())
    kind = state.complement.dtype
    basis, pinned = (part.to(kind) for part in factor(addresses, pins, active))
    freed = torch.cat((old_basis, -basis.to(EXACT)), 2) @ torch.cat((old_pinned, pinned.to(EXACT)), 1)
    new = _absorbed((state.complement[at].to(EXACT) + freed).to(kind), basis, pinned, addresses, pins, active)
    _publish(state, at, new, addresses, rows(state.targets[at], active), pins)
    state.active[at] = active
    state.expires[at] = torch.where(active, state.expires[at], 0)


def admit(state: State, offer: Tensor, value: Tensor, offered: Tensor, norm_limit: float, expires: int) -> Tensor:
    """Admit at most one offer a bank, or say why not: codes (B,) into OUTCOMES.

    offer (B, d_k) and value (B, d_v) float64, offered (B,) bool. A refusal leaves every array of its bank as it was.
    """
    finite = offer.isfinite().all(1) & value.isfinite().all(1) & (torch.linalg.vector_norm(offer, dim=1) <= norm_limit)
    offer, value = torch.where(finite[:, None], offer, 0), torch.where(finite[:, None], value, 0)
    slot = (~state.active).int().argmax(1)
    chosen = torch.nn.functional.one_hot(slot, state.active.shape[1]).bool()
    enlarged = torch.where(chosen[:, None, :], offer[:, :, None], columns(state.addresses, state.active))
    codes = torch.full_like(slot, _ADMITTED)
    for code, refused in (
        (_GRAM, smallest_eigenvalue(enlarged, state.active | chosen) < GRAM),
        (_FULL, state.active.all(1)),
        (_INVALID, ~finite),
        (_NONE, ~offered),
    ):
        codes = torch.where(refused, code, codes)
    at = (codes == _ADMITTED).nonzero()[:, 0]
    if len(at):
        codes[at] = _admit_some(state, at, offer[at], value[at], chosen[at], enlarged[at], expires)
    return codes


def _admit_some(
    state: State, at: Tensor, offer: Tensor, value: Tensor, chosen: Tensor, addresses: Tensor, expires: int
) -> Tensor:
    """Admission of the banks `at`, whose offers are valid and have a free slot and room in the Gram matrix."""
    active = state.active[at] | chosen
    targets = torch.where(chosen[:, :, None], value[:, None, :], rows(state.targets[at], state.active[at]))
    complement, basis, pinned, pin, fits = _enlarge(state, at, offer, value, chosen)
    pins = torch.where(chosen[:, :, None], pin[:, None, :], rows(state.pins[at], state.active[at]))
    new = _absorbed(complement, basis, pinned, addresses, pins, active)
    miss = torch.linalg.vector_norm(new.reads - targets, dim=2)
    limit = torch.where(chosen, ACQUISITION, RETENTION)
    sound = ((miss <= limit) | ~active).all(1) & (new.norm2 <= RADIUS**2) & new.norm2.isfinite()
    codes = torch.where(fits, torch.where(sound, _ADMITTED, _VERIFY), _NORM)
    done = (codes == _ADMITTED).nonzero()[:, 0]
    kept = _Proposal(new.complement[done], new.basis[done], new.pinned[done], new.reads[done], new.norm2[done])
    _publish(state, at[done], kept, addresses[done], targets[done], pins[done])
    state.expires[at[done]] = torch.where(chosen[done], expires, state.expires[at[done]])
    state.active[at[done]] = active[done]
    return codes


def _enlarge(
    state: State, at: Tensor, offer: Tensor, value: Tensor, chosen: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """X', Q', Y' in the storage dtype, the pin u, and whether the protected norm fits: the rank-one form.

    The pin is the projection of the present read on the ball around the value; in exact arithmetic the change is the
    smallest in Frobenius norm that reads the pin at the offer and moves no protected read.
    """
    complement = state.complement[at].to(EXACT)
    basis, pinned = (part[at].to(EXACT) for part in state.protected())
    column = offer[:, :, None]
    now = (pinned.mT @ (basis.mT @ column) + complement.mT @ column)[:, :, 0]
    away = now - value
    distance = torch.linalg.vector_norm(away, dim=1, keepdim=True)
    pin = value + torch.where(distance > PIN_RADIUS, PIN_RADIUS / distance, 1) * away
    inside = basis.mT @ column
    fresh = column - basis @ inside
    again = basis.mT @ fresh
    inside, fresh = inside + again, fresh - basis @ again
    tau = torch.linalg.vector_norm(fresh, dim=1, keepdim=True)
    fresh = fresh / tau
    basis = torch.where(chosen[:, None, :], fresh, basis)
    row = (pin[:, None, :] - inside.mT @ pinned) / tau
    pinned = torch.where(chosen[:, :, None], row, pinned)
    left = ROOM - pinned.square().sum((1, 2))
    along = fresh.mT @ complement
    complement = torch.baddbmm(complement, fresh, along, alpha=-1)
    scale = (left.clamp_min(0).sqrt() / torch.linalg.vector_norm(complement, dim=(1, 2))).clamp_max(1)
    if bool((scale < 1).any()):
        complement = complement * scale[:, None, None]
    kind = state.complement.dtype
    return complement.to(kind), basis.to(kind), pinned.to(kind), pin, left > 0


def _absorbed(
    complement: Tensor, basis: Tensor, pinned: Tensor, addresses: Tensor, pins: Tensor, active: Tensor
) -> _Proposal:
    """The rounded arrays, measured, after Y took up the leak that rounding left in the protected reads."""
    rest, frame = complement.to(EXACT), basis.to(EXACT)
    coordinates, leaked = addresses.mT @ frame, addresses.mT @ rest
    error = pins - (coordinates @ pinned.to(EXACT) + leaked)
    pinned = (pinned.to(EXACT) + torch.linalg.solve(padded(coordinates, active), error)).to(pinned.dtype)
    final = pinned.to(EXACT)
    overlap = ((frame.mT @ frame) @ final * final).sum((1, 2)) + 2 * ((frame.mT @ rest) * final).sum((1, 2))
    norm2 = torch.linalg.vector_norm(rest, dim=(1, 2)).square() + overlap
    return _Proposal(complement, basis, pinned, coordinates @ final + leaked, norm2)


def _publish(state: State, at: Tensor, new: _Proposal, addresses: Tensor, targets: Tensor, pins: Tensor) -> None:
    state.complement[at], state.basis[at], state.pinned[at] = new.complement, new.basis, new.pinned
    state.addresses[at], state.targets[at], state.pins[at] = addresses, targets, pins
