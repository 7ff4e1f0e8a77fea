"""Certificates of an SVDD state, computed from its keys and coefficients alone.

Notation, per location: g_i = r + 2 sum_j k_ij a_j with the shifted kernel k and r = rho + 1, taken in extended
precision. For a feasible a and an exact solution a* put d = a - a* and x = ||sum d_i phi_i||. Optimality of a* gives
2 x^2 <= sum g_i d_i. The score 2 sum a kappa - rho of the state is then right to 4 x + kkt: its sum to 2 x
everywhere, its rho to 2 x + kkt.

Bound A: sum g_i d_i <= gap, so x <= sqrt(gap / 2).

Bound B: let N hold every location with |g| <= gamma, every one strictly inside its box and every one that violates
its condition; all others (cold tokens included) satisfy their condition with slack gamma, so they only help. On N use
the spectrum of the kernel on sum-zero vectors: along its strong directions |sum g_i d_i| <= b x with b^2 = sum u_k^2
/ lambda_k, along the rest it is at most w D with w the norm of g there and D a bound on ||d|| from the boxes. So 2
x^2 <= b x + w D, minimised over where the spectrum is split.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memory.contract import Array, Certificate
from memory.kernel import shifted_kernel
from memory.svdd import _core

_EXTENDED_ROUNDING = 2.0 ** (1 - _core.lib.LDBL_MANT_DIG)  # of the residuals, taken in long double
_ROUNDING = 2.0**-52
_SLACKS = tuple(10.0**power for power in range(-12, -4))
LARGEST_SLACK = _SLACKS[-1]  # no certificate asks for cold tokens with more slack than this
MOST_NEAR = 700  # locations in N at most: its spectrum is dense

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LocationState:
    """A solved state by location.

    Attributes:
        keys (n, d), mass (n,), cap (n,): distinct hot keys, the mass and the cap of each; then the cold tokens that
            expire within LARGEST_SLACK, one row each, without mass.
        sigma: kernel width.
        r: rho + 1, kept shifted so that wide kernels lose no digits.
        distant_cold: whether there are further cold tokens, whose expiries vouch for them.
    """

    keys: Array
    mass: Array
    cap: Array
    sigma: float
    r: float
    distant_cold: bool = False


def with_cold(hot: LocationState, cold: Array, cap: float, distant: bool) -> LocationState:
    """A hot state joined by cold keys (m, d), each a location without mass under the cap of one token."""
    return LocationState(
        keys=np.concatenate([hot.keys, cold]),
        mass=np.concatenate([hot.mass, np.zeros(len(cold))]),
        cap=np.concatenate([hot.cap, np.full(len(cold), cap)]),
        sigma=hot.sigma,
        r=hot.r,
        distant_cold=distant,
    )


def exact_gradient(state: LocationState, queries: Array) -> Array:
    """g at queries (q, d) in extended precision, the mass restored to exactly 1: (q,)."""
    ffi, lib = _core.ffi, _core.lib
    keys, mass, points = (np.ascontiguousarray(v, dtype=np.float64) for v in (state.keys, state.mass, queries))
    out = np.empty(len(points))
    pointers = [ffi.from_buffer("double[]", v) for v in (keys, mass, points, out)]
    lib.svdd_exact_gradient(
        len(keys), keys.shape[1], pointers[0], pointers[1], state.sigma, len(points), pointers[2], state.r, pointers[3]
    )
    return out


def certify(state: LocationState) -> Certificate:
    """The certificate of a solved state, recomputed from keys and coefficients [MATH 1.2].

    Coefficients outside their box have no bound of their own: feasible ones near them are certified and the way there
    is added.
    """
    given, state = state, _feasible(state)
    moved = float(np.abs(given.mass - state.mass).sum())
    g = exact_gradient(state, state.keys)
    scale = float(max(-shifted_kernel(state.keys, state.keys[:1], state.sigma).min(), np.ptp(g), 0.0))
    noise = (state.keys.shape[1] + 8) * _EXTENDED_ROUNDING * scale
    wrong = _wrong_part(state, g)
    kkt = max(float(np.abs(wrong).max()), _outside(given)) + noise
    gap = _duality_gap(state, g)
    distance, kind = math.sqrt((gap + 2.0 * noise) / 2.0), "A"
    linear = _linear_distance(state, g, wrong, noise, scale)
    if linear is not None and linear < distance:
        distance, kind = linear, "B"
    rounding = _evaluation_rounding(state)
    mass_error = abs(float(math.fsum(given.mass)) - 1.0)
    return Certificate(
        kkt_residual=kkt,
        duality_gap=gap,
        score_bound=4.0 * distance + kkt + 2.0 * (mass_error + moved) + rounding,
        bound_kind="B" if kind == "B" else "A",
        mass_error=mass_error,
        rho_interval=_rho_interval(state, g),
        score_range=_score_range(g, scale),
        rounding=rounding,
    )


def _outside(state: LocationState) -> float:
    """How far the worst coefficient is outside its box."""
    return float(np.maximum(np.maximum(-state.mass, state.mass - state.cap), 0.0).max())


def _feasible(state: LocationState) -> LocationState:
    """The state itself if every coefficient is in its box; else clipped, with the mass made 1 in order of room."""
    if _outside(state) == 0.0:
        return state
    mass = np.clip(state.mass, 0.0, state.cap)
    lacking = 1.0 - float(math.fsum(mass))
    room = state.cap - mass if lacking > 0.0 else mass
    order = np.argsort(-room, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(room[order])[:-1]])
    mass[order] += math.copysign(1.0, lacking) * np.clip(abs(lacking) - before, 0.0, room[order])
    return replace(state, mass=mass)


def _evaluation_rounding(state: LocationState) -> float:
    """What evaluating the score in float64 can add anywhere: kernel entries, at most 1, their sum, last places of 3."""
    terms = int(np.count_nonzero(state.mass)) + 2 * state.keys.shape[1] + 8
    return float(2.0**-53 * (terms + 12.0))


def _score_range(g: Array, scale: float) -> float:
    """Spread of the score over the keys; the kernel's own spread where all keys score the same to rounding."""
    spread = float(np.ptp(g))
    return spread if spread > 2.0**-40 * scale else scale


