"""Many support-vector memories in lock-step on one torch device."""

from memory.svdd.batch.memory import SVDDBatch

__all__ = ["SVDDBatch"]
