"""The part of a batch that one operation works on: copies of its rows, so that what fails is never written back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from memory.svdd.batch.arithmetic import ordered_sum, pick
from memory.svdd.batch.factor import ULP2

if TYPE_CHECKING:
    from memory.svdd.batch.store import Store

RESERVE, MARGIN, BOUND, MOVING, PADDING = 0, 1, 2, 3, 4
WALK, JOIN, DONE, FAILED = 0, 1, 2, 3


@dataclass
class Work:
    """Rows of a store under one operation; B rows, R location slots, M margin slots.

    Attributes:
        store: where the kernel lies; rows (B,): which memories these are.
        a, cap, g (B, R): mass, cap and stationarity value of each location; a_was, g_was, r_was: before the operation.
        status (B, R): as in the compiled core, with PADDING beyond the locations; frozen: out of every event test.
        left_at (B, R): stamp at which a location last left the margin.
        members (B, M), m (B,), V, D: the margin and its factor, the reference in slot 0.
        r, scale, C, stamp, events, limit (B,): rho + 1, largest -k, token cap, position stamp, moves made and allowed.
        mode (B,): WALK, JOIN, DONE or FAILED; walker, direction, target, to_kkt: what walks where; joiner,
            join_direction; leaving: margin slot that goes before the next move, or -1.
    """

    store: Store
    rows: Tensor
    a: Tensor
    cap: Tensor
    g: Tensor
    a_was: Tensor
    g_was: Tensor
    r_was: Tensor
    status: Tensor
    frozen: Tensor
    left_at: Tensor
    members: Tensor
    m: Tensor
    V: Tensor
    D: Tensor
    r: Tensor
    scale: Tensor
    C: Tensor
    stamp: Tensor
    events: Tensor
    limit: Tensor
    mode: Tensor
    walker: Tensor
    direction: Tensor
    target: Tensor
    to_kkt: Tensor
    joiner: Tensor
    join_direction: Tensor
    leaving: Tensor

    # ---- parts of it ----

    def take(self, index: Tensor) -> Work:
        """A copy of the rows `index`."""
        return Work(self.store, *(getattr(self, name).index_select(0, index) for name in _TENSORS))

    def put(self, index: Tensor, part: Work) -> None:
        """Write a part's rows back to the places they were taken from."""
        self.need_margin(part.members.shape[1])
        for name in _TENSORS:
            getattr(self, name).index_copy_(0, index, getattr(part, name))

    def need_margin(self, slots: int) -> Self:
        """Make room for `slots` margin slots."""
        more = slots - self.members.shape[1]
        if more > 0:
            self.members = torch.nn.functional.pad(self.members, (0, more))
            self.D = torch.nn.functional.pad(self.D, (0, more), value=1.0)
            self.V = torch.nn.functional.pad(self.V, (0, more, 0, more))
        return self

    # ---- the kernel ----

    def kernel_row(self, location: Tensor) -> Tensor:
        """k of one location per row against all location slots: (B, R); padded columns may hold anything."""
        room = self.store.room
        return self.store.k.view(-1, room).index_select(0, self.rows * room + location)

    def weighted_rows(self, location: Tensor, weight: Tensor) -> Tensor:
        """sum over t of weight[:, t] k(location[:, t], .), added in the order of t: (B, R)."""
        room, total = self.store.room, torch.zeros_like(self.g)
        k, places = self.store.k.view(-1, room), (self.rows[:, None] * room + location).T.contiguous()
        for t, place in enumerate(places):
            total += k.index_select(0, place).mul_(weight[:, t : t + 1])
        return total

    # ---- what is derived ----

    @property
    def valid(self) -> Tensor:
        """Location slots in use: (B, R) bool."""
        return self.status != PADDING

    def live(self, top: int) -> Tensor:
        """1.0 in the first `top` margin slots that hold a member, else 0.0: (B, top)."""
        return (torch.arange(top, device=self.m.device) < self.m[:, None]).to(self.a.dtype)

    def tolerance(self) -> Tensor:
        """What rounding leaves in a stationarity value: (B,)."""
        return (16.0 + self.m) * ULP2 * self.scale

    def dependence(self) -> Tensor:
        """A pivot at or below this is rounding: (B,)."""
        return (4.0 + self.m) * ULP2 * self.scale

    def mass(self) -> Tensor:
        """sum a: (B,)."""
        return ordered_sum(self.a)

    def violation(self) -> Tensor:
        """By how much each location violates its condition or its box: (B, R), 0 in padding."""
        outside = torch.maximum(-self.a, self.a - self.cap).clamp_min(0.0) * self.scale[:, None]
        wrong = torch.where(self.status == MARGIN, torch.maximum(self.g.abs(), outside), self.g)
        wrong = torch.where(self.status == RESERVE, -self.g, wrong)
        return torch.where(self.valid & (self.cap > 0.0), wrong, 0.0)

    def right(self) -> Tensor:
        """Rows whose every condition holds to eight times the tolerance: (B,)."""
        return self.violation().amax(1) <= 8.0 * self.tolerance()

    # ---- small changes ----

    def leave(self, which: Tensor, position: Tensor, to_bound: Tensor) -> None:
        """Members at `position` go to their cap or to 0 where `which` holds; their slot is marked as leaving."""
        slot = position.clamp_min(0)
        location = pick(self.members, slot)
        ends = torch.where(to_bound, pick(self.cap, location), 0.0)
        self.write(self.a, location, ends, which)
        self.write(self.status, location, torch.where(to_bound, BOUND, RESERVE).to(torch.int8), which)
        self.write(self.left_at, location, self.stamp, which)
        self.leaving = torch.where(which, slot, self.leaving)

    def append(self, which: Tensor, location: Tensor, z: Tensor, pivot: Tensor) -> None:
        """Locations become the last members where `which` holds; z is their forward solve."""
        slot = self.m.clamp_max(self.members.shape[1] - 1)
        lines = torch.arange(len(slot), device=slot.device)
        row = torch.zeros_like(self.D)
        row[:, : z.shape[1]] = z / self.D[:, : z.shape[1]]
        self.V[lines, slot] = torch.where(which[:, None], row, self.V[lines, slot])
        self.write(self.D, slot, torch.where(self.m == 0, 1.0, pivot), which)
        self.write(self.members, slot, location, which)
        self.write(self.status, location, torch.full_like(location, MARGIN).to(torch.int8), which)
        self.m = self.m + which.long()

    @staticmethod
    def write(x: Tensor, index: Tensor, value: Tensor, which: Tensor) -> None:
        """x[b, index[b]] = value[b] in the rows b where `which` holds; x is changed in place."""
        x.scatter_(1, index[:, None], torch.where(which, value, pick(x, index))[:, None])


_TENSORS = tuple(field.name for field in fields(Work) if field.name != "store")
