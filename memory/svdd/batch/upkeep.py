"""Keeping lock-step states right: gradients from the masses, the margin solved again, checks, and repair by the same
walk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memory.svdd.batch.arithmetic import ordered_sum, pick
from memory.svdd.batch.factor import backward, factorise, forward
from memory.svdd.batch.walk import admit_to_margin, run, send, take_out
from memory.svdd.batch.work import BOUND, FAILED, MARGIN, MOVING, RESERVE, Work

POLISH_ROUNDS, REPAIR_ROUNDS = 2, 8


def rows_of(mask: Tensor) -> Tensor:
    """Indices where a (B,) mask holds."""
    return mask.nonzero()[:, 0]


def field(work: Work) -> Tensor:
    """2 K a from the masses alone, in the order of the locations: (B, R)."""
    active = work.a != 0.0
    count = int(active.sum(1).max())
    order = torch.argsort(active.logical_not().to(torch.int8), dim=1, stable=True)[:, :count]
    held = active.gather(1, order)
    return work.weighted_rows(order * held, 2.0 * work.a.gather(1, order) * held)


def refresh(work: Work) -> None:
    """Every g from the masses and the kernel; r from the margin, or by the convention where the margin is empty."""
    top = max(int(work.m.max()), 1)
    work.g = field(work)
    at_members = work.g.gather(1, work.members[:, :top]) * work.live(top)
    work.r = -ordered_sum(at_members) / work.m.clamp_min(1)
    work.g += work.r[:, None]
    take_upper_rho(work, work.m == 0)


def take_upper_rho(work: Work, which: Tensor) -> None:
    """rho where no coefficient lies strictly inside its box: the upper end of its interval."""
    highest = torch.where(work.a > 0.0, work.g, -torch.inf).amax(1)
    shift = torch.where(which, highest, 0.0)
    work.r = work.r - shift
    work.g -= shift[:, None]


def drifted(work: Work) -> Tensor:
    """Rows whose margin's true residual, taken from the masses, is beyond the tolerance: (B,)."""
    top = max(int(work.m.max()), 1)
    residual = (work.r[:, None] + field(work).gather(1, work.members[:, :top])).abs() * work.live(top)
    return residual.amax(1) > work.tolerance()


def polish(work: Work) -> None:
    """Solve the margin again from the masses of all others; a member that would leave its box leaves the margin
    instead.
    """
    rounds = torch.zeros_like(work.m)
    going = (work.m > 0) & (work.mode != FAILED)
    while bool(going.any()):
        stopped = _correct(work, going)
        rounds = rounds + (going & ~stopped).long()
        going = going & (rounds < POLISH_ROUNDS) & (work.m > 0)


def _correct(work: Work, which: Tensor) -> Tensor:
    top = int(work.m.max())
    members, live = work.members[:, :top], work.live(top)
    at_members = field(work).gather(1, members)
    differences = (at_members - at_members[:, :1]) * live
    beta = _correction(work, differences, 1.0 - work.mass(), live)
    part, blocking = _admissible_part(work, members, beta, live)
    work.a.scatter_add_(1, members, torch.where(which, part, 0.0)[:, None] * beta)
    stopped = which & (blocking >= 0)
    work.leave(stopped, blocking, pick(beta, blocking.clamp_min(0)) > 0.0)
    if count := int(stopped.sum()):
        take_out(work, count, top)
    return stopped


def _correction(work: Work, differences: Tensor, deficit: Tensor, live: Tensor) -> Tensor:
    """The change of the members' mass that makes 2 K a equal on all of them again, the total moving by deficit."""
    top = live.shape[1]
    to_reference = work.kernel_row(work.members[:, 0]).gather(1, work.members[:, :top])
    wanted = (-0.5 * differences - deficit[:, None] * to_reference) * live
    wanted[:, 0] = 0.0
    beta = backward(work.V, forward(work.V, wanted, top) / work.D[:, :top], top)
    beta[:, 0] = (deficit - ordered_sum(beta)) * live[:, 0]
    return beta


