"""The support-vector data description solved in extended precision, from the optimisation problem alone.

    minimise  a' K a - diag(K)' a    subject to  sum a = 1,  0 <= a_i <= C,    K_ij = exp(-||x_i - x_j||^2 / sigma^2)

This is the truth that a maintained memory is measured against, so it shares nothing with one: no room is imported,
every solve starts from the keys, and the answer is accepted only with a bound proved in interval arithmetic (Arb). A
float64 active set supplies the starting point and nothing else; a wrong start costs time, never correctness.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from flint import arb, arb_mat, ctx
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Counts = NDArray[np.int64]
Exact = Any  # numpy object array of arb, or one arb: python-flint carries no type information

PRECISIONS = (384, 768, 1536)  # bits tried in turn
GAP_LIMIT = 1e-50  # duality gap that must be proved before a solution is returned
QUERY_BITS = 192
WARM_STEPS = 40  # projected-gradient steps before the float64 walk
INTEGER_CAP = Fraction(1, 10**12)  # 1/C this close to an integer is that integer


class OracleError(ValueError):
    """The problem is infeasible, or no precision tried could prove its solution."""


@dataclass(frozen=True)
class OracleSolution:
    """A proved solution; arrays follow the keys given to `solve`, copies of a key share its mass equally.

    `rho` is the upper end of `[rho_lo, rho_hi]`, which is one point whenever a key lies strictly inside the box;
    `rho_lo` is -inf when every key is at the cap. `gap` and `residual` are proved upper bounds of the duality gap and
    of the largest violation of the optimality conditions; `score_bound` = 2 sqrt(gap / 2) bounds the error of f at any
    query. It says nothing about the one rounding to float64 that every returned array has undergone.
    """

    keys: Floats
    sigma: float
    alpha: Floats
    alpha_exact: tuple[Exact, ...]
    rho: float
    rho_lo: float
    rho_hi: float
    partition: tuple[str, ...]
    gap: float
    residual: float
    score_bound: float
    precision: int
    rho_exact: Exact

    def f(self, queries: ArrayLike) -> Floats:
        """Return 2 sum_i a_i kappa(x, x_i) at queries (q, d), rounded once to float64: (q,)."""
        with _precision(QUERY_BITS):
            return _rounded([2 + 2 * value for value in self._shifted(queries)])

    def score(self, queries: ArrayLike) -> Floats:
        """Return 2 sum_i a_i kappa(x, x_i) - rho at queries (q, d), rounded once to float64: (q,) [SVA 3.1]."""
        with _precision(QUERY_BITS):
            return _rounded(self.exact_score(queries))

    def exact_score(self, queries: ArrayLike) -> list[Exact]:
        """Return the score at queries (q, d) before any rounding, for `deviation`: q numbers of 192 bits."""
        with _precision(QUERY_BITS):
            return [2 + 2 * value - self.rho_exact for value in self._shifted(queries)]

    def read(self, queries: ArrayLike, values: ArrayLike) -> Floats:
        """Return sum a_i kappa v_i / sum a_i kappa at queries (q, d) for values (n, v): (q, v)."""
        table = np.asarray(values, dtype=np.float64)
        active = np.flatnonzero(self.alpha > 0)
        with _precision(QUERY_BITS):
            weights = _cross(np.asarray(queries, dtype=np.float64), self.keys[active], self.sigma)
            terms = [[(1 + e) * self.alpha_exact[i] for e, i in zip(row, active, strict=True)] for row in weights]
            columns = [[arb(float(v)) for v in table[active, j]] for j in range(table.shape[1])]
            return np.array([[_dot(row, c) / sum(row, arb(0)) for c in columns] for row in terms], dtype=np.float64)

    def _shifted(self, queries: ArrayLike) -> list[Exact]:
        """Sum a_i (kappa - 1): the part of the score that a wide kernel does not drown in the constant 1."""
        active = np.flatnonzero(self.alpha > 0)
        weights = [self.alpha_exact[i] for i in active]
        cross = _cross(np.asarray(queries, dtype=np.float64), self.keys[active], self.sigma)
        return [_dot(row, weights) for row in cross]


def solve(keys: ArrayLike, C: float, sigma: float) -> OracleSolution:
    """Solve the problem for keys (n, d) and return it with its proof.

    C is read as exactly 1/m when 1/C is within 1e-12 (relative) of an integer m, else as the float it is. Raises
    OracleError when n*C < 1, when an input is not finite or not positive, or when the gap cannot be proved below 1e-50
    [SVA 3.1, TD].
    """
    points, inverse, copies = _locations(keys)
    unit, total = _cap(C, sigma, int(copies.sum()))
    caps = [Fraction(int(m)) * unit for m in copies]
    start = _Float64(points, sigma).start(np.array([float(c / total) for c in caps]))
    for bits in PRECISIONS:
        with _precision(bits):
            found = _attempt(points, sigma, caps, total, start, bits)
            if found is not None:
                return _solution(np.asarray(keys, dtype=np.float64), sigma, found, inverse, copies, bits)
    raise OracleError(f"no proof of a gap below {GAP_LIMIT:g} at {PRECISIONS[-1]} bits: keys too alike for this kernel")


def deviation(exact: list[Exact], given: ArrayLike) -> Floats:
    """Return |given - exact| for float64 numbers (q,): not the difference of two rounded numbers."""
    values = np.asarray(given, dtype=np.float64)
    with _precision(QUERY_BITS):
        return _rounded([abs(arb(float(v)) - e) for v, e in zip(values, exact, strict=True)])


def spread(exact: list[Exact]) -> float:
    """Return max - min of exact scores, right to the last place however wide the kernel is."""
    with _precision(QUERY_BITS):
        return float((max(exact) - min(exact)).mid())


def _locations(keys: ArrayLike) -> tuple[Floats, Counts, Counts]:
    """Return the distinct keys, the location of each key, and the number of copies at each location."""
    table = np.asarray(keys, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] == 0 or not np.isfinite(table).all():
        raise OracleError("keys must be a non-empty (n, d) table of finite numbers")
    points, inverse, copies = np.unique(table + 0.0, axis=0, return_inverse=True, return_counts=True)
    return points, inverse.reshape(-1), copies


def _cap(C: float, sigma: float, n: int) -> tuple[Fraction, Fraction]:
    """Return the cap of one key and the mass to place, in units where both are exact."""
    if not (np.isfinite(C) and C > 0 and np.isfinite(sigma) and sigma > 0):
        raise OracleError("C and sigma must be positive and finite")
    exact = Fraction(float(C))
    whole = round(1 / exact)
    close = whole >= 1 and abs(1 / exact - whole) <= INTEGER_CAP * whole
    unit, total = (Fraction(1), Fraction(whole)) if close else (exact, Fraction(1))
    if n * unit < total:
        raise OracleError(f"no solution: n*C = {n * float(C):.6g} < 1 for n = {n} keys")
    return unit, total


@contextmanager
def _precision(bits: int) -> Iterator[None]:
    before = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = before


# ---- the active-set walk, in either arithmetic ----


class _Arithmetic(Protocol):
    """What the walk needs to know of the numbers it moves."""

    margin: Exact  # a coefficient this close to a bound is at the bound
    slack: Exact  # a gradient within this of the multiplier satisfies its condition

    def point(self, values: Exact) -> Exact: ...
    def minimiser(self, alpha: Exact, free: Mask) -> Exact: ...
    def gradient(self, alpha: Exact) -> Exact: ...


def _walk(arithmetic: _Arithmetic, alpha: Exact, caps: Exact) -> tuple[Exact, Mask, bool]:
    """Primal active set: minimise on the free keys, stop at the first bound hit, release the worst violator.

    Free keys are strictly inside the box and a released key always moves inwards, so every step is positive, the
    objective falls, and no partition returns. Returns the coefficients, the free keys and whether the end was reached.
    """
    free = (alpha > 0) & (alpha < caps)
    for _ in range(6 * len(alpha) + 40):
        if free.any():
            alpha, blocked = _step(arithmetic, alpha, caps, free)
            if blocked.any():
                free = free & ~blocked
                continue
        entering = _violators(arithmetic, alpha, caps, free)
        if not entering:
            return alpha, free, True
        free[entering] = True
    return alpha, free, False


def _step(arithmetic: _Arithmetic, alpha: Exact, caps: Exact, free: Mask) -> tuple[Exact, Mask]:
    """Move the free keys towards their minimiser as far as the box allows; return the keys that reached a bound."""
    index = np.flatnonzero(free)
    here, cap = alpha[index], caps[index]
    move = arithmetic.minimiser(alpha, free)[index] - here
    room = [(c - a if m > 0 else a) for a, c, m in zip(here, cap, move, strict=True)]
    share = [r / abs(m) if r < abs(m) else None for r, m in zip(room, move, strict=True)]
    first = min((s for s in share if s is not None), default=None)
    there = arithmetic.point(here + move * first if first is not None else here + move)
    low = there < arithmetic.margin
    high = ~low & (there > cap - arithmetic.margin)
    if first is not None:
        leaver = share.index(first)
        low[leaver], high[leaver] = bool(move[leaver] < 0), bool(move[leaver] > 0)
    moved = alpha.copy()
    moved[index] = np.where(low, 0 * there, np.where(high, cap, there))
    blocked = np.zeros_like(free)
    blocked[index] = low | high
    return moved, blocked


def _violators(arithmetic: _Arithmetic, alpha: Exact, caps: Exact, free: Mask) -> list[int]:
    """Return the keys to release: the worst violator, or the worst pair while no key is free to trade mass with."""
    gradient = arithmetic.gradient(alpha)
    growing = np.flatnonzero(~free & (alpha < caps))
    shrinking = np.flatnonzero(~free & (alpha > 0))
    lowest = min(growing, key=lambda i: gradient[i], default=None)
    highest = max(shrinking, key=lambda i: gradient[i], default=None)
    if not free.any():
        if lowest is None or highest is None or gradient[highest] - gradient[lowest] <= arithmetic.slack:
            return []
        return [int(lowest), int(highest)]
    level = gradient[np.flatnonzero(free)[0]]
    gains = [(level - gradient[lowest], lowest)] if lowest is not None else []
    gains += [(gradient[highest] - level, highest)] if highest is not None else []
    worst = max(gains, key=lambda pair: pair[0], default=None)
    return [] if worst is None or worst[0] <= arithmetic.slack else [int(worst[1])]


# ---- float64: where to start ----


class _Float64:
    """Projected gradient, then the walk, on expm1 scaled to unit size; mass 1."""

    margin = 1e-13
    slack = 1e-12

    def __init__(self, points: Floats, sigma: float) -> None:
        shifted = np.expm1(-_squares(points / sigma))
        self.kernel = shifted / max(float(np.abs(shifted).max()), 1e-300)

    def start(self, caps: Floats) -> Floats:
        """Return feasible coefficients near the solution; how near is not relied upon."""
        alpha = _projected(np.full(len(caps), 1.0 / len(caps)), caps)
        momentum, ahead = 1.0, alpha
        step = 1.0 / max(float(np.abs(self.kernel).sum(axis=1).max()) * 2.0, 1e-300)
        for _ in range(WARM_STEPS):
            new = _projected(ahead - step * self.gradient(ahead), caps)
            grown = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
            ahead = new + (momentum - 1.0) / grown * (new - alpha)
            alpha, momentum = new, grown
        try:
            walked = np.clip(_walk(self, alpha, caps)[0], 0.0, caps)
        except np.linalg.LinAlgError:
            return alpha
        return walked if np.isfinite(walked).all() else alpha

    def point(self, values: Floats) -> Floats:
        return values

    def minimiser(self, alpha: Floats, free: Mask) -> Floats:
        fixed = ~free
        border = np.ones(int(free.sum()))
        system = np.block([[np.zeros((1, 1)), border[None, :]], [border[:, None], 2 * self.kernel[np.ix_(free, free)]]])
        right = np.concatenate([[1 - alpha[fixed].sum()], -2 * self.kernel[np.ix_(free, fixed)] @ alpha[fixed]])
        target = alpha.copy()
        target[free] = np.linalg.solve(system, right)[1:]
        return target

    def gradient(self, alpha: Floats) -> Floats:
        return np.asarray(2 * self.kernel @ alpha)


def _squares(points: Floats) -> Floats:
    """Squared distances row by row: a Gram matrix would lose near duplicates, all pairs at once would cost memory."""
    return np.stack([((points - point) ** 2).sum(axis=1) for point in points])


def _projected(point: Floats, caps: Floats) -> Floats:
    """Project on {sum = 1, 0 <= a <= caps} by bisection on the shift."""
    low, high = float((point - caps).min()) - 1.0, float(point.max())
    for _ in range(60):
        middle = (low + high) / 2.0
        if np.clip(point - middle, 0.0, caps).sum() > 1.0:
            low = middle
        else:
            high = middle
    return np.asarray(np.clip(point - high, 0.0, caps))


# ---- extended precision: the solution and its proof ----


class _Extended:
    """Arb midpoints during the walk, Arb intervals in the proof; the mass and the caps are exact."""

    def __init__(self, points: Floats, sigma: float, total: Fraction, bits: int) -> None:
        self.rows = _symmetric(points, sigma)
        self.total = _arb(total)
        self.scale = max((-value for row in self.rows for value in row), default=arb(0)) + arb(2) ** (-4 * bits)
        self.margin = self.total * arb(2) ** (-bits // 2)
        self.slack = self.scale * arb(2) ** (-bits // 2)

    def point(self, values: Exact) -> Exact:
        """Drop the radii: the walk moves points, and only the proof needs to know how far they may be off."""
        return np.array([value.mid() for value in values], dtype=object)

    def minimiser(self, alpha: Exact, free: Mask) -> Exact:
        inside, fixed = np.flatnonzero(free), np.flatnonzero(~free & (alpha > 0))
        size = len(inside) + 1
        entries = [arb(0)] + [arb(1)] * (size - 1)
        right = [self.total - sum(alpha[fixed], arb(0))]
        for i in inside:
            row = self.rows[i]
            entries += [arb(1), *(2 * row[j] / self.scale for j in inside)]
            right.append(-2 * _dot([row[j] for j in fixed], alpha[fixed]) / self.scale)
        answer = arb_mat(size, size, entries).solve(arb_mat(size, 1, right), algorithm="approx")
        target = alpha.copy()
        target[inside] = self.point(answer[k + 1, 0] for k in range(len(inside)))
        return target

    def gradient(self, alpha: Exact) -> Exact:
        return self.point(self.interval_gradient(alpha))

    def interval_gradient(self, alpha: Exact) -> Exact:
        """2 (K - 11') a for a of mass 1, as intervals: the gradient up to a constant that no condition sees."""
        active = np.flatnonzero(alpha > 0)
        weights = alpha[active]
        values = [2 * _dot([row[j] for j in active], weights) / self.total for row in self.rows]
        return np.array(values, dtype=object)


@dataclass(frozen=True)
class _Proved:
    """Location coefficients of mass 1 with the bounds proved for them."""

    alpha: Exact
    caps: Exact
    rho_lo: Exact
    rho_hi: Exact
    gap: float
    residual: float


def _attempt(
    points: Floats, sigma: float, fractions: list[Fraction], total: Fraction, start: Floats, bits: int
) -> _Proved | None:
    """Walk and prove at one precision; None when the end or the proof was not reached."""
    arithmetic = _Extended(points, sigma, total, bits)
    caps = np.array([_arb(c) for c in fractions], dtype=object)
    begin = _feasible(start, caps, arithmetic.total)
    alpha, free, ended = _walk(arithmetic, begin, caps)
    exact = _exact_mass(alpha, free, caps, arithmetic.total, bits) if ended else None
    return None if exact is None else _prove(arithmetic, exact, caps)


def _feasible(start: Floats, caps: Exact, total: Exact) -> Exact:
    """Read float64 coefficients of mass 1 into the exact box and mend their mass in the order of the keys."""
    raw = [arb(float(a)) * total for a in start]
    near = total * arb(2) ** -40
    snapped = [arb(0) if a < near else (c if a > c - near else a) for a, c in zip(raw, caps, strict=True)]
    alpha = np.array(snapped, dtype=object)
    missing = total - sum(alpha, arb(0))
    for i in sorted(range(len(alpha)), key=lambda i: not 0 < alpha[i] < caps[i]):
        grown = min(max(alpha[i] + missing, arb(0)), caps[i]).mid()
        missing = (missing - (grown - alpha[i])).mid()
        alpha[i] = grown
    return alpha


def _exact_mass(alpha: Exact, free: Mask, caps: Exact, total: Exact, bits: int) -> Exact | None:
    """Let one free key absorb the last rounding so that the mass is exact; None if that is impossible."""
    inside = np.flatnonzero(free)
    with _precision(8 * bits):
        mended = alpha.copy()
        if len(inside):
            widest = max(inside, key=lambda i: min(alpha[i], caps[i] - alpha[i]))
            mended[widest] = total - sum((a for i, a in enumerate(alpha) if i != widest), arb(0))
        defect = total - sum(mended, arb(0))
    inside_box = all(0 <= a <= c for a, c in zip(mended, caps, strict=True))
    return mended if defect.is_zero() and inside_box else None


def _prove(arithmetic: _Extended, alpha: Exact, caps: Exact) -> _Proved | None:
    """Bound the duality gap: for any level r it is at most sum a_i (g_i)+ + (c_i - a_i) (-g_i)+, g = gradient + r."""
    multiplier = -1 - arithmetic.interval_gradient(alpha)
    may_grow = np.array([bool(a < c) for a, c in zip(alpha, caps, strict=True)])
    may_shrink = np.array([bool(a > 0) for a in alpha])
    rho_hi = min(h.mid() for h in multiplier[may_shrink])
    rho_lo = max((h.mid() for h in multiplier[may_grow]), default=arb.neg_inf())
    condition = rho_hi - multiplier
    excess = np.array([max(g, arb(0)) for g in condition], dtype=object)
    lack = np.array([max(-g, arb(0)) for g in condition], dtype=object)
    gap = (sum(excess * alpha + lack * (caps - alpha), arb(0)) / arithmetic.total).upper()
    worst = max(g.upper() for g in [*excess[may_shrink], *lack[may_grow]])
    if not gap <= arb(GAP_LIMIT):
        return None
    return _Proved(alpha / arithmetic.total, caps / arithmetic.total, rho_lo, rho_hi, _up(gap), _up(worst))


def _solution(
    keys: Floats, sigma: float, proved: _Proved, inverse: Counts, copies: Counts, bits: int
) -> OracleSolution:
    """Hand the mass of each location to its copies in equal parts."""
    kind = [_kind(a, c) for a, c in zip(proved.alpha, proved.caps, strict=True)]
    share = [a / int(m) for a, m in zip(proved.alpha, copies, strict=True)]
    exact = tuple(share[u] for u in inverse)
    return OracleSolution(
        keys=keys,
        sigma=float(sigma),
        alpha=_rounded(list(exact)),
        alpha_exact=exact,
        rho=float(proved.rho_hi),
        rho_lo=float(proved.rho_lo),
        rho_hi=float(proved.rho_hi),
        partition=tuple(kind[u] for u in inverse),
        gap=proved.gap,
        residual=proved.residual,
        score_bound=2.0 * float(np.sqrt(proved.gap / 2.0)),
        precision=bits,
        rho_exact=proved.rho_hi,
    )


def _kind(alpha: Exact, cap: Exact) -> str:
    if alpha > 0:
        return "margin" if alpha < cap else "bound"
    return "reserve"


def _cross(left: Floats, right: Floats, sigma: float) -> list[list[Exact]]:
    """kappa - 1 between rows of left and right, at the working precision."""
    a, b = _matrix(left), _matrix(right)
    inner = (a * b.transpose()).tolist()
    rate, norms = 1 / arb(float(sigma)) ** 2, _square_norms(b)
    return [
        [((2 * p - s - t) * rate).expm1() for p, t in zip(row, norms, strict=True)]
        for row, s in zip(inner, _square_norms(a), strict=True)
    ]


def _symmetric(points: Floats, sigma: float) -> list[list[Exact]]:
    """kappa - 1 between all pairs of points, each exponential taken once."""
    a = _matrix(points)
    inner, norms, rate = (a * a.transpose()).tolist(), _square_norms(a), 1 / arb(float(sigma)) ** 2
    rows = [[arb(0)] * len(points) for _ in points]
    for i, s in enumerate(norms):
        for j in range(i):
            rows[i][j] = rows[j][i] = ((2 * inner[i][j] - s - norms[j]) * rate).expm1()
    return rows


def _square_norms(matrix: arb_mat) -> list[Exact]:
    return [_dot(row, row) for row in matrix.tolist()]


def _matrix(table: Floats) -> arb_mat:
    return arb_mat(table.shape[0], table.shape[1], [arb(float(v)) for v in table.ravel()])


def _dot(left: Any, right: Any) -> Exact:
    return sum((x * y for x, y in zip(left, right, strict=True)), arb(0))


def _arb(value: Fraction) -> Exact:
    return arb(value.numerator) / arb(value.denominator)


def _rounded(values: list[Exact]) -> Floats:
    return np.array([float(value.mid()) for value in values], dtype=np.float64)


def _up(value: Exact) -> float:
    """The least float64 that is certainly not below an exact value."""
    return float(np.nextafter(float(value), np.inf)) if value > 0 else 0.0
