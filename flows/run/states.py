"""Memory states on disk: safetensors, no pickle, the same bytes for the same states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from flows.errors import FlowError
from flows.run.publish import write_atomic

# One entry, since the format's library writes several in no fixed order.
_SCALARS = "scalars"


def write_states(path: Path, states: Mapping[str, Mapping[str, Any]]) -> None:
    """Write named states (arrays, numbers, strings, nested mappings) atomically into one file."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    scalars: dict[str, Any] = {}
    for name in sorted(states):
        for key, value in _flat(states[name], name):
            if isinstance(value, np.ndarray):
                arrays[key] = np.ascontiguousarray(value)
            else:
                scalars[key] = value
    text = json.dumps(scalars, sort_keys=True, allow_nan=False)
    write_atomic(path, save(arrays, metadata={_SCALARS: text}))


def read_states(path: Path) -> dict[str, dict[str, Any]]:
    """The states of one file by name, as `write_states` was given them.

    Raises FlowError for a file that is cut short or is not such a file.  It does not check what a state means: the
    memory's own `from_state` does.
    """
    states: dict[str, dict[str, Any]] = {}
    try:
        with safe_open(path, framework="numpy") as stored:
            entries = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 (not a mapping)
            entries |= json.loads((stored.metadata() or {})[_SCALARS])
    except (SafetensorError, OSError, KeyError, ValueError):
        raise FlowError(f"{path.name}: is not a file of memory states; run the same study again") from None
    for key, value in entries.items():
        *above, leaf = key.split("/")
        place: dict[str, Any] = states
        for part in above:
            place = place.setdefault(part, {})
        place[leaf] = value
    return states


def _flat(state: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    entries: list[tuple[str, Any]] = []
    for key in sorted(state):
        value = state[key]
        path = f"{prefix}/{key}"
        entries += _flat(value, path) if isinstance(value, Mapping) else [(path, value)]
    return entries