def _wrong_part(state: LocationState, g: Array) -> Array:
    """The part of g that violates its condition."""
    inside = (state.mass > 0.0) & (state.mass < state.cap)
    return np.where(inside, g, np.where(state.mass <= 0.0, np.minimum(g, 0.0), np.maximum(g, 0.0)))


def _duality_gap(state: LocationState, g: Array) -> float:
    """q'(a - z): z fills the smallest gradients with their caps until the mass is 1."""
    order = np.argsort(g, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(state.cap[order])[:-1]])
    best = np.empty_like(g)
    best[order] = np.clip(1.0 - before, 0.0, state.cap[order])
    return max(float(math.fsum((state.mass - best) * g)), 0.0)


def _rho_interval(state: LocationState, g: Array) -> tuple[float, float]:
    h = state.r - g - 1.0
    lower = h[state.mass < state.cap]
    upper = h[state.mass > 0.0]
    return float(lower.max()) if len(lower) else -math.inf, float(upper.min()) if len(upper) else math.inf


def _linear_distance(state: LocationState, g: Array, wrong: Array, noise: float, scale: float) -> float | None:
    """Bound B's x, at the first slack for which it applies; None where it never does."""
    inside = (state.mass > 0.0) & (state.mass < state.cap)
    if scale == 0.0:
        return 0.0
    for slack in _SLACKS:
        gamma = slack * min(scale, 1.0)
        near = inside | (np.abs(g) <= gamma) | (wrong != 0.0)
        if not near.any() or near.sum() > MOST_NEAR:
            return None
        distance = _distance_on(state, near, wrong[near], gamma, noise)
        if distance is not None:
            return distance
    return None


def _distance_on(state: LocationState, near: Mask, violation: Array, gamma: float, noise: float) -> float | None:
    keys = state.keys[near]
    room = np.minimum(np.maximum(state.mass, state.cap - state.mass)[near], 1.0)
    reach = _reach(state, keys[:1], near)
    largest = float(np.abs(violation).max()) + noise
    if len(keys) == 1:
        return 0.0 if gamma >= largest else None
    values, vectors, error = _sum_zero_spectrum(keys, state.sigma)
    parts = np.abs(vectors.T @ violation) + noise * math.sqrt(len(keys))
    room_norm = min(float(np.linalg.norm(room)), 2.0)
    best: float | None = None
    for strong, weak in _splits(values - error, parts):
        # The weak directions also enter the strong ones' energy through the error of the computed spectrum.
        drag = weak + strong * math.sqrt(2.0 * error) if weak else 0.0
        if gamma < strong * reach + drag + largest:
            continue
        distance = (strong + math.sqrt(strong**2 + 8.0 * drag * room_norm)) / 4.0
        best = distance if best is None else min(best, distance)
    return best


def _reach(state: LocationState, reference: Array, near: Mask) -> float:
    """Largest feature distance from the reference to a location outside N; cold keys may lie anywhere."""
    outside = state.keys[~near]
    farthest = -float(shifted_kernel(outside, reference, state.sigma).min()) if len(outside) else 0.0
    return math.sqrt(2.0 * (1.0 if state.distant_cold else farthest))


def _sum_zero_spectrum(keys: Array, sigma: float) -> tuple[Array, Array, float]:
    """Eigenvalues (ascending) and vectors of the kernel on sum-zero vectors, with a bound on the matrix error."""
    n = len(keys)
    centre = np.eye(n) - 1.0 / n
    basis = np.linalg.qr(centre[:, : n - 1])[0]
    projected = basis.T @ shifted_kernel(keys, keys, sigma) @ basis
    values, vectors = np.linalg.eigh((projected + projected.T) / 2.0)
    return values, basis @ vectors, (4.0 * n + 16.0) * _ROUNDING * float(max(values[-1], 0.0))


def _splits(values: Array, parts: Array) -> Iterator[tuple[float, float]]:
    """(b, w) for every split of the spectrum into weak (first) and strong directions."""
    for first in range(len(values) + 1):
        strong = values[first:]
        if len(strong) and strong[0] <= 0.0:
            continue
        yield float(np.sqrt(np.sum(parts[first:] ** 2 / strong))), float(np.linalg.norm(parts[:first]))
