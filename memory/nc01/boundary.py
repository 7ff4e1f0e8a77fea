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
from memory.nc01.transition import split

OUTCOMES: tuple[Refusal | None, ...] = (None, "none", "invalid", "full", "gram", "norm", "verify")
_ADMITTED, _NONE, _INVALID, _FULL, _GRAM, _NORM, _VERIFY = range(7)


@dataclass(frozen=True)
class _Offers:
    """Offers of the banks `at`: key (n, d_k), value (n, d_v), the slots `chosen` and `kept` (n, m)."""

    at: Tensor
    key: Tensor
    value: Tensor
    chosen: Tensor
    kept: Tensor

    def of(self, group: Tensor) -> _Offers:
        """The offers of the banks that a mask (B,) names."""
        at = group.nonzero()[:, 0]
        return _Offers(at, *(_some(part, at) for part in (self.key, self.value, self.chosen, self.kept)))


@dataclass(frozen=True)
class _Matrix:
    """X, Q and Y of some banks, in float64 before rounding or in the storage dtype."""

    complement: Tensor
    basis: Tensor
    pinned: Tensor


@dataclass(frozen=True)
class _Measured:
    """Rounded arrays and what they measure: protected reads (n, m, d_v), squared norms of X and of Q Y + X (n,)."""

    stored: _Matrix
    reads: Tensor
    rest2: Tensor
    norm2: Tensor


def settle(
    state: State, key: Tensor, value: Tensor, offered: Tensor, *, clock: int, horizon: int, norm_limit: float
) -> Tensor:
    """End the protections that are due at this clock, then admit at most one offer a bank: codes (B,) into OUTCOMES.

    key (B, d_k) and value (B, d_v) float64, offered (B,) bool. A refusal leaves its bank as expiry left it.
    Expiry is not erasure: the matrix stays, only its split changes, and an expired read stays until tokens move it.
    """
    kept = state.active & (state.expires > clock)
    lapsed = (state.active & ~kept).any(1)
    valid = value.isfinite().all(1) & (torch.linalg.vector_norm(key, dim=1) <= norm_limit)
    free = ~kept
    offers = _Offers(
        torch.arange(len(key), device=key.device),
        torch.where(valid[:, None], key, 0),
        torch.where(valid[:, None], value, 0),
        free & (free.cumsum(1) == 1),
        kept,
    )
    dependent = smallest_eigenvalue(_enlarged(state, offers), kept | offers.chosen) < GRAM
    codes = torch.full_like(offers.at, _ADMITTED)
    for code, refused in ((_GRAM, dependent), (_FULL, kept.all(1)), (_INVALID, ~valid), (_NONE, ~offered)):
        codes = torch.where(refused, code, codes)
    # banks with and without an expiry take different arithmetic, and no bank's numbers depend on its neighbours
    for group, released in ((lapsed, True), (~lapsed, False)):
        some = offers.of(group & (codes == _ADMITTED))
        if len(some.at):
            codes[some.at] = _admit(state, some, released, clock + horizon)
    waiting = offers.of(lapsed & (codes != _ADMITTED))
    if len(waiting.at):
        _expire(state, waiting)
    return codes


def _expire(state: State, banks: _Offers) -> None:
    addresses, targets, pins = _register(state, banks)
    held, (basis, pinned) = _held(state, banks), factor(addresses, pins, banks.kept)
    split_again = _Matrix(_released(held, basis, pinned), basis, pinned)
    new = _absorbed(split_again, state.complement.dtype, addresses, pins, banks.kept)
    everything = torch.ones_like(banks.kept[:, 0])
    _publish(state, banks.at, new.stored, (addresses, targets, pins), everything)
    state.active[banks.at] = banks.kept
    state.expires[banks.at] = torch.where(banks.kept, state.expires[banks.at], 0)


def _admit(state: State, offers: _Offers, released: bool, expires: int) -> Tensor:
    """Admission of offers that are valid and have a free slot and room in the Gram matrix: codes (n,)."""
    kept_addresses, targets, pins = _register(state, offers)
    new, pin = _enlarge(_held(state, offers), offers, (kept_addresses, pins) if released else None)
    active, line = offers.kept | offers.chosen, offers.chosen[:, :, None]
    addresses = _enlarged(state, offers)
    targets = torch.where(line, offers.value[:, None, :], targets)
    pins = torch.where(line, pin[:, None, :], pins)
    left = ROOM - new.pinned.square().sum((1, 2))
    measured = _fitted(new, left, state.complement.dtype, addresses, pins, active)
    miss = torch.linalg.vector_norm(measured.reads - targets, dim=2)
    limit = torch.where(offers.chosen, ACQUISITION, RETENTION)
    sound = ((miss <= limit) | ~active).all(1) & (measured.norm2 <= RADIUS**2)
    codes = torch.where(left > 0, torch.where(sound, _ADMITTED, _VERIFY), _NORM)
    done = codes == _ADMITTED
    _publish(state, offers.at, measured.stored, (addresses, targets, pins), done)
    ends = torch.where(offers.chosen, expires, torch.where(offers.kept, state.expires[offers.at], 0))
    state.expires[offers.at] = torch.where(done[:, None], ends, state.expires[offers.at])
    state.active[offers.at] = torch.where(done[:, None], active, state.active[offers.at])
    return codes


