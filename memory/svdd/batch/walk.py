"""The walk in lock-step: in every pass each memory of the batch makes its own next move [CP, SVA 3.2-3.3].

A move is an event of the walk, a step of rho alone where the margin is empty, or a step of a location that joins the
margin. The host learns one small row of counts per pass; everything else stays on the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from memory.svdd.batch.arithmetic import first_true, ordered_sum, pick
from memory.svdd.batch.factor import drop, forward, response
from memory.svdd.batch.work import BOUND, DONE, FAILED, JOIN, MARGIN, MOVING, RESERVE, WALK, Work

BOX_END, GRADIENT_ZERO, MEMBER_LEAVES, POINT_JOINS = 0, 1, 2, 3
COMPACT_BELOW = 0.7


class Counts(NamedTuple):
    """What the host needs to know before a pass."""

    active: int
    leaving: int
    empty: int
    largest: int
    first: int


class Entry(NamedTuple):
    """How the margin answers to a candidate: all (B, ...); `dependent` where its pivot is rounding."""

    location: Tensor
    direction: Tensor
    joins: Tensor
    row: Tensor
    reference_row: Tensor
    live: Tensor
    z: Tensor
    pivot: Tensor
    beta: Tensor
    dependent: Tensor


class Move(NamedTuple):
    """The move chosen for each memory: its length, its kind, and the member slot or location concerned."""

    step: Tensor
    kind: Tensor
    member: Tensor
    point: Tensor


def send(work: Work, which: Tensor, location: Tensor, direction: Tensor, target: Tensor, to_kkt: bool) -> None:
    """Give each row of `which` (B,) a location to walk; a member's slot is taken out before it moves."""
    work.mode = torch.where(which, WALK, work.mode)
    work.walker = torch.where(which, location, work.walker)
    work.direction = torch.where(which, direction, work.direction)
    work.target = torch.where(which, target, work.target)
    work.to_kkt = torch.where(which, to_kkt, work.to_kkt)
    work.limit = torch.where(which, work.events + 1000 + 16 * work.valid.sum(1), work.limit)
    work.stamp = work.stamp + which.long()
    slot = (work.members == location[:, None]) & (work.live(work.members.shape[1]) > 0.0)
    work.leaving = torch.where(which & slot.any(1), slot.to(torch.int8).argmax(1), work.leaving)
    work.write(work.status, location, torch.full_like(location, MOVING).to(torch.int8), which)


def admit_to_margin(work: Work, which: Tensor, location: Tensor, direction: Tensor) -> None:
    """Let a location whose condition holds with g = 0 join the margin, without a walk of its own."""
    work.mode = torch.where(which, JOIN, work.mode)
    work.walker = torch.where(which, -1, work.walker)
    work.joiner = torch.where(which, location, work.joiner)
    work.join_direction = torch.where(which, direction, work.join_direction)
    work.limit = torch.where(which, work.events + 1000 + 16 * work.valid.sum(1), work.limit)


def run(work: Work) -> None:
    """Move until every row is DONE or FAILED; rows that have arrived no longer cost anything."""
    part, places = work, torch.arange(len(work.m), device=work.m.device)
    counts = _count(part)
    while counts.active:
        if counts.active < COMPACT_BELOW * len(places):
            kept = first_true(part.mode < DONE, counts.active)
            if part is not work:
                work.put(places, part)
            places = places.index_select(0, kept)
            part = work.take(places)
        _pass(part, counts)
        counts = _count(part)
    if part is not work:
        work.put(places, part)
    work.leaving = torch.full_like(work.leaving, -1)


def _count(work: Work) -> Counts:
    """The one transfer to the host per pass."""
    leaving = work.leaving >= 0
    empty = (work.mode == WALK) & (work.m - leaving.long() <= 0)
    first = torch.where(leaving, work.leaving, work.m).min()
    return Counts(*torch.stack([(work.mode < DONE).sum(), leaving.sum(), empty.sum(), work.m.max(), first]).tolist())


