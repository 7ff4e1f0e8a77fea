"""Which device memory work runs on, and a check that the device computes what the CPU computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from flows.errors import FlowError

Device = Literal["cpu", "cuda"]
Answers = Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]

TOLERANCE = 1e-9  # of the largest CPU answer: both sides compute in fp64, in another order of summation

_BATCH, _HOURS, _CHANNELS = 3, 40, 6


def checked_device(wanted: Literal["auto", "cpu", "cuda"], solve: Callable[[str], Answers] | None = None) -> Device:
    """The device that `wanted` means here, after its self-check; "auto" is cuda where one is present.

    ``solve`` works out the answers of the check on a named device, `small_problem` by default. Raises FlowError for an
    absent device and for one whose answers differ. The check runs on CPU tensors in the tests; no accelerator has
    confirmed it.
    """
    import torch  # noqa: PLC0415 (seconds to import)

    present = torch.cuda.is_available()
    if wanted == "cuda" and not present:
        raise FlowError("--device cuda: no such device on this machine; use --device auto or cpu")
    if wanted == "cpu" or not present:
        return "cpu"
    self_check("cuda", solve or small_problem)
    return "cuda"


def self_check(device: str, solve: Callable[[str], Answers]) -> None:
    """Raise FlowError where `solve(device)` differs from `solve("cpu")`: a wrong driver, library or chip."""
    expected, found = solve("cpu"), solve(device)
    for name in sorted(expected):
        if not _agree(expected[name], found.get(name)):
            raise FlowError(
                f"device {device}: its answer to the check of {name} differs from the CPU's by over {TOLERANCE:g}; "
                "use --device cpu and have the device, its driver and its libraries looked at"
            )


def small_problem(device: str) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Answers of each kind of memory on a device after writing, and after a deletion where a batch can delete.

    Scores of support-vector memories (batch, hours), matrices of the least-squares ones (batch, 6, 6), banks of the
    protected ones (batch, 6, 6), for invented keys that are the same everywhere.
    """
    import torch  # noqa: PLC0415 (seconds to import)

    drawn = np.random.default_rng(7).standard_normal((_BATCH, _HOURS, _CHANNELS))
    keys = torch.from_numpy(drawn)
    return {
        "the support-vector memories": _gate(drawn, device),
        "the least-squares memories": _squares(drawn, device),
        "the protected memories": _bank(keys.to(device), device),
    }


def _gate(drawn: np.ndarray[Any, np.dtype[np.float64]], device: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    import torch  # noqa: PLC0415 (seconds to import)

    from memory.svdd import SVDDBatch  # noqa: PLC0415 (imports torch)

    memory = SVDDBatch(1 / (0.2 * 20), 2.0, _BATCH, device=device)
    for hour in range(_HOURS):
        memory.admit(drawn[:, hour], ids=[hour] * _BATCH)
    memory.delete([[3, 17, 21]] * _BATCH)
    return torch.as_tensor(memory.score(drawn)).cpu().numpy()


def _squares(drawn: np.ndarray[Any, np.dtype[np.float64]], device: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    from memory.vla import VLABatch  # noqa: PLC0415 (imports torch)

    memory = VLABatch(_CHANNELS, _CHANNELS, _BATCH, device=device)
    for hour in range(_HOURS):
        memory.admit(drawn[:, hour], drawn[:, hour], ids=[hour] * _BATCH)
    memory.delete([[3, 17, 21]] * _BATCH)
    return memory.S.cpu().numpy()


def _bank(keys: Any, device: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    import torch  # noqa: PLC0415 (seconds to import)

    from memory.nc01 import NC01Bank  # noqa: PLC0415 (imports torch)

    bank = NC01Bank(_BATCH, _CHANNELS, _CHANNELS, 2, 8, 32, device=device)
    gates = torch.full((_BATCH, _HOURS), 0.99, dtype=torch.float64, device=device)
    unit = keys / keys.norm(dim=2, keepdim=True)
    bank.run(unit, keys, gates, torch.ones_like(gates))
    return bank.physical().cpu().numpy()


def _agree(expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any] | None) -> bool:
    if found is None or found.shape != expected.shape or not np.isfinite(found).all():
        return False
    return bool(np.abs(found - expected).max() <= TOLERANCE * max(1.0, float(np.abs(expected).max())))
