"""What the operations of the support-vector memory promise, whatever the stream."""

from __future__ import annotations

import numpy as np
import pytest
from streams import CAP, SIGMA, STREAMS

from memory.contract import MemoryRefused, NotReady
from memory.svdd import SVDDMemory


def agree(left, right, queries):
    """Both scores are right to their certificates, so they may differ by at most the sum."""
    allowed = left.certificate().score_bound + right.certificate().score_bound
    assert allowed < 1e-9
    assert np.abs(left.score(queries) - right.score(queries)).max() <= allowed


@pytest.fixture(params=sorted(STREAMS))
def stream(request):
    return STREAMS[request.param](np.random.default_rng(3), 120)


def test_a_stream_admitted_one_by_one_equals_a_fit_on_all_keys(stream):
    one_by_one = SVDDMemory(CAP, SIGMA)
    for key in stream:
        one_by_one.admit(key)
    agree(one_by_one, SVDDMemory(CAP, SIGMA).fit(stream), stream)


def test_admitting_many_is_the_same_state_as_one_by_one(stream):
    one_by_one, many = SVDDMemory(CAP, SIGMA), SVDDMemory(CAP, SIGMA)
    for key in stream:
        one_by_one.admit(key, np.array([key[0]]))
    many.admit_many(stream, stream[:, :1])
    assert one_by_one.digest() == many.digest()


def test_the_order_of_arrival_does_not_matter(stream):
    shuffled = np.random.default_rng(0).permutation(len(stream))
    agree(SVDDMemory(CAP, SIGMA).fit(stream), SVDDMemory(CAP, SIGMA).fit(stream[shuffled], ids=shuffled), stream)


def test_deleting_a_then_b_equals_b_then_a_equals_both_equals_a_fresh_fit(stream):
    first, second = list(range(10, 30)), list(range(60, 75))
    memories = [SVDDMemory(CAP, SIGMA).fit(stream) for _ in range(3)]
    memories[0].delete(first)
    memories[0].delete(second)
    memories[1].delete(second)
    memories[1].delete(first)
    memories[2].delete(first + second)
    fresh = SVDDMemory(CAP, SIGMA).fit(np.delete(stream, first + second, axis=0))
    for memory in memories:
        agree(memory, fresh, stream)


def test_admit_then_delete_returns_to_the_same_score(stream):
    memory = SVDDMemory(CAP, SIGMA).fit(stream)
    reference = SVDDMemory(CAP, SIGMA).fit(stream)
    memory.admit(stream.mean(axis=0) + 2.0, id=999)
    memory.delete([999])
    agree(memory, reference, stream)


def test_copies_share_one_location_and_its_mass_equally():
    keys = np.repeat(np.random.default_rng(0).normal(size=(5, 3)), 4, axis=0)
    memory = SVDDMemory(1 / 9.5, 1.0).fit(keys)
    assert memory.locations == 5
    assert (memory.alpha.reshape(5, 4) == memory.alpha.reshape(5, 4)[:, :1]).all()
    assert memory.alpha.sum() == pytest.approx(1.0, abs=1e-15)


def test_signed_zeros_are_one_key():
    memory = SVDDMemory(1.0, 1.0).fit(np.array([[0.0, 1.0], [-0.0, 1.0]]))
    assert memory.locations == 1


def test_margin_bound_and_reserve_are_those_of_the_coefficients(stream):
    memory = SVDDMemory(CAP, SIGMA).fit(stream)
    alpha = dict(zip(memory.ids.tolist(), memory.alpha, strict=True))
    assert all(0.0 < alpha[i] < CAP for i in memory.margin)
    assert all(alpha[i] == pytest.approx(CAP, rel=1e-15) for i in memory.bound)
    assert all(alpha[i] == 0.0 for i in memory.reserve)
    assert sorted([*memory.margin, *memory.bound, *memory.reserve]) == list(range(len(stream)))


def test_scoring_and_reading_leave_the_state_as_it_is(stream):
    memory = SVDDMemory(CAP, SIGMA).fit(stream, stream)
    before = memory.digest()
    memory.score(stream)
    memory.read(stream)
    memory.certificate()
    assert memory.digest() == before


