"""Variational linear attention (VLA): a penalised least-squares memory, one at a time or many in lock-step."""

from memory.vla.batch import VLABatch
from memory.vla.memory import VLAMemory

__all__ = ["VLABatch", "VLAMemory"]
