"""The numbers that define the protected-read memory, and its two configurations [NC01 B1]."""

from __future__ import annotations

from typing import Literal, TypedDict

ACQUISITION = 1 / 64
"""Largest distance of a read from its value at admission."""
RETENTION = 1 / 32
"""Largest distance of a protected read from its value until the protection ends."""
PIN_RADIUS = ACQUISITION * (1 - 2**-10)
"""The ball around the value onto which an admission projects the present read."""
RADIUS = 64.0
"""Largest Frobenius norm of the physical matrix."""
ROOM = RADIUS**2 * (1 - 1e-6)
"""Squared norm that guard and boundary share out; the rest is left to rounding."""
GRAM = 1 / 4
"""Smallest admitted eigenvalue of the Gram matrix of the protected addresses."""
RHO = 1 / 64
"""Weight of the write's own residual in the transition."""
NOISE = 2.0
"""Roundings of a key's norm below which what lies outside the protected span is taken for none; ours."""
ALPHA_MAX = 1 - 2**-12
"""Largest gate; the source says only "below 1"."""

Guard = Literal["sharp", "simple"]
Refusal = Literal["none", "invalid", "full", "gram", "norm", "verify"]
Path = Literal["segment", "sequential"]


class Configuration(TypedDict):
    """The sizes of a bank: key and value width, protected slots, tokens between boundaries, tokens of protection."""

    d_k: int
    d_v: int
    slots: int
    cadence: int
    horizon: int


CP64: Configuration = {"d_k": 128, "d_v": 128, "slots": 8, "cadence": 64, "horizon": 512}
ICU: Configuration = {"d_k": 128, "d_v": 128, "slots": 8, "cadence": 12, "horizon": 96}
"""Hourly vitals: half a day between boundaries, four days of protection, the same ratio of 8."""
