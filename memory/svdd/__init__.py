"""The support-vector memory (SVDD at fixed C): one at a time, or many in lock-step on a torch device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory.svdd.memory import SVDDMemory

if TYPE_CHECKING:
    from memory.svdd.batch import SVDDBatch

__all__ = ["SVDDBatch", "SVDDMemory"]


def __getattr__(name: str) -> Any:
    """SVDDBatch on first use: importing torch takes longer than most commands that do not need it."""
    if name != "SVDDBatch":
        raise AttributeError(name)
    from memory.svdd.batch import SVDDBatch  # noqa: PLC0415

    return SVDDBatch
