"""The write rules that VLA is compared with, against their equations written out in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.contract import MemoryRefused
from memory.delta import DeltaBatch, DeltaMemory, LinearMemory


def drawn(n, d_k=10, d_v=3):
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, d_k)), rng.standard_normal((n, d_v))


def positive(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def test_linear_attention_is_the_weighted_mean_of_the_values():
    keys, values = drawn(50)
    memory = LinearMemory(10, 3)
    memory.admit_many(keys, values)
    queries = drawn(7)[0]
    weights = positive(queries) @ positive(keys).T
    expected = weights @ values / weights.sum(1, keepdims=True)
    assert np.allclose(memory.read(queries), expected, rtol=1e-13, atol=1e-14)
    assert np.allclose(memory.S.numpy(), values.T @ positive(keys), rtol=1e-13, atol=1e-13)


def test_an_empty_linear_memory_has_no_readout():
    assert np.isnan(LinearMemory(4, 2).read(np.ones(4))).all()


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (1.0, 0.3), (0.95, 0.8)])
def test_the_delta_rule_is_its_transition_matrix(alpha, beta):
    keys, values = drawn(40)
    memory = DeltaMemory(10, 3, alpha=alpha, beta=beta)
    memory.admit_many(keys, values)
    S = np.zeros((3, 10))
    for key, value in zip(keys, values, strict=True):
        k = key / np.linalg.norm(key)
        S = alpha * S @ (np.eye(10) - beta * np.outer(k, k)) + beta * np.outer(value, k)
    assert np.allclose(memory.S.numpy(), S, rtol=1e-12, atol=1e-13)


def test_the_delta_rule_reads_back_its_last_write():
    keys, values = drawn(30)
    memory = DeltaMemory(10, 3)
    memory.admit_many(keys, values)
    assert np.allclose(memory.read(keys[-1] / np.linalg.norm(keys[-1])), values[-1], atol=1e-13)


@pytest.mark.parametrize("make", [lambda: LinearMemory(10, 3), lambda: DeltaMemory(10, 3, alpha=0.99)])
def test_deletion_equals_digest_for_digest_a_memory_given_the_retained_tokens(make):
    keys, values = drawn(40)
    memory, fresh = make(), make()
    memory.admit_many(keys, values)
    outcome = memory.delete([0, 17])
    kept = np.delete(np.arange(40), [0, 17])
    fresh.admit_many(keys[kept], values[kept])
    assert memory.digest() == fresh.digest()
    assert (outcome.path, outcome.exactness) == ("replay", "bit-identical")


def test_a_batch_of_uneven_memories_replays_each_as_it_would_alone():
    keys, values = drawn(60)
    batch = DeltaBatch(10, 3, 3, alpha=0.99)
    for t in range(20):
        part = slice(3 * t, 3 * t + 3)
        batch.admit(keys[part], values[part], mask=np.array([True, t < 11, t % 2 == 0]))
    batch.delete([[0], [3, 4], [9]])
    single = DeltaMemory(10, 3, alpha=0.99)
    for t in (t for t in range(11) if t not in (3, 4)):
        single.admit(keys[3 * t + 1], values[3 * t + 1])
    assert batch.digest()[1] == single.digest()


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"alpha": 1.5}, {"beta": float("inf")}, {"dtype": torch.int64}])
def test_a_configuration_outside_the_rule_is_refused(options):
    with pytest.raises(MemoryRefused):
        DeltaMemory(10, 3, **options)
