"""Expiry, admission and its five refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nc01_reference import stream, unit

from memory.nc01 import NC01Bank, NC01Refused
from memory.nc01.limits import PIN_RADIUS

D_K, D_V = 24, 10
REASONS = ("invalid", "full", "gram", "norm", "verify")


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def bank_with(banks=1, dtype=torch.float64, slots=4, horizon=10**6):
    bank = NC01Bank(banks, D_K, D_V, slots, 16, horizon, dtype=dtype)
    bank.run(*stream(banks, 16, D_K, D_V, 1, dtype))
    return bank


def offer(seed, banks=1):
    rng = np.random.default_rng(seed)
    key, value = unit(rng.standard_normal((banks, D_K))), unit(rng.standard_normal((banks, D_V)))
    return torch.from_numpy(key), torch.from_numpy(value)


def test_an_admission_into_the_zero_state_misses_by_the_pin_radius():
    bank = NC01Bank(1)
    r = torch.from_numpy(unit(np.random.default_rng(0).standard_normal((1, 128))))
    v = torch.from_numpy(unit(np.random.default_rng(1).standard_normal((1, 128))))
    assert bank.boundary(r, v) == [None]
    assert abs(float(torch.linalg.vector_norm(bank.read(r) - v)) - PIN_RADIUS) < 1e-16
    assert PIN_RADIUS == 0.0156097412109375


def test_a_value_that_is_read_well_already_is_pinned_where_it_is_read():
    bank = bank_with()
    r, _ = offer(0)
    v = bank.read(r) + 1e-3
    before = bank.physical()
    assert bank.boundary(r, v) == [None]
    assert (bank.physical() - before).abs().max() < 1e-15


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reason", REASONS)
def test_each_refusal_leaves_the_digest_unchanged(reason, dtype):
    bank = bank_with(dtype=dtype, slots=3)
    for seed in range(3 if reason == "full" else 2):
        assert bank.boundary(*offer(seed)) == [None]
    r, v = offer(9)
    if reason == "invalid":
        r = r * 1.01
    elif reason == "gram":
        r = torch.from_numpy(bank.addresses()[0][:1])
    elif reason == "norm":
        v = 100 * v
    elif reason == "verify":
        bank._state.targets[0, 0] += 1.0
    before = bank.digest()
    assert bank.boundary(r, v) == [reason]
    assert bank.digest() == before


@pytest.mark.parametrize("where", ["key", "value"])
def test_an_offer_that_is_not_finite_is_invalid(where):
    bank = bank_with()
    r, v = offer(0)
    (r if where == "key" else v)[0, 3] = torch.nan
    before = bank.digest()
    assert bank.boundary(r, v) == ["invalid"]
    assert bank.digest() == before


def test_banks_are_decided_one_by_one_and_an_absent_offer_is_none():
    bank = bank_with(4)
    r, v = offer(0, 4)
    r[2] = 0.1 * r[2]
    r[3, 0] = torch.inf
    before = bank.digest()
    assert bank.boundary([None, r[1], r[2], r[3]], [None, v[1], v[2], v[3]]) == ["none", None, "gram", "invalid"]
    assert [a == b for a, b in zip(bank.digest(), before, strict=True)] == [True, False, True, True]
    assert bank.boundary() == ["none"] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_expiry_keeps_the_matrix_and_the_other_reads(dtype):
    bank = bank_with(dtype=dtype, horizon=32)
    r, v = offer(0)
    bank.boundary(r, v)
    bank.run(*stream(1, 16, D_K, D_V, 2, dtype))
    bank.boundary(*offer(1))
    bank.segment(*stream(1, 16, D_K, D_V, 3, dtype))
    before, pins = bank.physical(), bank.pins()[0][1]
    assert bank.boundary() == ["none"]
    gap = 2e-7 if dtype == torch.float32 else 1e-15
    assert (bank.physical() - before).abs().max() < gap
    assert len(bank.addresses()[0]) == 1
    assert np.abs(bank.addresses()[0] @ bank.physical()[0].double().numpy() - pins).max() < gap
    assert abs(float(torch.linalg.vector_norm(bank.read(r.to(dtype)) - v)) - PIN_RADIUS) < 1e-6


@pytest.mark.parametrize("reason", ["invalid", "gram", "norm"])
def test_expiry_stays_when_the_admission_beside_it_is_refused(reason):
    bank = bank_with(horizon=16)
    bank.boundary(*offer(0))
    bank.segment(*stream(1, 16, D_K, D_V, 2))
    before = bank.physical()
    r, v = offer(1)
    r, v = {"invalid": (2 * r, v), "gram": (0.4 * r, v), "norm": (r, 100 * v)}[reason]
    assert bank.boundary(r, v) == [reason]
    assert bank.addresses()[0].shape == (0, D_K)
    assert (bank.physical() - before).abs().max() < 1e-15


def test_a_full_register_takes_an_offer_again_once_a_protection_has_ended():
    bank = bank_with(slots=1, horizon=16)
    assert bank.boundary(*offer(0)) == [None]
    assert bank.boundary(*offer(1)) == ["full"]
    bank.segment(*stream(1, 16, D_K, D_V, 2))
    assert bank.boundary(*offer(1)) == [None]
    assert np.array_equal(bank.addresses()[0], offer(1)[0].numpy())


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_planted_in_inactive_slots_reach_nothing(number):
    clean, planted = bank_with(2), bank_with(2)
    for bank in (clean, planted):
        bank.boundary(*offer(0, 2))
    state = planted._state
    state.basis[:, :, 2:], state.addresses[:, :, 2:] = number, number
    state.pinned[:, 2:], state.pins[:, 2:], state.targets[:, 2:] = number, number, number
    for bank in (clean, planted):
        bank.run(*stream(2, 16, D_K, D_V, 2))
        assert bank.boundary(*offer(1, 2)) == [None, None]
        bank.step(*(part[:, 0] for part in stream(2, 1, D_K, D_V, 4)))
    assert clean.digest() == planted.digest()
    assert torch.isfinite(planted.read(offer(2, 2)[0])).all()


@pytest.mark.parametrize("name", ["kind", "clock", "sizes", "targets", "complement", "shape", "dtype"])
def test_a_state_that_no_such_bank_can_have_is_refused(name):
    bank = bank_with(2)
    bank.boundary(*offer(0, 2))
    state = bank.to_state()
    arrays = state["arrays"]
    if name in {"kind", "clock"}:
        state[name] = "svdd" if name == "kind" else -1
    elif name == "sizes":
        state["sizes"]["d_k"] = D_K + 1
    elif name == "dtype":
        state["dtype"] = "torch.float32"
    elif name == "shape":
        arrays["pins"] = arrays["pins"][:, :1]
    else:
        arrays[name][0] += 1.0 if name == "targets" else 1e3
    with pytest.raises(NC01Refused) as refused:
        NC01Bank.from_state(state)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_goes_on_bit_for_bit(dtype):
    bank = bank_with(2, dtype)
    bank.boundary(*offer(0, 2))
    again = NC01Bank.from_state(bank.to_state())
    assert again.digest() == bank.digest()
    for one in (bank, again):
        one.segment(*stream(2, 16, D_K, D_V, 5, dtype))
        one.boundary(*offer(1, 2))
    assert again.digest() == bank.digest()


@pytest.mark.parametrize(
    "options", [{"banks": 0}, {"slots": 0}, {"dtype": torch.float16}, {"guard": "none"}, {"device": "cuda:99"}]
)
def test_impossible_sizes_types_and_devices_are_refused(options):
    with pytest.raises(NC01Refused):
        NC01Bank(**({"banks": 1} | options))