def take_out(work: Work, count: int, top: int, first: int = 0) -> None:
    """Drop the `count` members that are marked as leaving from the factor; none of them lies below slot `first`."""
    rows = first_true(work.leaving >= 0, count)
    parts = (work.V, work.D, work.members, work.m)
    V, D, members, m = (part.index_select(0, rows) for part in parts)
    changed = drop(V, D, members, m, work.leaving.index_select(0, rows), first, top)
    for whole, part in zip(parts, changed, strict=True):
        whole.index_copy_(0, rows, part)
    work.leaving = torch.full_like(work.leaving, -1)


def _pass(work: Work, counts: Counts) -> None:
    work.need_margin(counts.largest + 2)
    if counts.leaving:
        take_out(work, counts.leaving, counts.largest, counts.first)
    entry = respond(work, max(counts.largest, 1))
    walks = (work.mode == WALK) & (work.m > 0)
    empty = (work.mode == WALK) & (work.m == 0)
    arrives = entry.joins & ((work.m == 0) | ~entry.dependent)
    move, rates, nothing = _choose(work, entry, walks)
    _advance(work, entry, move, walks, (entry.joins & ~arrives) | walks, rates, nothing)
    _conclude(work, entry, move, walks, arrives)
    if counts.empty:
        _move_rho(work, empty)
    work.mode = torch.where((work.mode < DONE) & (work.events > work.limit), FAILED, work.mode)


def respond(work: Work, top: int) -> Entry:
    """Forward and backward solve for each row's candidate: its walker, or the location that joins."""
    joins = work.mode == JOIN
    location = torch.where(joins, work.joiner, work.walker).clamp_min(0)
    direction = torch.where(joins, work.join_direction, work.direction)
    row, reference_row, live = work.kernel_row(location), work.kernel_row(work.members[:, 0]), work.live(top)
    z, pivot = _project(work, row, reference_row, live)
    beta = response(work.V, work.D, z, live, top)
    return Entry(location, direction, joins, row, reference_row, live, z, pivot, beta, pivot <= work.dependence())


