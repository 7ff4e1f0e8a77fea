"""States of banks as plain arrays: written as they are, read with their form and limits checked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from memory.contract import Array
from memory.nc01.checks import NC01Refused, norm_limit, size
from memory.nc01.limits import CP64, GRAM, RADIUS, RETENTION, Configuration, Guard
from memory.nc01.register import EXACT, State, smallest_eigenvalue

_HEAD = {"kind", "banks", "clock", "guard", "dtype", "arrays", "sizes"}
_TYPES = {"torch.float32": torch.float32, "torch.float64": torch.float64}


@dataclass(frozen=True)
class Head:
    """What a state says about its banks."""

    banks: int
    clock: int
    guard: Guard
    dtype: torch.dtype
    sizes: Configuration


def unload(state: State) -> dict[str, Array]:
    """Every array by name, copied to the host, inactive slots zero."""
    return {name: part.detach().cpu().numpy().copy() for name, part in state.canonical().items()}


def load(state: Any) -> tuple[Head, State]:
    """Head and arrays of a state; raises NC01Refused where form, numbers or limits are wrong."""
    head = _head(state)
    blank = State.zeros(head.banks, *_widths(head.sizes), head.dtype, torch.device("cpu"))
    names = [field.name for field in fields(State)]
    given = state["arrays"]
    if not isinstance(given, dict) or set(given) != set(names):
        raise NC01Refused(f"a state's arrays must be {', '.join(names)}: write it with to_state")
    parts = {name: _copied(name, given[name], getattr(blank, name)) for name in names}
    arrays = State(**parts)
    _check_limits(arrays, head)
    return head, arrays


def _head(state: Any) -> Head:
    if not isinstance(state, dict) or state.get("kind") != "nc01" or set(state) != _HEAD:
        raise NC01Refused("this is not a state of protected-read banks: write it with NC01Bank.to_state")
    sizes, clock = state["sizes"], state["clock"]
    if not isinstance(sizes, dict) or set(sizes) != set(CP64):
        raise NC01Refused(f"a state's sizes must be {', '.join(CP64)}: write it with to_state")
    if state["guard"] not in get_args(Guard) or state["dtype"] not in _TYPES:
        raise NC01Refused("a state's guard or dtype is not one of a protected-read bank: write it with to_state")
    if isinstance(clock, bool) or not isinstance(clock, int) or clock < 0:
        raise NC01Refused("a state's clock must be a whole number, at least 0")
    whole = Configuration(
        d_k=size("d_k", sizes["d_k"]),
        d_v=size("d_v", sizes["d_v"]),
        slots=size("slots", sizes["slots"]),
        cadence=size("cadence", sizes["cadence"]),
        horizon=size("horizon", sizes["horizon"]),
    )
    return Head(size("banks", state["banks"]), clock, state["guard"], _TYPES[state["dtype"]], whole)


def _widths(sizes: Configuration) -> tuple[int, int, int]:
    return sizes["d_k"], sizes["d_v"], sizes["slots"]


def _copied(name: str, given: Any, like: Tensor) -> Tensor:
    array = np.asarray(given)
    expected = like.numpy()
    if array.shape != expected.shape or array.dtype != expected.dtype:
        raise NC01Refused(
            f"a state's {name} is {array.dtype} of {array.shape}, its sizes say {expected.dtype} of {expected.shape}"
        )
    if not np.isfinite(array).all():
        raise NC01Refused(f"a state's {name} holds {int((~np.isfinite(array)).sum())} numbers that are not finite")
    return torch.from_numpy(array.copy())


def _check_limits(state: State, head: Head) -> None:
    """Refuse arrays that no bank could have reached: stray slots, dependent addresses, a read or norm out of bounds."""
    canonical = state.canonical()
    stray = sum(int(not torch.equal(canonical[field.name], getattr(state, field.name))) for field in fields(State))
    if stray:
        raise NC01Refused(f"{stray} of a state's arrays hold numbers in inactive slots: write it with to_state")
    physical = state.basis.to(EXACT) @ state.pinned.to(EXACT) + state.complement.to(EXACT)
    reads = state.addresses.mT @ physical
    lost = (torch.linalg.vector_norm(reads - state.targets, dim=2) > RETENTION) & state.active
    broken = {
        "an address of norm above 1": torch.linalg.vector_norm(state.addresses, dim=1).amax(1) > norm_limit(head.dtype),
        "dependent addresses": smallest_eigenvalue(state.addresses, state.active) < GRAM * (1 - 1e-12),
        "a protected read further than 1/32 from its value": lost.any(1),
        "a norm above 64": torch.linalg.vector_norm(physical, dim=(1, 2)) > RADIUS,
        "a protection that ends beyond the horizon": (state.expires > head.clock + head.sizes["horizon"]).any(1),
    }
    for what, where in broken.items():
        if bool(where.any()):
            raise NC01Refused(f"{int(where.sum())} of {head.banks} banks of the state have {what}: take an intact copy")
