"""One adapter a memory, so that the same rules are asked of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from memory.delta import DeltaBatch, DeltaMemory, LinearBatch, LinearMemory
from memory.nc01 import NC01Bank
from memory.svdd import SVDDBatch, SVDDMemory
from memory.vla import VLABatch, VLAMemory

D_K, D_V = 6, 3


@dataclass(frozen=True)
class Adapter:
    """How the common rules are put to one kind of memory; keys (n, D_K), values (n, D_V) float64 numpy.

    Attributes:
        make: an empty memory.
        give: takes in tokens one by one.
        give_many: takes in the same tokens in one call (segments, where a memory has them).
        read: readings at queries (q, D_K), flat.
        digest, save, load: state and back.
        bad: calls that must be refused, each given a memory that holds ids 0..n-1.
        plant: writes NaN into storage that no token uses; None where a memory has none.
        batch_of_one: readings of a batch of one memory given the same tokens; None where there is no such class.
        gap: largest difference between one by one and many; 0 means bit for bit, digest included.
        resume_gap: the same between a memory that went on from its saved state and one that was never saved.
    """

    make: Callable[[], Any]
    give: Callable[[Any, Any, Any], None]
    give_many: Callable[[Any, Any, Any], None]
    read: Callable[[Any, Any], Any]
    digest: Callable[[Any], Any]
    save: Callable[[Any], dict[str, Any]]
    load: Callable[[dict[str, Any]], Any]
    bad: dict[str, Callable[[Any], Any]]
    plant: Callable[[Any], None] | None
    batch_of_one: Callable[[Any, Any, Any], Any] | None
    gap: float = 0.0
    resume_gap: float = 0.0


def one_by_one(memory: Any, keys: Any, values: Any) -> None:
    for key, value in zip(keys, values, strict=True):
        memory.admit(key, value)


def _with(array: Any, number: float) -> Any:
    changed = np.array(array)
    changed[0] = number
    return changed


KEY, VALUE = np.ones(D_K), np.ones(D_V)
COMMON_BAD = {
    "a key that is not finite": lambda memory: memory.admit(_with(KEY, np.nan), VALUE),
    "a value that is not finite": lambda memory: memory.admit(KEY, _with(VALUE, np.inf)),
    "a key of another width": lambda memory: memory.admit(np.ones(D_K + 1), VALUE),
    "a value of another width": lambda memory: memory.admit(KEY, np.ones(D_V + 1)),
    "an id already held": lambda memory: memory.admit(KEY, VALUE, 0),
    "a block with one bad row": lambda memory: memory.admit_many(
        np.stack([KEY, _with(KEY, np.nan)]), np.stack([VALUE, VALUE])
    ),
    "an unknown id to delete": lambda memory: memory.delete([0, 10**9]),
    "an id to delete twice": lambda memory: memory.delete([0, 0]),
}
STREAMED_BAD = {
    "a key of another dtype": lambda memory: memory.admit(KEY.astype(np.float32), VALUE),
    "a query of another width": lambda memory: memory.read(np.ones(D_K + 1)),
    "a query that is not finite": lambda memory: memory.read(_with(KEY, np.nan)),
}


def _plant_in_log(memory: Any) -> None:
    log = memory._batch._log
    used = int(log.count[0])
    log._reserve(used + 8)
    log.keys[:, used:], log.values[:, used:] = torch.nan, torch.nan


def streamed(memory_class: Any, batch_class: Any, **options: Any) -> Adapter:
    def batch_of_one(keys: Any, values: Any, queries: Any) -> Any:
        batch = batch_class(D_K, D_V, 1, **options)
        for key, value in zip(keys, values, strict=True):
            batch.admit(key[None], value[None])
        return batch.read(queries[None]).ravel()

    return Adapter(
        make=lambda: memory_class(D_K, D_V, **options),
        give=one_by_one,
        give_many=lambda memory, keys, values: memory.admit_many(keys, values),
        read=lambda memory, queries: memory.read(queries).ravel(),
        digest=lambda memory: memory.digest(),
        save=lambda memory: memory.to_state(),
        load=memory_class.from_state,
        bad=COMMON_BAD | STREAMED_BAD,
        plant=_plant_in_log,
        batch_of_one=batch_of_one,
    )


def _svdd_batch(keys: Any, values: Any, queries: Any) -> Any:
    batch = SVDDBatch(0.1, 3.0, 1)
    for key, value in zip(keys, values, strict=True):
        batch.admit(key[None], value[None])
    return np.concatenate([batch.score(queries).ravel(), batch.memory(0).read(queries).ravel()])


def _unit(keys: Any) -> Any:
    return keys / np.linalg.norm(keys, axis=-1, keepdims=True)


def _nc01_tokens(keys: Any, values: Any, banks: int = 1) -> list[Any]:
    """Tokens for banks of which the first is given these and the others the same in reverse order."""
    k, v = (np.stack([part, *[part[::-1]] * (banks - 1)]) for part in (_unit(keys), values))
    return [k, v, np.full(k.shape[:2], 0.99), np.full(k.shape[:2], 0.9)]


def _nc01_write(bank: NC01Bank, tokens: list[Any], longest: int) -> NC01Bank:
    """Writes in stretches of at most `longest`, with the token before each boundary as its offer."""
    start, length, cadence = 0, tokens[0].shape[1], bank.configuration["cadence"]
    while start < length:
        stop = min(length, start + longest, start + cadence - bank.clock % cadence)
        if longest == 1:
            bank.step(*(part[:, start] for part in tokens))
        else:
            bank.segment(*(part[:, start:stop] for part in tokens))
        if bank.clock % cadence == 0:
            bank.boundary(tokens[0][:, stop - 1], tokens[1][:, stop - 1])
        start = stop
    return bank


def _nc01(banks: int = 1) -> NC01Bank:
    return NC01Bank(banks, D_K, D_V, slots=4, cadence=12, horizon=36)


def _nc01_step(memory: NC01Bank, k: Any = None, v: Any = None, alpha: float = 0.9, beta: float = 0.5) -> None:
    key, value = (np.full((1, D_K), 0.1) if k is None else k), (np.ones((1, D_V)) if v is None else v)
    memory.step(key, value, np.full(1, alpha), np.full(1, beta))


def _plant_in_slots(memory: NC01Bank) -> None:
    state, unused = memory._state, ~memory._state.active[0]
    assert unused.any()
    state.basis[0, :, unused], state.addresses[0, :, unused] = torch.nan, torch.nan
    state.pinned[0, unused], state.pins[0, unused], state.targets[0, unused] = torch.nan, torch.nan, torch.nan


NC01_BAD = {
    "a key that is not finite": lambda memory: _nc01_step(memory, k=np.full((1, D_K), np.nan)),
    "a value that is not finite": lambda memory: _nc01_step(memory, v=np.full((1, D_V), np.inf)),
    "a key of another width": lambda memory: _nc01_step(memory, k=np.zeros((1, D_K + 1))),
    "a value of another width": lambda memory: _nc01_step(memory, v=np.zeros((1, D_V + 1))),
    "a key of another dtype": lambda memory: _nc01_step(memory, k=np.zeros((1, D_K), np.float32)),
    "a key of norm above 1": lambda memory: _nc01_step(memory, k=np.ones((1, D_K))),
    "a gate outside the domain": lambda memory: _nc01_step(memory, alpha=1.0),
    "a rate outside the domain": lambda memory: _nc01_step(memory, beta=-0.1),
    "a segment longer than the cadence": lambda memory: memory.segment(
        *_nc01_tokens(np.ones((13, D_K)), np.ones((13, D_V)))
    ),
    "a query of another width": lambda memory: memory.read(np.ones((1, D_K + 1))),
    "an offer of another width": lambda memory: memory.boundary(np.ones((1, D_K + 1)), np.ones((1, D_V))),
}


ADAPTERS = {
    "NC01": Adapter(
        make=_nc01,
        give=lambda memory, keys, values: _nc01_write(memory, _nc01_tokens(keys, values), 1),
        give_many=lambda memory, keys, values: _nc01_write(memory, _nc01_tokens(keys, values), 12),
        read=lambda memory, queries: memory.read(queries[None]).numpy().ravel(),
        digest=lambda memory: memory.digest(),
        save=lambda memory: memory.to_state(),
        load=NC01Bank.from_state,
        bad=NC01_BAD,
        plant=_plant_in_slots,
        batch_of_one=lambda keys, values, queries: (
            _nc01_write(_nc01(3), _nc01_tokens(keys, values, 3), 1).read(np.stack([queries] * 3))[0].numpy().ravel()
        ),
        gap=1e-13,  # segments and single steps differ by rounding
    ),
    "VLA ridge": streamed(VLAMemory, VLABatch),
    "VLA ridge with ledger": streamed(VLAMemory, VLABatch, ledger=True),
    "VLA unit": streamed(VLAMemory, VLABatch, gain="unit"),
    "linear attention": streamed(LinearMemory, LinearBatch),
    "delta rule": streamed(DeltaMemory, DeltaBatch),
    "gated delta rule": streamed(DeltaMemory, DeltaBatch, alpha=0.99, beta=0.9),
    "SVDD": Adapter(
        make=lambda: SVDDMemory(0.1, 3.0),
        give=one_by_one,
        give_many=lambda memory, keys, values: memory.admit_many(keys, values),
        read=lambda memory, queries: np.concatenate([memory.score(queries), memory.read(queries).ravel()]),
        digest=lambda memory: memory.digest(),
        save=lambda memory: memory.to_state(),
        load=SVDDMemory.from_state,
        bad=COMMON_BAD,
        plant=None,
        batch_of_one=_svdd_batch,
        resume_gap=1e-9,  # a loaded SVDD factorises its margin anew: the next walk rounds differently
    ),
}
