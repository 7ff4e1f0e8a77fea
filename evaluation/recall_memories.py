"""What each memory reads at an event hour's key, with that hour written and with that hour never written [MATH E].

Every function takes the same `Asked` and returns one `Reads`. The ghost of a memory is what it would read had the hour
never been given: ridge by the closed form of a downdate, linear attention by subtraction, the other write rules by a
replay in which the hour is a hole, caches by a stream without it, the support-vector memory by deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from evaluation.policies import SUM_DECIMALS
from memory.delta import DeltaBatch
from memory.features import VitalFeatures
from memory.nc01 import ICU, NC01Bank, NoveltyOffers
from memory.streamed import StreamedBatch
from memory.svdd import SVDDMemory
from memory.vla import VLABatch

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
CachePolicy = Literal["density", "novelty", "recency", "random"]

KEY_FLOATS, VALUE_FLOATS = 6, 1  # of one hour in a cache: five vitals and the clock, and the held-out vital
TOKEN_FLOATS = KEY_FLOATS + VALUE_FLOATS
LEAST_ROOM = 1e-6  # of 1 - leverage: below it the downdate divides by rounding and the sums are solved again


@dataclass(frozen=True)
class Asked:
    """One stay and what is asked of it.

    z (n, 6): the five selector vitals and hour / 24; values (n,): the held-out vital in SD; events (E,): places of the
    event hours asked for; at (E, D): the place after which each is read, one column a delay, -1 where the stay ends
    before; luck (n,): a draw per hour for the random cache.
    """

    z: Floats
    values: Floats
    events: Places
    at: Places
    luck: Floats

    @property
    def moments(self) -> list[int]:
        """The places after which something is read, ascending."""
        return sorted({int(place) for place in self.at.ravel() if place >= 0})

    def read_at(self, moment: int) -> tuple[Places, Places]:
        """Which (event, delay) are read after this place."""
        events, delays = np.nonzero(self.at == moment)
        return events, delays


@dataclass(frozen=True)
class Reads:
    """Reads in SD with the hour written and never written, (E, D); NaN where the memory has no readout.

    `kept` says which hours the memory itself holds (caches only); `floats` is the size of the state, a mean over reads.
    """

    recalled: Floats
    ghost: Floats
    kept: NDArray[np.bool_] | None
    floats: float


def _blank(asked: Asked) -> tuple[Floats, Floats]:
    return np.full(asked.at.shape, np.nan), np.full(asked.at.shape, np.nan)


# ---- matrix memories ----


def ridge_reads(asked: Asked, features: VitalFeatures, lam0: float) -> Reads:
    """VLA with gain "ridge": S = M (lam0 I + G)^-1; the ghost is (r - h v) / (1 - h), h the leverage [MATH A7]."""
    keys, d_k = _keys(asked, features), len(features.phase)
    recalled, ghost = _blank(asked)
    for moment in asked.moments:
        seen, values = keys[: moment + 1], asked.values[: moment + 1]
        gram, sums = seen.T @ seen + lam0 * np.eye(d_k), seen.T @ values
        events, delays = asked.read_at(moment)
        queries, own = keys[asked.events[events]], asked.values[asked.events[events]]
        solved = np.linalg.solve(gram, np.column_stack([sums, queries.T]))
        read, leverage = queries @ solved[:, 0], (queries * solved[:, 1:].T).sum(axis=1)
        room = 1.0 - leverage
        recalled[events, delays] = read
        ghost[events, delays] = np.where(room >= LEAST_ROOM, (read - leverage * own) / np.maximum(room, LEAST_ROOM), 0)
        for one in np.flatnonzero(room < LEAST_ROOM):
            without = np.linalg.solve(gram - np.outer(queries[one], queries[one]), sums - queries[one] * own[one])
            ghost[events[one], delays[one]] = queries[one] @ without
    return Reads(recalled, ghost, None, vla_floats(d_k))


def linear_reads(asked: Asked, features: VitalFeatures) -> Reads:
    """Linear attention S f(q) / (z . f(q)) with f = elu + 1; both sums are taken back for the ghost."""
    keys = _keys(asked, features)
    positive = np.where(keys > 0.0, keys + 1.0, np.exp(np.minimum(keys, 0.0)))
    recalled, ghost = _blank(asked)
    for moment in asked.moments:
        events, delays = asked.read_at(moment)
        places = asked.events[events]
        weight = positive[places] @ positive[: moment + 1].T
        own = weight[np.arange(len(places)), places]
        over, under = weight @ asked.values[: moment + 1], weight.sum(axis=1)
        recalled[events, delays] = over / under
        rest = under - own
        ghost[events, delays] = np.where(rest > 0, (over - own * asked.values[places]) / np.where(rest > 0, rest, 1), 0)
    return Reads(recalled, ghost, None, linear_floats(len(features.phase)))


def unit_reads(asked: Asked, features: VitalFeatures) -> Reads:
    """VLA with gain "unit" and its defaults, by replay with a hole."""
    d_k = len(features.phase)
    return _replayed(asked, features, lambda rows: VLABatch(d_k, 1, rows, gain="unit"), vla_floats(d_k))


def delta_reads(asked: Asked, features: VitalFeatures) -> Reads:
    """The delta rule with beta 1, by replay with a hole."""
    d_k = len(features.phase)
    return _replayed(asked, features, lambda rows: DeltaBatch(d_k, 1, rows), delta_floats(d_k))


def _replayed(asked: Asked, features: VitalFeatures, make: Callable[[int], StreamedBatch], floats: float) -> Reads:
    """All hours in one memory and, in lock-step beside it, one memory for each hole: a zero key writes nothing."""
    lanes = torch.from_numpy(_lanes(asked, features))
    values = torch.from_numpy(asked.values)[None, :, None].expand(len(lanes), -1, -1)
    queries = lanes[0, asked.events].expand(len(lanes), -1, -1)
    batch, start = make(len(lanes)), 0
    recalled, ghost = _blank(asked)
    for moment in asked.moments:
        batch.admit_many(lanes[:, start : moment + 1], values[:, start : moment + 1])
        start = moment + 1
        _take(asked, moment, batch.read(queries)[:, :, 0].numpy(), recalled, ghost)
    return Reads(recalled, ghost, None, floats)


def nc01_reads(asked: Asked, features: VitalFeatures, alpha: float, novelty_width: float) -> Reads:
    """A protected-read bank at the cadence of hours, offered the most novel hour of every half day; holes by mask."""
    d_k, rows = len(features.phase), len(asked.events) + 1
    keys = torch.from_numpy(_keys(asked, features)).expand(rows, -1, -1)
    values = torch.from_numpy(features.scaled(asked.values[:, None])).expand(rows, -1, -1)
    present = torch.ones(keys.shape[:2], dtype=torch.bool)
    present[torch.arange(1, rows), torch.from_numpy(asked.events)] = False
    bank, policy, start = _hourly_bank(rows, d_k), NoveltyOffers(novelty_width), 0
    gates = torch.full(keys.shape[:2], alpha, dtype=torch.float64)
    recalled, ghost = _blank(asked)
    for moment in asked.moments:
        part = slice(start, moment + 1)
        some = (keys[:, part], values[:, part], gates[:, part], torch.ones_like(gates[:, part]))
        bank.run(*some, policy, present=present[:, part])
        start = moment + 1
        _take(asked, moment, bank.read(keys[:, asked.events])[:, :, 0].numpy() * features.largest, recalled, ghost)
    return Reads(recalled, ghost, None, nc01_floats(d_k))


def _hourly_bank(rows: int, d_k: int) -> NC01Bank:
    return NC01Bank(rows, d_k, 1, ICU["slots"], ICU["cadence"], ICU["horizon"])


def _take(asked: Asked, moment: int, read: Floats, recalled: Floats, ghost: Floats) -> None:
    """Put reads (1 + E lanes, E queries) where they belong: lane 0 holds every hour, lane 1 + e all but event e."""
    events, delays = asked.read_at(moment)
    recalled[events, delays], ghost[events, delays] = read[0, events], read[1 + events, events]


def _keys(asked: Asked, features: VitalFeatures) -> Floats:
    return features.keys(asked.z[:, :5], asked.z[:, 5] * 24.0)


def _lanes(asked: Asked, features: VitalFeatures) -> Floats:
    lanes = np.repeat(_keys(asked, features)[None], len(asked.events) + 1, axis=0)
    lanes[np.arange(1, len(lanes)), asked.events] = 0.0
    return lanes


# ---- caches and the support-vector memory ----


def cache_reads(asked: Asked, policy: CachePolicy, capacity: int, sigma: float) -> Reads:
    """A cache of `capacity` hours, read at the nearest held key; the least worth is left at every hour.

    density and novelty rank an hour by its summed kernel to all hours so far, most or least; recency by its hour;
    random by `luck`. No decision uses a later hour or the held-out vital. Ties: the later hour is left.
    """
    recalled, ghost = _blank(asked)
    kept, sizes = np.zeros(asked.at.shape, dtype=np.bool_), []
    apart = cdist(asked.z[asked.events], asked.z, "sqeuclidean")
    for moment, held in cache_streams(asked, policy, capacity, sigma).items():
        events, delays = asked.read_at(moment)
        for event, delay in zip(events, delays, strict=True):
            kept[event, delay] = held[0, asked.events[event]]
            for lane, out in ((0, recalled), (1 + event, ghost)):
                out[event, delay] = _nearest(apart[event], held[lane], asked.values)
            sizes.append(int(held[0].sum()))
    return Reads(recalled, ghost, kept, TOKEN_FLOATS * float(np.mean(sizes or [0])))


def cache_streams(asked: Asked, policy: CachePolicy, capacity: int, sigma: float) -> dict[int, NDArray[np.bool_]]:
    """Which hours each lane holds after each moment, (1 + E, n) bool: lane 0 saw every hour, lane 1 + e all but one."""
    n, lanes = len(asked.z), len(asked.events) + 1
    summed = policy in ("density", "novelty")
    kernel = np.exp(-cdist(asked.z, asked.z, "sqeuclidean") / sigma**2) if summed else np.zeros((0, n))
    total, held, found = np.zeros(n), np.zeros((lanes, n), dtype=np.bool_), {}
    moments = set(asked.moments)
    worth = {"recency": np.arange(n, dtype=np.float64), "random": asked.luck}.get(policy)
    for hour in range(max(moments, default=-1) + 1):
        held[:, hour] = True
        held[1:, hour] &= asked.events != hour
        if summed:
            total[: hour + 1] += kernel[hour, : hour + 1]
            total[hour] = kernel[hour, : hour + 1].sum()
            worth = _sums(total, kernel, asked.events, hour) * (1.0 if policy == "density" else -1.0)
        if worth is not None and hour >= capacity:
            _evict(held[:, : hour + 1], worth[..., : hour + 1], capacity)
        if hour in moments:
            found[hour] = held.copy()
    return found


def _sums(total: Floats, kernel: Floats, events: Places, hour: int) -> Floats:
    """Summed kernel of every hour so far, (1 + E, hour + 1), each lane without its own hole."""
    seen = total[: hour + 1]
    holes = np.where((events <= hour)[:, None], kernel[events, : hour + 1], 0.0)
    return np.asarray(np.round(np.concatenate([seen[None], seen - holes]), SUM_DECIMALS))


def _evict(held: NDArray[np.bool_], worth: Floats, capacity: int) -> None:
    """Leave, in place, the least worth hour of every lane that holds one too many."""
    full = held.sum(axis=1) > capacity
    ranked = np.where(held, worth, np.inf)[:, ::-1]
    least = held.shape[1] - 1 - ranked.argmin(axis=1)
    held[np.flatnonzero(full), least[full]] = False


def _nearest(apart: Floats, held: NDArray[np.bool_], values: Floats) -> float:
    places = np.flatnonzero(held)
    return float(values[places[apart[places].argmin()]]) if len(places) else float("nan")


def svdd_reads(asked: Asked, cap: float, sigma: float) -> Mapping[str, Reads]:
    """The support-vector memory by its kernel readout ("svdd") and as a cache of its active hours ("svdd-support").

    The ghost is the memory after deleting the hour; while it collects it has no readout, and its cache holds all hours.
    """
    memory, start = SVDDMemory(cap, sigma), 0
    out = {name: _blank(asked) for name in ("svdd", "svdd-support")}
    kept, sizes = np.zeros(asked.at.shape, dtype=np.bool_), []
    apart = cdist(asked.z[asked.events], asked.z, "sqeuclidean")
    for moment in asked.moments:
        places = np.arange(start, moment + 1)
        memory.admit_many(asked.z[places], asked.values[places, None], places)
        start = moment + 1
        state, held = memory.to_state(), _active(memory, len(asked.z))
        for event, delay in zip(*asked.read_at(moment), strict=True):
            place = int(asked.events[event])
            without = SVDDMemory.from_state(state, verify=False)
            without.delete([place], below_capacity="collect")
            for side, one in enumerate((memory, without)):
                out["svdd"][side][event, delay] = _read(one, asked.z[place])
                own = held if side == 0 else _active(one, len(asked.z))
                out["svdd-support"][side][event, delay] = _nearest(apart[event], own, asked.values)
            kept[event, delay] = held[place]
            sizes.append(int(held.sum()))
    tokens = float(np.mean(sizes or [0]))
    return {
        "svdd": Reads(*out["svdd"], kept, (TOKEN_FLOATS + 1) * tokens),  # a coefficient for every active hour
        "svdd-support": Reads(*out["svdd-support"], kept, TOKEN_FLOATS * tokens),
    }


def _active(memory: SVDDMemory, hours: int) -> NDArray[np.bool_]:
    held = np.zeros(hours, dtype=np.bool_)
    held[np.asarray([*memory.margin, *memory.bound] if memory.ready else memory.ids, dtype=np.int64)] = True
    return held


def _read(memory: SVDDMemory, query: Floats) -> float:
    return float(memory.read(query[None])[0, 0]) if memory.ready else float("nan")


# ---- sizes ----


def vla_floats(d_k: int) -> int:
    """Numbers in the state of VLA with one value: S, half of the symmetric A, z [MATH E5]."""
    return d_k + d_k * (d_k + 1) // 2 + d_k


def linear_floats(d_k: int) -> int:
    """Numbers in the state of linear attention with one value: S and z."""
    return 2 * d_k


def delta_floats(d_k: int) -> int:
    """Numbers in the state of the delta rule with one value: S."""
    return d_k


def nc01_floats(d_k: int) -> int:
    """Numbers in the state of a protected-read bank with one value: B and the register [MATH E5]."""
    return d_k + ICU["slots"] * (2 + 2 * d_k)


def width_within(floats: int, size: Callable[[int], int]) -> int:
    """The largest key width whose state has at most so many numbers, at least 2."""
    width = 2
    while size(width + 1) <= floats:
        width += 1
    return width
