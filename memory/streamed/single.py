"""One memory that writes token by token: a batch of one without the batch dimension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self

from torch import Tensor

from memory.contract import Ids, Outcome
from memory.streamed.batch import StreamedBatch


class StreamedMemory:
    """The operations of a StreamedBatch for one memory: keys (d_k,), values (d_v,), one list of ids.

    Every refusal raises MemoryRefused before anything changes. It keeps no times and no patients, and one object is not
    for use from several threads.
    """

    BATCH: ClassVar[type[StreamedBatch]]
    _batch: StreamedBatch

    @property
    def S(self) -> Tensor:
        """A copy of the matrix that reading applies: (d_v, d_k)."""
        return self._batch.S

    @property
    def ids(self) -> Ids:
        """Ids of the tokens held, in order of arrival."""
        return self._batch.ids(0)

    def __len__(self) -> int:
        return int(self._batch.count)

    def __contains__(self, token: object) -> bool:
        return token in self.ids.tolist()

    def admit(self, key: Any, value: Any, id: int | None = None) -> Outcome:
        """Take in one token: key (d_k,), value (d_v,); its id is one above the largest held unless given."""
        self._batch.admit(key, value, id)
        return Outcome("written")

    def admit_many(self, keys: Any, values: Any, ids: Any = None) -> Outcome:
        """Take in tokens in order, keys (n, d_k): the state of one by one, bit for bit; all or nothing on refusal."""
        self._batch.admit_many(keys, values, ids)
        return Outcome("written")

    def read(self, q: Any) -> Any:
        """The readout of queries (d_k,) or (n, d_k): (d_v,) or (n, d_v). Pure."""
        return self._batch.read(q)

    def delete(self, ids: Iterable[int]) -> Outcome:
        """Make the memory what it would be had the tokens never been given; the outcome names reference and exactness.

        A list, all or nothing. Refused: an id that is not held or listed twice.
        """
        return self._batch.delete([list(ids)])[0]

    def digest(self) -> str:
        """SHA-256 of the state: configuration, arrays and tokens. Ids are names of tokens and left out."""
        return self._batch.digest()[0]

    def to_state(self) -> dict[str, Any]:
        """The complete state as arrays, numbers, strings and nested dicts; nothing in it refers to the object."""
        return self._batch.row_state(0)

    @classmethod
    def from_state(cls, state: dict[str, Any], device: Any = "cpu") -> Self:
        """The memory that wrote this state, bit for bit; a state of another form or kind is refused."""
        return cls._around(cls.BATCH._joined([state], (), device))

    @classmethod
    def _around(cls, batch: StreamedBatch) -> Self:
        memory = cls.__new__(cls)
        memory._batch = batch
        return memory
