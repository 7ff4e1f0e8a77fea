"""One canonical digest for every memory's state."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np


def state_digest(state: dict[str, Any]) -> str:
    """SHA-256 of a state of arrays, numbers, strings and nested dicts: keys sorted, arrays little-endian with shape.

    Raises TypeError on anything else. It does not say whether the state is right: that is the certificate's part.
    """
    sha = hashlib.sha256()
    _feed(sha, state)
    return sha.hexdigest()


def _feed(sha: Any, value: Any) -> None:
    if isinstance(value, dict):
        sha.update(b"{%d" % len(value))
        for name in sorted(value):
            _feed(sha, name)
            _feed(sha, value[name])
    elif isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
        sha.update(f"a{little.dtype.str}{little.shape}".encode())
        sha.update(little.tobytes())
    elif isinstance(value, str):
        sha.update(b"s%d:" % len(value.encode()) + value.encode())
    elif isinstance(value, bool) or value is None:
        sha.update(b"b" + str(value).encode())
    elif isinstance(value, int | np.integer):
        sha.update(b"i%d;" % int(value))
    elif isinstance(value, float | np.floating):
        sha.update(b"f" + struct.pack("<d", float(value)))
    else:
        raise TypeError(f"a state holds arrays, numbers, strings and dicts, not {type(value).__name__}")