def _enlarge(held: _Matrix, offers: _Offers, register: tuple[Tensor, Tensor] | None) -> tuple[_Matrix, Tensor]:
    """X', Q', Y' and the pin u in float64: the rank-one form. `register` (addresses, pins) is given after an expiry.

    The pin is the projection of the present read on the ball around the value; in exact arithmetic the change is the
    smallest in Frobenius norm that reads the pin at the offer and moves no protected read. Since Q'B = Y, the new
    direction n of the basis has n'B = (r'B - h'Y) / tau without another pass over X.
    """
    line = offers.key[:, None, :]
    now = (line @ held.basis) @ held.pinned + line @ held.complement
    away = now[:, 0] - offers.value
    distance = torch.linalg.vector_norm(away, dim=1, keepdim=True)
    pin = offers.value + torch.where(distance > PIN_RADIUS, PIN_RADIUS / distance, 1) * away
    basis, pinned = (held.basis, held.pinned) if register is None else factor(*register, offers.kept)
    inside, fresh = split(line, basis)
    tau = torch.linalg.vector_norm(fresh, dim=2, keepdim=True)
    fresh, below = fresh / tau, inside @ pinned
    along = (now - below) / tau
    if register is None:
        complement = held.complement.addcmul_(fresh.mT, along, value=-1)
    else:
        complement = _released(held, torch.cat((basis, fresh.mT), 2), torch.cat((pinned, along), 1))
    basis = torch.where(offers.chosen[:, None, :], fresh.mT, basis)
    pinned = torch.where(offers.chosen[:, :, None], (pin[:, None, :] - below) / tau, pinned)
    return _Matrix(complement, basis, pinned), pin


def _released(held: _Matrix, basis: Tensor, pinned: Tensor) -> Tensor:
    """X for another protected part of the same matrix, X + Q Y - Q' Y', in the place of X."""
    signed = torch.cat((held.basis, -basis), 2)
    return held.complement.baddbmm_(signed, torch.cat((held.pinned, pinned), 1))


def _fitted(
    new: _Matrix, left: Tensor, kind: torch.dtype, addresses: Tensor, pins: Tensor, active: Tensor
) -> _Measured:
    """The arrays to store, X scaled down where it exceeds the squared norm `left` beside the protected part."""
    measured = _absorbed(new, kind, addresses, pins, active)
    over = measured.rest2 > left
    if not bool(over.any()):
        return measured
    scale = torch.where(over, (left.clamp_min(0) / measured.rest2).sqrt(), 1)
    smaller = _Matrix(new.complement * scale[:, None, None], new.basis, new.pinned)
    return _absorbed(smaller, kind, addresses, pins, active)


def _absorbed(new: _Matrix, kind: torch.dtype, addresses: Tensor, pins: Tensor, active: Tensor) -> _Measured:
    """The arrays rounded to `kind` after Y took up the leak of rounding in the protected reads, measured as stored.

    X is rounded in the place of the float64 one: fresh pages for it would cost more than the arithmetic.
    """
    stored = new.complement.to(kind)
    complement = new.complement.copy_(stored)
    narrow = new.basis.to(kind)
    basis, rounded = narrow.to(EXACT), new.pinned.to(kind).to(EXACT)
    coordinates = addresses.mT @ basis
    leaked, along = (torch.cat((addresses, basis), 2).mT @ complement).chunk(2, 1)
    error = pins - (coordinates @ rounded + leaked)
    correction = torch.linalg.solve(padded(coordinates, active), error)
    pinned = (rounded + correction).to(kind)
    final = pinned.to(EXACT)
    cross = (((basis.mT @ basis) @ final + 2 * along) * final).sum((1, 2))
    rest2 = torch.linalg.vector_norm(complement, dim=(1, 2)).square()
    stored_arrays = _Matrix(stored, narrow, pinned)
    return _Measured(stored_arrays, coordinates @ final + leaked, rest2, rest2 + cross)


def _held(state: State, banks: _Offers) -> _Matrix:
    """The arrays of some banks in float64; X is a copy that may be overwritten."""
    complement = _some(state.complement, banks.at).to(EXACT)
    if complement is state.complement:
        complement = complement.clone()
    return _Matrix(complement, *(_some(part, banks.at).to(EXACT) for part in state.protected()))


def _register(state: State, banks: _Offers) -> tuple[Tensor, Tensor, Tensor]:
    """Addresses, targets and pins of the slots that are kept, zeros elsewhere."""
    return (
        columns(_some(state.addresses, banks.at), banks.kept),
        rows(_some(state.targets, banks.at), banks.kept),
        rows(_some(state.pins, banks.at), banks.kept),
    )


def _enlarged(state: State, offers: _Offers) -> Tensor:
    """Kept addresses with the offer in its slot: (n, d_k, m)."""
    kept = columns(_some(state.addresses, offers.at), offers.kept)
    return torch.where(offers.chosen[:, None, :], offers.key[:, :, None], kept)


def _some(array: Tensor, at: Tensor) -> Tensor:
    """The banks `at`, without a copy when they are all of them."""
    return array if len(at) == len(array) else array[at]


def _publish(state: State, at: Tensor, new: _Matrix, register: tuple[Tensor, Tensor, Tensor], done: Tensor) -> None:
    """Put the new arrays of those of the banks `at` that are done in the place of the old ones."""
    names = ("complement", "basis", "pinned", "addresses", "targets", "pins")
    arrays = dict(zip(names, (new.complement, new.basis, new.pinned, *register), strict=True))
    where = at[done]
    for name, array in arrays.items():
        if len(where) == len(state.active):
            setattr(state, name, array.contiguous())
        else:
            getattr(state, name)[where] = _some(array, done.nonzero()[:, 0])