def test_a_batch_of_queries_equals_single_queries(stream):
    memory = SVDDMemory(CAP, SIGMA).fit(stream, stream)
    assert (memory.score(stream) == [memory.score(query[None])[0] for query in stream]).all()
    assert (memory.read(stream) == np.vstack([memory.read(query[None]) for query in stream])).all()


def test_the_score_is_that_of_its_definition(stream):
    memory = SVDDMemory(CAP, SIGMA).fit(stream)
    kernel = np.exp(-((stream[:, None] - stream[None]) ** 2).sum(axis=2) / SIGMA**2)
    assert memory.score(stream) == pytest.approx(2 * kernel @ memory.alpha - memory.rho, abs=1e-13)


def test_the_readout_is_that_of_its_definition(stream):
    memory = SVDDMemory(CAP, SIGMA).fit(stream, stream)
    weight = np.exp(-((stream[:, None] - stream[None]) ** 2).sum(axis=2) / SIGMA**2) * memory.alpha
    assert memory.read(stream) == pytest.approx(weight @ stream / weight.sum(axis=1, keepdims=True), abs=1e-12)


def test_a_query_too_far_for_float64_has_no_readout():
    memory = SVDDMemory(1.0, 0.1).fit(np.zeros((2, 1)), np.ones((2, 1)))
    assert np.isnan(memory.read(np.array([[100.0]]))).all()
    assert memory.read(np.array([[0.05]])) == 1.0


def test_one_query_may_come_as_a_row():
    memory = SVDDMemory(0.5, 1.0).fit(np.random.default_rng(0).normal(size=(10, 6)))
    assert memory.score(np.zeros(6)).shape == (1,)


@pytest.mark.parametrize(("size", "sigma"), [(1e151, 1.0), (1.0, 1e151), (1.0, 1e-151)])
def test_numbers_whose_squares_leave_float64_are_refused(size, sigma):
    with pytest.raises(MemoryRefused):
        SVDDMemory(1.0, sigma).fit(np.full((2, 2), size))


def test_reading_without_values_is_not_a_number():
    assert np.isnan(SVDDMemory(1.0, 1.0).fit(np.zeros((1, 2))).read(np.zeros((3, 2)))).all()


def test_below_capacity_the_memory_collects_and_says_so():
    memory = SVDDMemory(1 / 3, 1.0)
    memory.admit_many(np.eye(2))
    for ask in (lambda: memory.score(np.eye(2)), lambda: memory.read(np.eye(2)), memory.certificate, memory.prune):
        with pytest.raises(NotReady, match=r"n \* C = 2 \* 0\.333333 = 0\.666667 < 1"):
            ask()
    memory.admit(np.ones(2))
    assert memory.ready


def test_a_deletion_below_capacity_is_refused_with_the_inequality_and_changes_nothing():
    memory = SVDDMemory(1 / 3, 1.0).fit(np.eye(4))
    before = memory.digest()
    with pytest.raises(MemoryRefused, match=r"n \* C = 2 \* 0\.333333 = 0\.666667 < 1"):
        memory.delete([0, 1])
    assert memory.digest() == before


def test_collecting_after_a_deletion_is_exactly_a_memory_that_was_given_the_rest():
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(30, 3))
    memory = SVDDMemory(1 / 10, 1.0).fit(keys, keys)
    memory.prune()
    memory.delete(list(range(22)), below_capacity="collect")
    assert not memory.ready
    assert memory.cold_ids == []
    more = rng.normal(size=(5, 3))
    memory.admit_many(more, more, range(100, 105))
    fresh = SVDDMemory(1 / 10, 1.0).fit(np.vstack([keys[22:], more]))
    agree(memory, fresh, keys)


@pytest.mark.parametrize("leaving", [[0, 0], [7], [0, 7]])
def test_a_deletion_with_an_unknown_or_repeated_id_changes_nothing(leaving):
    memory = SVDDMemory(1 / 2, 1.0).fit(np.eye(5))
    before = memory.digest()
    with pytest.raises(MemoryRefused):
        memory.delete(leaving)
    assert memory.digest() == before