def _admissible_part(work: Work, members: Tensor, beta: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """The longest part of the correction that keeps every member in its box, and the member that stops it, or -1."""
    mass, cap = work.a.gather(1, members), work.cap.gather(1, members)
    wanted = mass + beta
    limit = torch.where((wanted < 0.0) & (live > 0.0), mass / -beta, 1.0)
    limit = torch.where((wanted > cap) & (live > 0.0), (cap - mass) / beta, limit)
    first = limit.argmin(1)
    part = pick(limit, first)
    return part.clamp(0.0, 1.0), torch.where(part < 1.0, first, -1)


def shed_edges(work: Work) -> None:
    """Members that ended exactly on an edge of their box are no margin; without any, rho follows its convention."""
    _count_lone_member(work)
    while True:
        mass, cap = work.a.gather(1, work.members), work.cap.gather(1, work.members)
        live = work.live(work.members.shape[1]) > 0.0
        edge = live & ((mass <= 0.0) | (mass >= cap)) & (work.mode != FAILED)[:, None]
        count, top = torch.stack([edge.any(1).sum(), work.m.max()]).tolist()
        if not count:
            break
        last = edge.shape[1] - 1 - edge.flip(1).to(torch.int8).argmax(1)
        work.leave(edge.any(1), last, pick(mass, last) > 0.0)
        take_out(work, count, top)
    take_upper_rho(work, (work.m == 0) & (work.mode != FAILED))


def _count_lone_member(work: Work) -> None:
    """A lone member holds what the bound locations leave. Where 1/C is an integer that is a whole number of caps, which
    counting gives exactly and summing does not.
    """
    full = work.store.full[work.rows]
    copies = (work.cap / work.C[:, None]).round()
    left = full - ordered_sum(torch.where(work.status == BOUND, copies, 0.0))
    location = work.members[:, 0]
    mass = torch.where(left >= pick(copies, location), pick(work.cap, location), left.clamp_min(0.0) * work.C)
    lone = (work.m == 1) & (full == full.round()) & (work.mode != FAILED)
    work.write(work.a, location, mass, lone)


def refactor(work: Work) -> None:
    """Factor from the kernel entries; members that have become dependent are set aside and exchanged in again."""
    top = max(int(work.m.max()), 1)
    work.need_margin(top)
    members, live = work.members[:, :top], work.live(top)
    to_reference = work.kernel_row(members[:, 0]).gather(1, members)
    H = torch.stack([work.kernel_row(members[:, i]).gather(1, members) for i in range(top)], 1)
    H = (H - to_reference[:, :, None] - to_reference[:, None, :]) * live[:, :, None] * live[:, None, :]
    V, D, aside = factorise(H, work.m, work.dependence())
    work.V.zero_()[:, :top, :top] = V
    work.D.fill_(1.0)[:, :top] = D
    if bool(aside.any()):
        _exchange_in(work, aside, top)


def _exchange_in(work: Work, aside: Tensor, top: int) -> None:
    order = torch.argsort(aside.to(torch.int8), dim=1, stable=True)
    count = aside.sum(1)
    members = work.members[:, :top]
    waiting = torch.zeros_like(work.status, dtype=torch.int32).scatter_add_(1, members, aside.int()) > 0
    work.status = torch.where(waiting, MOVING, work.status).to(torch.int8)
    work.m = work.m - count
    live = work.live(top)
    work.members[:, :top] = members.gather(1, order) * live.long()
    V = work.V[:, :top, :top].gather(1, order[:, :, None].expand(-1, -1, top))
    work.V[:, :top, :top] = V.gather(2, order[:, None, :].expand(-1, top, -1)) * live[:, :, None] * live[:, None, :]
    work.D[:, :top] = work.D[:, :top].gather(1, order) * live + (1.0 - live)
    while True:
        waiting = (work.status == MOVING) & (work.mode != FAILED)[:, None]
        if not bool(waiting.any()):
            break
        admit_to_margin(work, waiting.any(1), waiting.to(torch.int8).argmax(1), torch.ones_like(work.r))
        run(work)


def settle(work: Work) -> None:
    """Locations that violate their condition are frozen, out of every event test, and released one at a time, in
    order.
    """
    tolerance = work.tolerance()[:, None]
    work.frozen = (work.status != MARGIN) & (work.violation() > tolerance)
    places = torch.arange(work.a.shape[1], device=work.a.device)
    last = torch.full_like(work.m, -1)
    while True:
        wrong = work.frozen & (work.violation() > work.tolerance()[:, None]) & (places > last[:, None])
        which = wrong.any(1) & (work.mode != FAILED)
        if not bool(which.any()):
            break
        next_one = wrong.to(torch.int8).argmax(1)
        last = torch.where(which, next_one, last)
        work.frozen = work.frozen & ~(which[:, None] & (places == next_one[:, None]))
        direction = torch.where(pick(work.g, next_one) < 0.0, 1.0, -1.0).to(work.a.dtype)
        send(work, which, next_one, direction, torch.zeros_like(work.r), True)
        run(work)
        work.frozen = work.frozen & (work.violation() > work.tolerance()[:, None])
    work.frozen = torch.zeros_like(work.frozen)


def start(work: Work, mult: Tensor, full: Tensor) -> None:
    """The first solve: the first locations at their caps until the mass is 1, then the violators released one at a
    time.

    mult (B, R) tokens of each location, full (B,) tokens that fill the mass.
    """
    before = mult.cumsum(1) - mult
    taken = torch.minimum((full[:, None] - before).clamp_min(0.0), mult.to(work.a.dtype))
    taken = torch.where(taken < 1e-9, 0.0, taken)
    whole = taken == mult
    work.a = torch.where(whole, work.cap, taken * work.C[:, None]) * work.valid
    state = torch.where(taken == 0.0, RESERVE, torch.where(whole, BOUND, MARGIN)).to(torch.int8)
    work.status = torch.where(work.valid, state, work.status)
    take_statuses(work)
    refresh(work)
    settle(work)


def take_statuses(work: Work) -> None:
    """Members from the statuses, in the order of the locations, with a factor made from the kernel."""
    inside = work.status == MARGIN
    work.m = inside.sum(1)
    top = max(int(work.m.max()), 1)
    work.need_margin(top)
    order = torch.argsort(inside.logical_not().to(torch.int8), dim=1, stable=True)[:, :top]
    work.members.zero_()[:, :top] = order * work.live(top).long()
    refactor(work)


def repair(work: Work) -> None:
    """Factor and gradients afresh, then the same walk for whatever violates its condition; what stays wrong fails."""
    for _ in range(REPAIR_ROUNDS):
        refactor(work)
        polish(work)
        refresh(work)
        wrong = ~work.right() & (work.mode != FAILED)
        if not bool(wrong.any()):
            return
        settle(work)
    work.mode = torch.where(~work.right(), FAILED, work.mode)


def part_of(work: Work, mask: Tensor) -> tuple[Tensor, Work] | None:
    """The rows of a mask as their own work, or None where there is none."""
    rows = rows_of(mask)
    return (rows, work.take(rows)) if len(rows) else None
