"""A batch of memories that write token by token: admission, replay, deletion and state, without the write itself."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from memory.contract import Ids, MemoryRefused, Outcome
from memory.digest import state_digest
from memory.streamed import checks
from memory.streamed.checks import Rows
from memory.streamed.log import TokenLog
from memory.svdd.checks import leaving_ids

REPLAY = "a memory that was given the retained tokens only, in order"
_NUMBERS_AT_ONCE = 2**22
_BATCH_FIELDS = {"format", "shape", "memories"}
_LOG_FIELDS = {"ids", "keys", "values"}


class StreamedBatch(ABC):
    """Memories in lock-step on one torch device; `batch` is their number, or one number a dimension (stays, heads).

    A subclass says what a fresh state is, how a token is written and how a state is read. All sums over features are
    taken as products and one reduction, never by a batched matrix product: that one rounds differently in different
    batches, and a memory's bits must not depend on the batch around it.
    """

    FORMAT: str

    def __init__(self, d_k: int, d_v: int, batch: int | tuple[int, ...], dtype: torch.dtype, device: Any) -> None:
        self.d_k, self.d_v = checks.dimension("d_k", d_k), checks.dimension("d_v", d_v)
        self.batch = checks.batch_shape(batch)
        self.rows = math.prod(self.batch)
        self._like = torch.zeros(0, dtype=checks.float_dtype(dtype), device=device)
        self._log = TokenLog(self.rows, self.d_k, self.d_v, self._like)
        self._state = self._fresh(self.rows)

    # ---- what a subclass says ----

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Keyword arguments, beside the dimensions, dtype and device, that make a memory of the same configuration."""

    @abstractmethod
    def _fresh(self, rows: int) -> dict[str, Tensor]:
        """The state of `rows` memories before any token: tensors with a leading dimension."""

    @abstractmethod
    def _write(self, state: dict[str, Tensor], keys: Tensor, values: Tensor) -> None:
        """Write one token a memory, keys (R, d_k) and values (R, d_v), into a state in place."""

    @abstractmethod
    def _matrix(self) -> Tensor:
        """The matrix S that reading applies, (rows, d_v, d_k)."""

    def _write_keys(self, keys: Tensor) -> Tensor:
        return unit(keys)

    def _admissible(self, rows: Rows, keys: Tensor, values: Tensor) -> None:
        """Refuse a block of tokens that the state could not hold; nothing by default."""
        return

    def _after(self, rows: Rows, count: Rows) -> None:
        """Called when rows have taken in their count-th token; nothing by default."""
        return

    # ---- what it holds ----

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """Where the state lies."""
        return self._like.device

    @property
    def count(self) -> Rows:
        """Tokens held by each memory: the batch's shape."""
        return self._log.count.reshape(self.batch).copy()

    @property
    def S(self) -> Tensor:
        """A copy of the matrices that reading applies: (*batch, d_v, d_k)."""
        return self._shaped(self._matrix().clone())

    def ids(self, row: int) -> Ids:
        """Ids of a memory's tokens in order of arrival; memories are numbered row by row over the batch's shape."""
        return self._log.held(row).copy()

    def _shaped(self, part: Tensor) -> Tensor:
        return part.reshape(self.batch + tuple(part.shape[1:]))

    # ---- giving it tokens ----

    def admit(self, keys: Any, values: Any, ids: Any = None, mask: Any = None) -> None:
        """Take in one token a memory: keys (*batch, d_k), values (*batch, d_v), ids and mask (*batch).

        Refused, all memories unchanged: a number that is not finite, another shape or dtype, an id that its memory
        holds. The rows of memories that the mask leaves out are not looked at.
        """
        keys = checks.tensor("keys", keys, (*self.batch, self.d_k), self._like)
        values = checks.tensor("values", values, (*self.batch, self.d_v), self._like)
        listed = None if ids is None else checks.integers(ids, self.batch).reshape(self.rows, 1)
        self._admit(keys.reshape(self.rows, 1, -1), values.reshape(self.rows, 1, -1), listed, mask)

    def admit_many(self, keys: Any, values: Any, ids: Any = None, mask: Any = None) -> None:
        """Take in T tokens a memory, keys (*batch, T, d_k): the state of one by one, bit for bit; all or nothing."""
        length = np.shape(keys)[-2] if np.ndim(keys) > 1 else 0
        keys = checks.tensor("keys", keys, (*self.batch, length, self.d_k), self._like)
        values = checks.tensor("values", values, (*self.batch, length, self.d_v), self._like)
        listed = None if ids is None else checks.integers(ids, (*self.batch, length)).reshape(self.rows, length)
        shape = (self.rows, length, -1) if length else (self.rows, 0, 1)
        self._admit(keys.reshape(shape), values.reshape(shape), listed, mask)

    def _admit(self, keys: Tensor, values: Tensor, ids: Ids | None, mask: Any) -> None:
        rows = checks.chosen(mask, self.batch, self.rows)
        length = keys.shape[1]
        if not len(rows) or not length:
            return
        if len(rows) < self.rows:
            index = torch.as_tensor(rows, device=self.device)
            keys, values = keys[index], values[index]
        checks.finite("keys", keys)
        checks.finite("values", values)
        tokens = self._log.new_ids(rows, None if ids is None else ids[rows], length)
        keys, values = self._write_keys(keys) + 0.0, values + 0.0  # -0.0 becomes 0.0: one token, one digest
        self._admissible(rows, keys, values)
        self._feed(rows, keys, values, tokens)

    def _feed(self, rows: Rows, keys: Tensor, values: Tensor, ids: Ids) -> None:
        """Write checked tokens, keys (R, T, d_k) already write keys, and log them."""
        before = self._log.count[rows]
        self._log.append(rows, keys, values, ids)
        live = (keys != 0.0).any(-1).cpu().numpy()
        for t in range(keys.shape[1]):
            self._write_rows(rows, live[:, t], keys[:, t], values[:, t])
            self._after(rows, before + t + 1)

    def _write_rows(self, rows: Rows, live: Any, keys: Tensor, values: Tensor) -> None:
        """Write one token into rows; a zero key writes nothing, and idle rows are not touched at all."""
        if len(rows) == self.rows and live.all():
            self._write(self._state, keys, values)
            return
        index = torch.as_tensor(rows[live], device=self.device)
        chosen = torch.as_tensor(np.flatnonzero(live), device=self.device)
        part = {name: state[index] for name, state in self._state.items()}
        self._write(part, keys[chosen], values[chosen])
        for name, state in part.items():
            self._state[name][index] = state

    # ---- reading ----

    def read(self, q: Any) -> Any:
        """S q for queries (*batch, d_k) or (*batch, n, d_k): (*batch, d_v) or (*batch, n, d_v).

        Pure. Tensors come back as tensors, anything else as numpy. A query that is not finite is refused.
        """
        one = np.ndim(q) <= len(self.batch) + 1
        shape = (*self.batch, self.d_k) if one else (*self.batch, np.shape(q)[len(self.batch)], self.d_k)
        queries = checks.tensor("queries", q, shape, self._like).reshape(self.rows, -1, self.d_k)
        checks.finite("queries", queries)
        out = self._read(queries).reshape((*shape[:-1], self.d_v))
        return out if isinstance(q, Tensor) else out.cpu().numpy()

    def _read(self, queries: Tensor) -> Tensor:
        return applied(self._matrix(), queries)

    # ---- deletion ----

    def delete(self, ids: Sequence[Iterable[int]]) -> list[Outcome]:
        """Make every memory what it would be without these tokens: one list of ids a memory, empty for nothing.

        All or nothing over the batch. Refused: an id that its memory does not hold or an id twice. By deterministic
        replay of the retained tokens: the digest is that of a memory that was given those only, on the same build and
        dtype. The deletion of every token of a memory leaves a fresh one.
        """
        leaving = [list(part) for part in ids]
        stay = self._staying(leaving)
        self._replay({row: places for row, places in enumerate(stay) if len(places) < self._log.count[row]})
        return [self._outcome("replay", len(part), REPLAY) for part in leaving]

    def _staying(self, ids: list[list[int]]) -> list[Rows]:
        """Places of the tokens that stay, row by row."""
        if len(ids) != self.rows:
            raise MemoryRefused(f"{len(ids)} lists of ids for {self.rows} memories: give one list a memory")
        leaving = [leaving_ids(part, set(self._log.held(row).tolist())) for row, part in enumerate(ids)]
        return [np.flatnonzero(~np.isin(self._log.held(row), part)) for row, part in enumerate(leaving)]

    def _outcome(self, path: Any, removed: int, reference: str, exact: bool = True) -> Outcome:
        if not removed:
            return Outcome("reserve")
        return Outcome(path, removed=removed, reference=reference, exactness="bit-identical" if exact else "tolerance")

    def _replay(self, stay: dict[int, Rows]) -> None:
        """Rebuild rows from the tokens at these places; published together at the end."""
        if not stay:
            return
        other, rows = self._alike(len(stay)), list(stay)
        lengths = np.array([len(stay[row]) for row in rows])
        for start, end in _segments(lengths):
            part = np.flatnonzero(lengths > start)
            places = np.stack([stay[rows[i]][start:end] for i in part])
            at = (torch.as_tensor([[rows[i]] for i in part]), torch.as_tensor(places))
            other._feed(part, self._log.keys[at], self._log.values[at], self._ids_at([rows[i] for i in part], places))
        for name, state in other._state.items():
            self._state[name][torch.as_tensor(rows, device=self.device)] = state
        for row in rows:
            self._log.keep(row, stay[row])

    def _ids_at(self, rows: list[int], places: Rows) -> Ids:
        ids: Ids = self._log.ids[np.array(rows)[:, None], places]
        return ids

    def _alike(self, batch: int | tuple[int, ...]) -> Self:
        """A fresh batch of the same configuration."""
        return type(self)(self.d_k, self.d_v, batch, dtype=self.dtype, device=self.device, **self._settings())

    # ---- state ----

    def digest(self) -> list[str]:
        """SHA-256 of each memory's state: configuration, arrays and tokens. Ids are names of tokens and left out."""
        return [state_digest(self._digested(self.row_state(row))) for row in range(self.rows)]

    def _digested(self, state: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in state.items() if name != "ids"}

    def row_state(self, row: int) -> dict[str, Any]:
        """The complete state of one memory: the configuration, its arrays and its tokens."""
        settings = {"d_k": self.d_k, "d_v": self.d_v, "dtype": str(self.dtype).removeprefix("torch.")}
        arrays = {name: part[row].cpu().numpy().copy() for name, part in self._state.items()}
        return {"format": self.FORMAT, "settings": settings | self._settings()} | arrays | self._log.state(row)

    def to_state(self) -> dict[str, Any]:
        """The states of all memories; nothing in it refers to the object."""
        rows = {f"{row:06d}": self.row_state(row) for row in range(self.rows)}
        return {"format": f"{self.FORMAT} batch", "shape": np.array(self.batch, dtype=np.int64), "memories": rows}

    @classmethod
    def from_state(cls, state: dict[str, Any], device: Any = "cpu") -> Self:
        """The batch that wrote this state, bit for bit. Refused: another format or configuration, arrays that differ.

        All memories of a batch have one configuration.
        """
        if not isinstance(state, dict) or state.get("format") != f"{cls.FORMAT} batch" or set(state) != _BATCH_FIELDS:
            raise MemoryRefused(f"this is no state of a {cls.FORMAT} batch: load a state that to_state wrote")
        shape = tuple(int(part) for part in state["shape"])
        return cls._joined([state["memories"][name] for name in sorted(state["memories"])], shape, device)

    @classmethod
    def _joined(cls, states: list[dict[str, Any]], shape: tuple[int, ...], device: Any) -> Self:
        for state in states:
            if not isinstance(state, dict) or state.get("format") != cls.FORMAT or "settings" not in state:
                raise MemoryRefused(f"this is no state of a {cls.FORMAT} memory: load a state that to_state wrote")
            if state["settings"] != states[0]["settings"]:
                raise MemoryRefused("the memories of this state have different configurations: a batch has one")
        if not states or len(states) != math.prod(shape):
            raise MemoryRefused(f"this state holds {len(states)} memories for a batch of shape {shape}")
        batch = cls._configured(dict(states[0]["settings"]), shape, device)
        for row, state in enumerate(states):
            batch._load(row, state)
        return batch

    @classmethod
    def _configured(cls, settings: dict[str, Any], shape: tuple[int, ...], device: Any) -> Self:
        try:
            d_k, d_v, dtype = settings.pop("d_k"), settings.pop("d_v"), getattr(torch, settings.pop("dtype"))
            return cls(d_k, d_v, shape, dtype=dtype, device=device, **settings)
        except (KeyError, AttributeError, TypeError):
            raise MemoryRefused(f"the settings of this {cls.FORMAT} state are of another configuration") from None

    def _load(self, row: int, state: dict[str, Any]) -> None:
        if set(state) != {"format", "settings", *self._state, *_LOG_FIELDS}:
            raise MemoryRefused(f"this {self.FORMAT} state has other fields: load a state that to_state wrote")
        for name, part in self._state.items():
            part[row] = self._stored(state[name], tuple(part.shape[1:]), part)
        count = len(state["ids"])
        keys = self._stored(state["keys"], (count, self.d_k), self._like)
        values = self._stored(state["values"], (count, self.d_v), self._like)
        rows = np.array([row])
        ids = self._log.new_ids(rows, checks.integers(state["ids"], (count,))[None], count)
        self._log.append(rows, keys[None], values[None], ids)

    def _stored(self, array: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
        part = torch.as_tensor(np.asarray(array))
        if tuple(part.shape) != shape or part.dtype != like.dtype or not bool(torch.isfinite(part).all()):
            raise MemoryRefused(
                f"an array of this {self.FORMAT} state has another shape or type, or a number that is not finite: "
                "load a state that to_state wrote"
            )
        return part.to(like.device)


def unit(keys: Tensor) -> Tensor:
    """Rows of norm 1; a zero row stays zero. The largest entry goes first, so that no square over- or underflows."""
    largest = keys.abs().amax(-1, keepdim=True)
    scaled = torch.where(largest > 0.0, keys / largest, 0.0)
    norm = (scaled * scaled).sum(-1, keepdim=True).sqrt()
    return torch.where(largest > 0.0, scaled / norm, 0.0)


def applied(matrix: Tensor, queries: Tensor) -> Tensor:
    """matrix (R, m, d) on queries (R, n, d): (R, n, m), the bits of each row its own whatever R and n."""
    at_once = max(1, _NUMBERS_AT_ONCE // matrix.numel())
    starts = range(0, queries.shape[1], at_once)
    parts = [queries[:, start : start + at_once, None, :] for start in starts]
    return torch.cat(
        [matrix.new_empty((len(matrix), 0, matrix.shape[1]))] + [(matrix[:, None] * p).sum(-1) for p in parts], 1
    )


def _segments(lengths: Rows) -> list[tuple[int, int]]:
    """Stretches of time over which the same rows still have tokens."""
    ends = [0, *np.unique(lengths[lengths > 0]).tolist()]
    return list(pairwise(ends))
