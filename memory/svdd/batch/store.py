"""Padded storage of many memories on one device: locations, kernel, masses, margin factors and cold tokens.

Only the first n[b] location slots, m[b] margin slots and the cold slots with an expiry below +inf mean anything;
whatever lies beyond them is never read into a result. Locations have serial numbers that stay when slots move, so that
the host can tell where a token lies without following the device.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from memory.svdd.batch.arithmetic import ordered_sum
from memory.svdd.batch.factor import ULP2
from memory.svdd.batch.work import DONE, PADDING, RESERVE, Work

STEP = 8
_REALS = ("a", "cap", "g")
_WHOLE = ("mult", "left_at", "serial")


def _rounded(count: int) -> int:
    return -(-count // STEP) * STEP


class Store:
    """Tensors of B memories of keys with d components; R location slots, M margin slots, Q cold slots.

    x (B, d, R), k (B, R, R), a, cap, g, mult, status, left_at, serial (B, R); members, D (B, M), V (B, M, M);
    n, m, r, scale, stamp, solved, operations, next_serial, drift, drift_low, C, full, inv_s2 (B,);
    cold_x (B, d, Q), cold_expiry (B, Q), +inf where a slot is free.
    """

    def __init__(self, d: int, C: Tensor, full: Tensor, inv_s2: Tensor) -> None:
        self.d, self.batch, self.device = d, len(C), C.device
        self.C, self.full, self.inv_s2 = C, full, inv_s2
        self.room, self.most = 2 * STEP, 0
        self.x, self.k = self._reals(d, self.room), self._reals(self.room, self.room)
        self.a, self.cap, self.g = (self._reals(self.room) for _ in _REALS)
        self.mult, self.left_at, self.serial = (self._counts(self.room) for _ in _WHOLE)
        self.status = self._counts(self.room).to(torch.int8)
        self.members, self.D, self.V = self._counts(STEP), self._reals(STEP) + 1.0, self._reals(STEP, STEP)
        self.n, self.m, self.stamp, self.operations, self.next_serial = (self._counts() for _ in range(5))
        self.r, self.scale, self.drift, self.drift_low = (self._reals() for _ in range(4))
        self.solved = self._counts().bool()
        self.cold_x, self.cold_expiry = self._reals(d, STEP), self._reals(STEP) + torch.inf

    def _reals(self, *shape: int) -> Tensor:
        return torch.zeros((self.batch, *shape), dtype=torch.float64, device=self.device)

    def _counts(self, *shape: int) -> Tensor:
        return torch.zeros((self.batch, *shape), dtype=torch.int64, device=self.device)

    # ---- room ----

    def need_locations(self, count: int) -> None:
        """Make room for `count` location slots, or give back room that is far too much."""
        room = _rounded(count + STEP)
        if self.room - 4 * STEP < count <= self.room:
            return
        more = room - self.room
        for name in (*_REALS, *_WHOLE, "status", "x"):
            setattr(self, name, torch.nn.functional.pad(getattr(self, name), (0, more)).contiguous())
        self.k = torch.nn.functional.pad(self.k, (0, more, 0, more)).contiguous()
        self.room = room

    def need_cold(self, count: int) -> None:
        """Make room for `count` cold slots."""
        more = _rounded(count) - self.cold_expiry.shape[1]
        if more > 0:
            self.cold_expiry = torch.nn.functional.pad(self.cold_expiry, (0, more), value=torch.inf)
            self.cold_x = torch.nn.functional.pad(self.cold_x, (0, more))

    # ---- derived ----

    def valid(self, rows: Tensor) -> Tensor:
        """Location slots in use of the given memories: (p, R)."""
        return torch.arange(self.room, device=self.device) < self.n[rows, None]

    def tolerance(self, rows: Tensor) -> Tensor:
        """What rounding leaves in a stationarity value: (p,)."""
        return (16.0 + self.m[rows]) * ULP2 * self.scale[rows]

    def clock(self, rows: Tensor) -> Tensor:
        """The drift clock: (p,)."""
        return self.drift[rows] + self.drift_low[rows]

    def expiry(self, rows: Tensor, g: Tensor) -> Tensor:
        """When keys with stationarity g (p,) or (p, R) must be looked at again on their memory's drift clock."""
        now, lost = self.clock(rows), self.tolerance(rows) + 2.0**-50 * (1.0 + self.clock(rows).abs())
        now, lost = (now[:, None], lost[:, None]) if g.ndim == 2 else (now, lost)
        return now + g - lost

    def can_chill(self, rows: Tensor, g: Tensor) -> Tensor:
        """Whether the distance of keys from their condition shows above the rounding of the clock: (p,) or (p, R)."""
        now, least = self.clock(rows), 4.0 * self.tolerance(rows)
        now, least = (now[:, None], least[:, None]) if g.ndim == 2 else (now, least)
        return (self.expiry(rows, g) > now) & (g > least)

    def kernel(self, rows: Tensor, x: Tensor, keys: Tensor) -> Tensor:
        """Shifted kernel of keys (p, d) with x (p, d, L): (p, L), the components added in order."""
        distance = torch.zeros_like(x[:, 0])
        for j in range(self.d):
            gap = x[:, j] - keys[:, j : j + 1]
            distance += gap * gap
        return torch.expm1(-distance * self.inv_s2[rows, None])

    def active(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (p, d, A) and masses (p, A) of the locations that carry mass, in their order, zero beyond them."""
        held = self.valid(rows) & (self.a[rows] != 0.0)
        count = max(int(held.sum(1).max()), 1)
        order = torch.argsort(held.logical_not().to(torch.int8), dim=1, stable=True)[:, :count]
        real = held.gather(1, order)
        x = self.x[rows].gather(2, order[:, None, :].expand(-1, self.d, -1))
        return torch.where(real[:, None, :], x, 0.0), torch.where(real, self.a[rows].gather(1, order), 0.0)

    def gradient_at(self, rows: Tensor, lines: Tensor, keys: Tensor) -> Tensor:
        """g of keys (P, d), where key t belongs to memory rows[lines[t]]: (P,)."""
        x, a = self.active(rows)
        out = []
        for chosen, part in _chunks(lines, keys, x.shape[1] * x.shape[2]):
            k = self.kernel(rows[chosen], x[chosen], part)
            out.append(self.r[rows[chosen]] + 2.0 * ordered_sum(k * a[chosen]))
        return torch.cat(out)

    def score(self, rows: Tensor, queries: Tensor) -> Tensor:
        """2 sum a kappa - rho at queries (p, q, d): (p, q); meaningless for memories that still collect."""
        x, a = self.active(rows)
        count = queries.shape[1]
        lines = torch.arange(len(rows), device=self.device).repeat_interleave(count)
        out = []
        for chosen, part in _chunks(lines, queries.reshape(-1, self.d), x.shape[1] * x.shape[2]):
            field = ordered_sum(self.kernel(rows[chosen], x[chosen], part) * a[chosen])
            out.append(3.0 + (2.0 * field - self.r[rows[chosen]]))
        return torch.cat(out).reshape(len(rows), count)

    def clear(self, b: int) -> None:
        """Memory b holds nothing and collects."""
        self.n[b] = self.m[b] = 0
        self.r[b] = self.scale[b] = 0.0
        self.solved[b] = False
        self.cold_expiry[b] = torch.inf

    # ---- work ----

    def take(self, rows: Tensor) -> Work:
        """Copies of the given memories to work on, with every padded entry replaced by a neutral one."""
        valid = self.valid(rows)
        slots = torch.arange(self.members.shape[1], device=self.device)
        live = slots < self.m[rows, None]
        a, cap, g = (torch.where(valid, getattr(self, name)[rows], 0.0) for name in _REALS)
        nothing, none, r = torch.zeros_like(rows), torch.full_like(rows, -1), self.r[rows]
        factor = live[:, :, None] & live[:, None, :]
        return Work(
            store=self, rows=rows, a=a, cap=cap, g=g, a_was=a.clone(), g_was=g.clone(), r_was=r.clone(),
            status=torch.where(valid, self.status[rows], PADDING).to(torch.int8), frozen=torch.zeros_like(valid),
            left_at=self.left_at[rows], members=torch.where(live, self.members[rows], 0), m=self.m[rows],
            V=torch.where(factor, self.V[rows], 0.0), D=torch.where(live, self.D[rows], 1.0),
            r=r, scale=self.scale[rows], C=self.C[rows], stamp=self.stamp[rows],
            events=nothing.clone(), limit=nothing.clone(), mode=torch.full_like(rows, DONE),
            walker=none.clone(), direction=torch.ones_like(r), target=torch.zeros_like(r),
            to_kkt=torch.ones_like(rows, dtype=torch.bool), joiner=none.clone(), join_direction=torch.ones_like(r),
            leaving=none.clone(),
        )  # fmt: skip

    def put(self, work: Work) -> None:
        """Take over the result of an operation."""
        more = work.members.shape[1] - self.members.shape[1]
        if more > 0:
            self.members = torch.nn.functional.pad(self.members, (0, more))
            self.D = torch.nn.functional.pad(self.D, (0, more), value=1.0)
            self.V = torch.nn.functional.pad(self.V, (0, more, 0, more))
        work.need_margin(self.members.shape[1])
        for name in ("a", "cap", "g", "status", "left_at", "members", "m", "V", "D", "r", "stamp"):
            getattr(self, name).index_copy_(0, work.rows, getattr(work, name))

    def advance_clock(self, work: Work) -> None:
        """How far any key's g can have fallen: min(|da|_1, 2 sqrt(da' K da)) - dr [MATH 1.3], from the net change."""
        change = work.r - work.r_was
        moved = work.a - work.a_was
        length = ordered_sum(moved.abs())
        answer = torch.where(work.valid, work.g - work.g_was - change[:, None], 0.0)
        energy = ordered_sum(moved * 0.5 * answer) + 2.0**-48 * length * work.scale
        amount = torch.minimum(length, 2.0 * energy.clamp_min(0.0).sqrt()) - change
        before = self.drift[work.rows]
        total = before + amount
        lost = torch.where(before.abs() >= amount.abs(), (before - total) + amount, (amount - total) + before)
        self.drift_low.index_copy_(0, work.rows, self.drift_low[work.rows] + lost)
        self.drift.index_copy_(0, work.rows, total)

    # ---- locations ----

    def locate(self, rows: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """One more token at each key (p, d): its location slot and whether the location is new; no mass moves."""
        x = self.x[rows]
        valid = self.valid(rows)
        same = (x == keys[:, :, None]).all(1) & valid
        new = ~same.any(1)
        slot = torch.where(new, self.n[rows], same.to(torch.int8).argmax(1))
        k = self.kernel(rows, x, keys)
        farthest = torch.where(valid, -k, 0.0).amax(1)
        self.scale.index_copy_(0, rows, torch.where(new, torch.maximum(self.scale[rows], farthest), self.scale[rows]))
        answer = self.r[rows] + 2.0 * ordered_sum(torch.where(valid, k * self.a[rows], 0.0))
        self._write(rows[new], slot[new], keys[new], k[new], torch.where(self.solved[rows], answer, 0.0)[new])
        self._count_token(rows, slot, 1)
        return slot, new

    def _write(self, rows: Tensor, slot: Tensor, keys: Tensor, k: Tensor, g: Tensor) -> None:
        self.x[rows, :, slot] = keys
        self.k[rows, slot, :] = k
        self.k[rows, :, slot] = k
        self.k[rows, slot, slot] = 0.0
        self.g[rows, slot] = g
        self.a[rows, slot] = self.cap[rows, slot] = 0.0
        self.mult[rows, slot] = self.left_at[rows, slot] = 0
        self.status[rows, slot] = RESERVE
        self.serial[rows, slot] = self.next_serial[rows]
        self.next_serial[rows] += 1
        self.n[rows] += 1

    def _count_token(self, rows: Tensor, slot: Tensor, change: int) -> None:
        self.mult[rows, slot] += change
        self.cap[rows, slot] = self.mult[rows, slot] * self.C[rows]

    def give_back(self, rows: Tensor, slot: Tensor, new: Tensor) -> None:
        """Undo `locate`."""
        self._count_token(rows, slot, -1)
        self.n[rows] -= new.long()

    def keep_locations(self, rows: Tensor, keep: Tensor) -> None:
        """Keep the chosen locations (p, R) of the given memories, closed up in their order."""
        keep = keep & self.valid(rows)
        order = torch.argsort(keep.logical_not().to(torch.int8), dim=1, stable=True)
        for name in (*_REALS, *_WHOLE, "status"):
            whole = getattr(self, name)
            whole.index_copy_(0, rows, whole[rows].gather(1, order))
        self.x.index_copy_(0, rows, self.x[rows].gather(2, order[:, None, :].expand(-1, self.d, -1)))
        k = self.k[rows].gather(1, order[:, :, None].expand(-1, -1, self.room))
        self.k.index_copy_(0, rows, k.gather(2, order[:, None, :].expand(-1, self.room, -1)))
        place = (keep.cumsum(1) - 1).clamp_min(0)
        live = torch.arange(self.members.shape[1], device=self.device) < self.m[rows, None]
        members = torch.where(live, self.members[rows], 0)
        self.members.index_copy_(0, rows, place.gather(1, members))
        self.n.index_copy_(0, rows, keep.sum(1))
        self.most = int(self.n.max())
        self.need_locations(self.most)


def _chunks(lines: Tensor, keys: Tensor, cost: int) -> Iterator[tuple[Tensor, Tensor]]:
    size = max(2**20 // max(cost, 1), 1)
    for first in range(0, len(lines), size):
        yield lines[first : first + size], keys[first : first + size]