def _project(work: Work, row: Tensor, reference_row: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Forward solve of the location with this kernel row, and its squared distance from the members' affine hull."""
    top = live.shape[1]
    members = work.members[:, :top]
    to_reference = row.gather(1, members[:, :1])
    h = (row.gather(1, members) - to_reference - reference_row.gather(1, members)) * live
    z = forward(work.V, h, top)
    return z, -2.0 * to_reference[:, 0] - ordered_sum(z * z / work.D[:, :top])


# ---- choosing a move ----


def _choose(work: Work, entry: Entry, walks: Tensor) -> tuple[Move, tuple[Tensor, Tensor], Tensor]:
    """The nearest event of each row; among equals the first of: the end, g = 0, the members, the points, each by
    slot.
    """
    nothing = 1e-13 * work.C / entry.beta.abs().amax(1).clamp_min(1.0)
    rho_rate, rate, noise = _gradient_rates(work, entry)
    free = walks & ~entry.dependent
    step = _to_box_end(work, entry)
    kind = torch.zeros_like(work.m)
    reaches = -entry.direction * pick(work.g, entry.location) / (2.0 * entry.pivot)
    step, kind = _nearer(step, kind, reaches, GRADIENT_ZERO, free & work.to_kkt)
    member_step, member = _first_member(work, entry)
    step, kind = _nearer(step, kind, member_step, MEMBER_LEAVES, work.m > 0)
    point_step, point = _first_point(work, entry, rate, noise, nothing)
    step, kind = _nearer(step, kind, point_step, POINT_JOINS, free)
    return Move(step, kind, member, point), (rho_rate, rate), nothing


def _nearer(step: Tensor, kind: Tensor, offer: Tensor, name: int, which: Tensor) -> tuple[Tensor, Tensor]:
    offer = offer.clamp_min(0.0)
    better = which & (offer < step)
    return torch.where(better, offer, step), torch.where(better, name, kind)


def _to_box_end(work: Work, entry: Entry) -> Tensor:
    mass, cap = pick(work.a, entry.location), pick(work.cap, entry.location)
    floor = torch.where(entry.joins, 0.0, work.target)
    return torch.where(entry.direction > 0.0, cap - mass, mass - floor).clamp_min(0.0)


def _first_member(work: Work, entry: Entry) -> tuple[Tensor, Tensor]:
    members = work.members[:, : entry.beta.shape[1]]
    mass, cap = work.a.gather(1, members), work.cap.gather(1, members)
    rate = entry.direction[:, None] * entry.beta
    room = torch.where(rate < 0.0, mass, cap - mass).clamp_min(0.0)
    step = torch.where(rate == 0.0, torch.inf, room / rate.abs())
    first = step.argmin(1)
    return pick(step, first), first


def _gradient_rates(work: Work, entry: Entry) -> tuple[Tensor, Tensor, Tensor]:
    """d rho and d g per unit of the candidate's mass, and the noise below which a rate is rounding."""
    members = work.members[:, : entry.beta.shape[1]]
    at_members = entry.reference_row.gather(1, members)
    base = entry.row.gather(1, members[:, :1])[:, 0] + ordered_sum(entry.beta * at_members)
    rate = entry.row - base[:, None]
    rate += work.weighted_rows(members, entry.beta)
    rate *= 2.0 * (work.status != MARGIN).to(rate.dtype)
    noise = (1.0 + ordered_sum(entry.beta.abs())) * 2.0**-50 * work.scale
    return -2.0 * base, rate, noise


def _first_point(work: Work, entry: Entry, rate: Tensor, noise: Tensor, nothing: Tensor) -> tuple[Tensor, Tensor]:
    """A point that left the margin at this very position may not come straight back: without this, ties could cycle."""
    along = entry.direction[:, None] * rate
    falls = (work.status == RESERVE) & (along < -noise[:, None]) & (work.cap > 0.0)
    rises = (work.status == BOUND) & (along > noise[:, None])
    step = -work.g / along
    returns = (step <= nothing[:, None]) & (work.left_at == work.stamp[:, None])
    offered = (falls | rises) & ~work.frozen & ~returns
    step = torch.where(offered, step.clamp_min(0.0), torch.inf)
    first = step.argmin(1)
    return pick(step, first), first


# ---- making it ----


def _advance(
    work: Work, entry: Entry, move: Move, walks: Tensor, moves: Tensor, rates: tuple[Tensor, Tensor], nothing: Tensor
) -> None:
    change = torch.where(moves, entry.direction * move.step, 0.0)
    members = work.members[:, : entry.beta.shape[1]]
    work.a.scatter_add_(1, entry.location[:, None], change[:, None])
    work.a.scatter_add_(1, members, change[:, None] * entry.beta)
    shifts = torch.where(walks & ~entry.dependent, change, 0.0)
    work.r = work.r + shifts * rates[0]
    work.g += shifts[:, None] * rates[1]
    work.stamp = work.stamp + (walks & (move.step > nothing)).long()
    work.events = work.events + moves.long()


def _conclude(work: Work, entry: Entry, move: Move, walks: Tensor, arrives: Tensor) -> None:
    """What the move leads to: who leaves, who joins next, and whether the candidate has arrived."""
    moved = walks | (entry.joins & ~arrives)
    ended = moved & (move.kind == BOX_END)
    reached = walks & (move.kind == GRADIENT_ZERO)
    leaves = moved & (move.kind == MEMBER_LEAVES)
    touched = walks & (move.kind == POINT_JOINS)
    _end_at_box(work, entry, ended)
    work.leave(leaves, move.member, entry.direction * pick(entry.beta, move.member) > 0.0)
    over = (entry.joins & (arrives | ended)) | (walks & (ended | reached))
    arrives = arrives | _settle_at_zero(work, entry.location, reached)
    _start_joining(work, move.point, touched, pick(work.status, move.point) == RESERVE)
    joined = _append_all(work, entry, move.point, touched, arrives)
    goes_on = joined | (entry.joins & (work.walker >= 0))
    work.mode = torch.where(over | joined, torch.where(goes_on, WALK, DONE), work.mode)


def _append_all(work: Work, entry: Entry, point: Tensor, touched: Tensor, arrives: Tensor) -> Tensor:
    """Append the candidates that have arrived, and the points just met that do not depend on the members: which did."""
    z, pivot = _project(work, work.kernel_row(point), entry.reference_row, entry.live)
    joined = touched & (pivot > work.dependence())
    location = torch.where(joined, point, entry.location)
    z, pivot = torch.where(joined[:, None], z, entry.z), torch.where(joined, pivot, entry.pivot)
    work.append(arrives | joined, location, z, pivot)
    return joined


def _end_at_box(work: Work, entry: Entry, which: Tensor) -> None:
    floor = torch.where(entry.joins, 0.0, work.target)
    end = torch.where(entry.direction > 0.0, pick(work.cap, entry.location), floor)
    work.write(work.a, entry.location, end, which)
    work.write(work.status, entry.location, torch.where(end == 0.0, RESERVE, BOUND).to(torch.int8), which)


def _settle_at_zero(work: Work, location: Tensor, which: Tensor) -> Tensor:
    """The condition of a walker holds: g = 0. Rows whose walker lies strictly inside its box are returned: it joins."""
    mass, cap = pick(work.a, location), pick(work.cap, location)
    work.write(work.g, location, torch.zeros_like(mass), which)
    edge = (mass <= 0.0) | (mass >= cap)
    work.write(work.status, location, torch.where(mass <= 0.0, RESERVE, BOUND).to(torch.int8), which & edge)
    return which & ~edge


def _start_joining(work: Work, location: Tensor, which: Tensor, upwards: Tensor) -> None:
    work.write(work.g, location, torch.zeros_like(work.r), which)
    work.mode = torch.where(which, JOIN, work.mode)
    work.joiner = torch.where(which, location, work.joiner)
    work.join_direction = torch.where(which, torch.where(upwards, 1.0, -1.0).to(work.a.dtype), work.join_direction)


# ---- the margin is empty ----


def _move_rho(work: Work, empty: Tensor) -> None:
    """rho moves alone until a partner joins or the walker itself reaches g = 0; with neither, a walk down has
    failed.
    """
    location, direction = work.walker.clamp_min(0), work.direction
    partner_g, partner = _nearest_partner(work, direction)
    infinite = direction * torch.inf
    own = torch.where(work.to_kkt, -pick(work.g, location), infinite)
    other = torch.where(partner >= 0, -partner_g, infinite)
    first = direction * own <= direction * other
    arrived, meets = empty & first & work.to_kkt, empty & ~first
    shift = torch.where(arrived, own, torch.where(meets, other, 0.0))
    work.r = work.r + shift
    work.g += shift[:, None]
    work.events = work.events + empty.long()
    _stop_without_partner(work, location, empty & first & ~work.to_kkt)
    _start_joining(work, partner.clamp_min(0), meets, direction < 0.0)
    inside = _settle_at_zero(work, location, arrived)
    none = torch.zeros((len(location), 1), dtype=work.a.dtype, device=work.a.device)
    work.append(inside, location, none, torch.ones_like(work.r))
    work.mode = torch.where(arrived, DONE, work.mode)


def _nearest_partner(work: Work, direction: Tensor) -> tuple[Tensor, Tensor]:
    """The bound point nearest to release (walk up) or the reserve point nearest to absorb (walk down); -1 for none."""
    wanted = torch.where(direction > 0.0, BOUND, RESERVE)[:, None]
    can = (work.status == wanted) & ~work.frozen & (work.cap > 0.0)
    value = torch.where(can, -direction[:, None] * work.g, torch.inf)
    best = value.argmin(1)
    return pick(work.g, best), torch.where(can.any(1), best, -1)


def _stop_without_partner(work: Work, location: Tensor, which: Tensor) -> None:
    rest = pick(work.a, location) - work.target
    done = which & (rest <= 1e-12)
    work.write(work.a, location, work.target, done)
    work.write(work.status, location, torch.where(work.target == 0.0, RESERVE, BOUND).to(torch.int8), done)
    work.mode = torch.where(which, torch.where(done, DONE, FAILED), work.mode)
