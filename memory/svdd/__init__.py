"""The support-vector memory (SVDD at fixed C)."""

from memory.svdd.memory import SVDDMemory

__all__ = ["SVDDMemory"]
