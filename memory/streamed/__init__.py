"""What the memories that write token by token share: the log of their tokens, their checks, replay and state."""

from memory.streamed.batch import StreamedBatch
from memory.streamed.single import StreamedMemory

__all__ = ["StreamedBatch", "StreamedMemory"]
