"""One adapter a memory, so that the same rules are asked of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from memory.delta import DeltaBatch, DeltaMemory, LinearBatch, LinearMemory
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


ADAPTERS = {
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
