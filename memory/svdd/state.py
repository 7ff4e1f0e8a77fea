"""An SVDD memory as plain arrays, numbers and strings, and back.

Fields: format, C, sigma, width (0 while nothing was given), solved (0 or 1), rho_shifted (rho + 1), operations; per hot
token in order of arrival ids, alpha, location; per location keys (n, d), mass; values (hot tokens, d_v) with NaN for a
missing value; cold {ids, expiry, keys (m, d) or (0, d) when a cold store holds them, values, drift, drift_low}.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from memory.contract import Array, Ids, MemoryRefused
from memory.svdd import _core
from memory.svdd.checks import carries
from memory.svdd.memory import ColdStore, SVDDMemory, copied

ffi, lib = _core.ffi, _core.lib
FORMAT = "svdd"
SCORE_TOLERANCE = 1e-8
MASS_TOLERANCE = 1e-9
_SCALARS = ("format", "C", "sigma", "width", "solved", "rho_shifted", "operations")
_FIELDS = {*_SCALARS, "ids", "alpha", "location", "keys", "mass", "values", "cold"}
_COLD_FIELDS = {"ids", "expiry", "keys", "values", "drift", "drift_low"}
_NO_ROWS = np.empty((0, 0))
_EMPTY: dict[str, Any] = {
    "width": 0,
    "solved": 0,
    "rho_shifted": 0.0,
    "operations": 0,
    "ids": np.empty(0, np.int64),
    "alpha": np.empty(0),
    "location": np.empty(0, np.int32),
    "keys": _NO_ROWS,
    "mass": np.empty(0),
    "values": _NO_ROWS,
    "cold": {
        "ids": np.empty(0, np.int64),
        "expiry": np.empty(0),
        "keys": _NO_ROWS,
        "values": _NO_ROWS,
        "drift": 0.0,
        "drift_low": 0.0,
    },
}


def to_state(memory: SVDDMemory) -> dict[str, Any]:
    """The complete state of a memory; nothing in it refers to the object."""
    core = memory._core
    state: dict[str, Any] = {"format": FORMAT, "C": memory.C, "sigma": memory.sigma}
    if core is None:
        return state | _EMPTY
    return state | {
        "width": int(core.d),
        "solved": int(core.solved),
        "rho_shifted": float(core.r),
        "operations": int(core.operations),
        "ids": memory.ids,
        "alpha": memory.alpha,
        "location": memory._location(),
        "keys": memory._location_keys(),
        "mass": memory._mass(),
        "values": _values_of(memory, memory.ids),
        "cold": _cold_state(memory),
    }


def _values_of(memory: SVDDMemory, ids: Ids) -> Array:
    matrix = memory._values.matrix(ids)
    return np.empty((len(ids), 0)) if matrix is None else matrix


def _cold_state(memory: SVDDMemory) -> dict[str, Any]:
    core, count = memory._core, int(memory._core.cold)
    ids = copied(core.cold_id, count, np.int64)
    order = np.argsort(ids, kind="stable")
    held = memory._cold is None
    keys = (
        copied(core.cold_key, count * core.d, np.float64).reshape(count, core.d)[order]
        if held
        else np.empty((0, core.d))
    )
    return {
        "ids": ids[order],
        "expiry": copied(core.cold_expiry, count, np.float64)[order],
        "keys": keys,
        "values": _values_of(memory, ids[order]) if held else np.empty((0, 0)),
        "drift": float(core.drift),
        "drift_low": float(core.drift_low),
    }


def from_state(state: dict[str, Any], verify: bool, cold: ColdStore | None) -> SVDDMemory:
    """See SVDDMemory.from_state."""
    try:
        _check_form(state, cold)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, MemoryRefused):
            raise
        raise MemoryRefused("a field of this SVDD state has another type: load a state that to_state wrote") from None
    memory = SVDDMemory(float(state["C"]), float(state["sigma"]), cold=cold)
    if int(state["width"]) == 0:
        return memory
    memory._open(int(state["width"]))
    _load_hot(memory, state)
    _load_cold(memory, state["cold"])
    memory._core.operations = int(state["operations"])
    if verify:
        _verify(memory, state)
    return memory


def _load_hot(memory: SVDDMemory, state: dict[str, Any]) -> None:
    keys, ids = _floats(state["keys"]), np.ascontiguousarray(state["ids"], dtype=np.int64)
    location = np.ascontiguousarray(state["location"], dtype=np.int32)
    mass = _masses(state, location)
    pointers = [ffi.from_buffer("double[]", keys), ffi.from_buffer("double[]", mass)]
    status = lib.svdd_load(
        memory._core, len(keys), pointers[0], pointers[1], len(ids), ffi.from_buffer("int64_t[]", ids),
        ffi.from_buffer("int[]", location), float(state["rho_shifted"]), int(state["solved"]),
    )  # fmt: skip
    memory._raise_on(status, "loading")
    memory._known.update(ids.tolist())
    _put_values(memory, ids, state["values"])


def _load_cold(memory: SVDDMemory, cold: dict[str, Any]) -> None:
    ids, expiry, keys = np.asarray(cold["ids"], np.int64), _floats(cold["expiry"]), _floats(cold["keys"])
    for row, (token, end) in enumerate(zip(ids.tolist(), expiry.tolist(), strict=True)):
        key = ffi.from_buffer("double[]", keys[row]) if len(keys) else ffi.NULL
        memory._raise_on(lib.svdd_cold_push(memory._core, token, end, key), "loading")
    memory._core.drift, memory._core.drift_low = float(cold["drift"]), float(cold["drift_low"])
    memory._known.update(ids.tolist())
    _put_values(memory, ids, cold["values"])


def _put_values(memory: SVDDMemory, ids: Ids, values: Array) -> None:
    if np.ndim(values) != 2 or not np.shape(values)[1]:
        return
    memory._values.width = np.shape(values)[1]
    given = ~np.isnan(values).all(axis=1)
    memory._values.put(ids[given].tolist(), _floats(values)[given])


def _floats(values: Any) -> Array:
    return np.ascontiguousarray(values, dtype=np.float64)


def _masses(state: dict[str, Any], location: Any) -> Array:
    """Mass by location: the coefficients decide; the stored mass only saves the last bit of their sum."""
    alpha, stored = _floats(state["alpha"]), _floats(state["mass"])
    summed = np.zeros(len(stored))
    np.add.at(summed, location, alpha)
    return np.where(np.abs(summed - stored) <= 2.0**-45 * np.abs(stored), stored, summed)


def _check_form(state: dict[str, Any], cold: ColdStore | None) -> None:
    if not isinstance(state, dict) or state.get("format") != FORMAT or set(state) != _FIELDS:
        raise MemoryRefused("this is no SVDD state: its format or its fields differ; load a state that to_state wrote")
    if not isinstance(state["cold"], dict) or set(state["cold"]) != _COLD_FIELDS:
        raise MemoryRefused("the cold part of this SVDD state has other fields: load a state that to_state wrote")
    _check_numbers(state)
    tokens, locations, width = len(state["ids"]), len(state["mass"]), int(state["width"])
    location = np.asarray(state["location"])
    shapes = (
        np.shape(state["alpha"]) == (tokens,)
        and location.shape == (tokens,)
        and np.shape(state["keys"]) == (locations, width)
        and len(state["values"]) == tokens
        and _cold_fits(state["cold"], width, np.shape(state["values"])[1:])
    )
    if not shapes or (tokens and set(location.tolist()) != set(range(locations))):
        raise MemoryRefused("the arrays of this SVDD state do not fit together: load a state that to_state wrote")
    everyone = [*np.asarray(state["ids"]).tolist(), *np.asarray(state["cold"]["ids"]).tolist()]
    if len(set(everyone)) != len(everyone):
        raise MemoryRefused("this SVDD state names a token twice: load a state that to_state wrote")
    if cold is None and len(state["cold"]["ids"]) != len(state["cold"]["keys"]):
        raise MemoryRefused("this SVDD state keeps its pruned keys elsewhere: give the same cold store to from_state")


def _check_numbers(state: dict[str, Any]) -> None:
    """Types and ranges of what a state holds, so that nothing below meets a surprise."""
    cold = state["cold"]
    whole = all(np.asarray(part).dtype.kind == "i" for part in (state["ids"], state["location"], cold["ids"]))
    integers = all(isinstance(state[name], int) for name in ("solved", "width", "operations"))
    counts = integers and state["solved"] in (0, 1) and 0 <= state["width"] < 2**20 and 0 <= state["operations"] < 2**62
    real = all(isinstance(state[name], float) for name in ("C", "sigma", "rho_shifted"))
    if not (whole and counts and real):
        raise MemoryRefused("a number of this SVDD state has another type or range: load a state that to_state wrote")
    finite = [state["alpha"], state["keys"], state["mass"], cold["keys"]]
    finite += [[state["rho_shifted"], cold["drift"], cold["drift_low"]]]
    if not all(np.isfinite(np.asarray(part, dtype=np.float64)).all() for part in finite):
        raise MemoryRefused("this SVDD state holds a number that is not finite: load a state that to_state wrote")
    if not (np.asarray(cold["expiry"], dtype=np.float64) < math.inf).all():
        raise MemoryRefused("an expiry of this SVDD state is not a number: load a state that to_state wrote")
    if np.isinf(np.asarray(state["values"], dtype=np.float64)).any():
        raise MemoryRefused("a value of this SVDD state is not finite: load a state that to_state wrote")
    if not state["solved"] and carries(len(state["ids"]) + len(cold["ids"]), state["C"]):
        raise MemoryRefused("this SVDD state collects although its tokens carry the mass: no memory reached it")
    if state["solved"] and not (np.asarray(state["alpha"]) > 0.0).any():
        raise MemoryRefused("this SVDD state is solved but holds no mass: it is not a state that a memory reached")


def _cold_fits(cold: dict[str, Any], width: int, value_width: tuple[int, ...]) -> bool:
    count = np.shape(cold["ids"])
    held = np.shape(cold["keys"]) == (*count, width) and np.shape(cold["values"]) in (
        (*count, *value_width),
        (*count, 0),
    )
    outside = len(cold["keys"]) == 0
    return len(count) == 1 and np.shape(cold["expiry"]) == count and (held or outside)


def _verify(memory: SVDDMemory, state: dict[str, Any]) -> None:
    """Refuse a state beyond its tolerance.

    Conditions that hold to the rounding of the kernel are enough: where the score hardly varies over the keys the bound
    cannot reach the tolerance, and float64 has no better state to offer.
    """
    if not memory.ready:
        if np.any(memory.alpha != 0.0):
            raise MemoryRefused("this SVDD state is collecting but holds mass: it is not a state that a memory reached")
        return
    _verify_cold(memory, state["cold"])
    certificate = memory.certificate()
    if certificate.mass_error > MASS_TOLERANCE:
        raise MemoryRefused(
            f"the coefficients of this SVDD state miss the sum 1 by {certificate.mass_error:.3g}, allowed is "
            f"{MASS_TOLERANCE:g}: rebuild it, or load it with verify=False to audit it"
        )
    allowed = SCORE_TOLERANCE * min(certificate.score_range, 1.0)
    rho_error = _distance(float(state["rho_shifted"]) - 1.0, certificate.rho_interval)
    error = certificate.score_bound - certificate.rounding + max(rho_error - certificate.kkt_residual, 0.0)
    allowed = SCORE_TOLERANCE * min(certificate.score_range, 1.0)
    if error > allowed and certificate.kkt_residual > 8.0 * lib.svdd_tolerance(memory._core):
        raise MemoryRefused(
            f"the score of this SVDD state may be off by {error:.3g}, allowed is {allowed:.3g}: "
            "rebuild it, or load it with verify=False to audit it"
        )


def _verify_cold(memory: SVDDMemory, cold: dict[str, Any]) -> None:
    """Refuse pruned keys that are nearer to violating their condition than their expiry says."""
    keys = _floats(cold["keys"])
    if not len(keys):
        return
    g = np.empty(len(keys))
    lib.svdd_gradients_at(memory._core, ffi.from_buffer("double[]", keys), len(keys), ffi.from_buffer("double[]", g))
    promised = np.maximum(_floats(cold["expiry"]) - (float(cold["drift"]) + float(cold["drift_low"])), 0.0)
    broken = int(np.sum(promised > g + 8.0 * lib.svdd_tolerance(memory._core)))
    if broken:
        raise MemoryRefused(
            f"{broken} of {len(keys)} pruned tokens of this SVDD state are nearer to their condition than their expiry "
            "says: rebuild it, or load it with verify=False to audit it"
        )


def _distance(value: float, interval: tuple[float, float]) -> float:
    lower, upper = interval
    return max(lower - value, value - upper, 0.0) if math.isfinite(lower) else max(value - upper, 0.0)