@pytest.mark.parametrize(
    ("keys", "ids"),
    [
        (np.full((1, 5), np.nan), [9]),
        (np.full((1, 5), np.inf), [9]),
        (np.zeros((1, 4)), [9]),
        (np.zeros((1, 5)), [0]),
        (np.zeros((2, 5)), [9, 9]),
        (np.zeros((2, 5)), [9]),
        (np.zeros((1, 5)), [2**63]),
        (np.zeros((1, 5)), ["nine"]),
        (np.zeros((1, 5, 1)), [9]),
    ],
)
def test_a_refused_admission_changes_nothing(keys, ids):
    memory = SVDDMemory(1 / 2, 1.0).fit(np.eye(5))
    before = memory.digest()
    with pytest.raises(MemoryRefused):
        memory.admit_many(keys, ids=ids)
    assert memory.digest() == before


def test_values_of_another_width_are_refused():
    memory = SVDDMemory(1.0, 1.0).fit(np.eye(2), np.eye(2))
    with pytest.raises(MemoryRefused, match="width 3"):
        memory.admit(np.zeros(2), np.zeros(3))


@pytest.mark.parametrize(("cap", "sigma"), [(0.0, 1.0), (-1.0, 1.0), (np.nan, 1.0), (1.0, 0.0), (1.0, np.inf)])
def test_an_impossible_cap_or_width_is_refused(cap, sigma):
    with pytest.raises(MemoryRefused):
        SVDDMemory(cap, sigma)


def test_fit_refuses_too_few_keys_and_keeps_what_was_there():
    memory = SVDDMemory(1 / 3, 1.0).fit(np.eye(3))
    before = memory.digest()
    with pytest.raises(MemoryRefused, match="< 1"):
        memory.fit(np.eye(2))
    assert memory.digest() == before


def test_messages_hold_no_key_value_or_id():
    memory = SVDDMemory(1 / 2, 1.0).fit(np.full((3, 2), 424242.125), ids=[987654321012, 2, 3])
    for call in (
        lambda: memory.delete([123456789012]),
        lambda: memory.admit(np.array([424242.125, np.nan])),
        lambda: memory.admit(np.zeros(2), id=987654321012),
    ):
        with pytest.raises(MemoryRefused) as refusal:
            call()
        assert not any(secret in str(refusal.value) for secret in ("424242", "987654321012", "123456789012"))


@pytest.mark.parametrize("cap", [1.1e9, 1e20, 2.0])
def test_a_cap_above_one_never_binds(cap):
    keys = np.random.default_rng(0).normal(size=(20, 3))
    memory, free = SVDDMemory(cap, 2.0).fit(keys), SVDDMemory(1.5, 2.0).fit(keys)
    assert memory.alpha.sum() == pytest.approx(1.0)
    agree(memory, free, keys)


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.admit_many([["secret77"] * 2]),
        lambda memory: memory.admit_many(np.full((1, 2), 1j)),
        lambda memory: memory.admit_many(np.zeros((1, 2)), [["secret77"]]),
        lambda memory: memory.admit_many(np.zeros((1, 2)), ids=5),
        lambda memory: memory.delete(None),
        lambda memory: memory.score([["secret77"] * 2]),
    ],
)
def test_what_is_no_number_is_refused_without_being_quoted(call):
    memory = SVDDMemory(1 / 2, 1.0).fit(np.eye(2))
    before = memory.digest()
    with pytest.raises(MemoryRefused) as refusal:
        call(memory)
    assert "secret77" not in str(refusal.value)
    assert memory.digest() == before


def test_the_tolerance_shrinks_when_an_outlier_leaves():
    rng = np.random.default_rng(0)
    cluster = 1e-4 * rng.normal(size=(40, 2))
    memory = SVDDMemory(1 / 9.5, 1.0).fit(np.vstack([cluster, [[5.0, 5.0]]]))
    memory.delete([40])
    fresh = SVDDMemory(1 / 9.5, 1.0).fit(cluster)
    assert memory._core.scale == fresh._core.scale
