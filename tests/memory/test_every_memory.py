"""Rules that every memory keeps, whatever it computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from adapters import ADAPTERS, D_K, D_V

from memory.contract import MemoryRefused

LENGTHS = (1, 63, 64, 65, 700)
REFUSALS = [(name, call) for name, adapter in ADAPTERS.items() for call in adapter.bad]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=sorted(ADAPTERS))
def adapter(request):
    return ADAPTERS[request.param]


def tokens(length):
    rng = np.random.default_rng(length)
    return rng.standard_normal((length, D_K)), rng.standard_normal((length, D_V)), rng.standard_normal((5, D_K))


def holding(adapter, length=65):
    keys, values, queries = tokens(length)
    memory = adapter.make()
    adapter.give_many(memory, keys, values)
    return memory, queries


def test_reading_changes_nothing(adapter):
    memory, queries = holding(adapter)
    before = adapter.digest(memory)
    first = adapter.read(memory, queries)
    assert np.array_equal(first, adapter.read(memory, queries), equal_nan=True)
    assert adapter.digest(memory) == before


@pytest.mark.parametrize("length", LENGTHS)
def test_tokens_given_in_one_call_are_tokens_given_one_by_one(adapter, length):
    keys, values, queries = tokens(length)
    slow, fast = adapter.make(), adapter.make()
    adapter.give(slow, keys, values)
    adapter.give_many(fast, keys, values)
    if adapter.gap == 0.0:
        assert adapter.digest(slow) == adapter.digest(fast)
    elif length > 10:
        assert np.abs(adapter.read(slow, queries) - adapter.read(fast, queries)).max() <= adapter.gap


def test_a_batch_of_one_reads_what_the_single_memory_reads(adapter):
    if adapter.batch_of_one is None:
        pytest.skip("this memory is a batch itself")
    keys, values, queries = tokens(40)
    memory = adapter.make()
    adapter.give(memory, keys, values)
    assert np.allclose(adapter.batch_of_one(keys, values, queries), adapter.read(memory, queries), rtol=1e-9, atol=1e-9)


def test_a_state_comes_back_bit_for_bit(adapter):
    memory, queries = holding(adapter)
    again = adapter.load(adapter.save(memory))
    assert adapter.digest(again) == adapter.digest(memory)
    assert np.array_equal(adapter.read(again, queries), adapter.read(memory, queries), equal_nan=True)


def test_a_memory_goes_on_from_its_state_as_if_it_had_never_been_saved(adapter):
    memory, _ = holding(adapter)
    again = adapter.load(adapter.save(memory))
    keys, values, queries = tokens(30)
    for one in (memory, again):
        adapter.give(one, keys, values)
    if adapter.resume_gap == 0.0:
        assert adapter.digest(again) == adapter.digest(memory)
    difference = np.abs(adapter.read(again, queries) - adapter.read(memory, queries))
    assert difference.max() <= adapter.resume_gap


def test_a_state_of_another_kind_is_refused(adapter):
    memory, _ = holding(adapter)
    with pytest.raises(MemoryRefused):
        adapter.load(adapter.save(memory) | {"format": "something else"})


@pytest.mark.parametrize(("name", "call"), REFUSALS)
def test_a_refused_operation_leaves_the_digest_unchanged(name, call):
    adapter = ADAPTERS[name]
    memory, _ = holding(adapter)
    before = adapter.digest(memory)
    with pytest.raises(MemoryRefused) as refused:
        adapter.bad[call](memory)
    assert "\n" not in str(refused.value)
    assert adapter.digest(memory) == before


def test_nan_in_unused_storage_reaches_no_result(adapter):
    if adapter.plant is None:
        pytest.skip("this memory has no storage that no token uses")
    clean, queries = holding(adapter)
    memory, _ = holding(adapter)
    adapter.plant(memory)
    assert adapter.digest(memory) == adapter.digest(clean)
    for one in (clean, memory):
        keys, values, _ = tokens(20)
        adapter.give(one, keys, values)
        if hasattr(one, "delete"):
            one.delete([3, 70])
    assert np.array_equal(adapter.read(memory, queries), adapter.read(clean, queries), equal_nan=True)
    assert adapter.digest(memory) == adapter.digest(clean)
