"""One token of a protected-read bank against the variational problem it solves and against the physical matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nc01_reference import Physical, stream, unit

from memory.nc01 import NC01Bank, NC01Refused
from memory.nc01.limits import ALPHA_MAX, RHO
from memory.nc01.transition import write_room


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def protected_bank(count, seed, banks=1, **options):
    """A bank (24 x 10) with content and `count` protected reads."""
    bank = NC01Bank(banks, 24, 10, slots=8, cadence=64, horizon=10**6, **options)
    rng = np.random.default_rng([seed, 1])
    bank.run(*stream(banks, 8, 24, 10, seed, bank.dtype))
    for _ in range(count):
        r, v = unit(rng.standard_normal((banks, 24)) + 0.2), unit(rng.standard_normal((banks, 10)))
        assert bank.boundary(r, v) == [None] * banks
    return bank


def kkt(B, K, U, k, v, alpha, beta):
    """The minimiser of ||B~ - B0||^2 + ||(B~ - B0)' k||^2 / rho with K' B~ = U, by one dense solve."""
    before = alpha * (B - beta * np.outer(k, k @ B)) + beta * np.outer(k, v)
    d, m = K.shape
    system = np.block([[np.eye(d) + np.outer(k, k) / RHO, K], [K.T, np.zeros((m, m))]])
    right = np.concatenate([np.zeros_like(B), U - K.T @ before])
    return before + np.linalg.solve(system, right)[:d]


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("seed", range(4))
def test_an_unguarded_token_solves_the_variational_problem(count, seed):
    bank = protected_bank(count, seed)
    B, K, U = bank.physical()[0].numpy(), bank.addresses()[0].T, bank.pins()[0]
    rng = np.random.default_rng(seed)
    k, v, alpha, beta = unit(rng.standard_normal(24)) * 0.9, 0.1 * rng.standard_normal(10), 0.97, rng.uniform()
    bank.step(*(torch.tensor(part, dtype=torch.float64)[None] for part in (k, v, alpha, beta)))
    assert K.shape[1] == count
    assert np.abs(bank.physical()[0].numpy() - kkt(B, K, U, k, v, alpha, beta)).max() < 2e-14
    assert np.abs(K.T @ bank.physical()[0].numpy() - U).max(initial=0.0) < 5e-15


def test_a_stream_with_boundaries_and_expiries_follows_the_physical_matrix():
    bank, slow = NC01Bank(1, 24, 10, slots=4, cadence=16, horizon=64), Physical(24, 10, 64)
    k, v, alpha, beta = stream(1, 400, 24, 10, 3)
    v *= 20
    for t in range(400):
        slow.step(*(part[0, t].numpy() for part in (k, v, alpha, beta)))
    bank.run(k, v, alpha, beta)
    assert np.abs(bank.physical()[0].numpy() - slow.B).max() < 1e-12
    for t in range(0, 384, 16):
        for i in range(t, t + 16):
            slow.step(*(part[0, i].numpy() for part in (k, v, alpha, beta)))
        bank.segment(*(part[:, t : t + 16] for part in (k, v, alpha, beta)))
        slow.boundary(k[0, t].numpy() if t % 5 else k[0, t + 1].numpy(), 0.5 * v[0, t].numpy() / 20)
        index = t if t % 5 else t + 1
        assert bank.boundary(k[:, index], 0.5 * v[:, t] / 20) == [None]
        assert np.abs(bank.physical()[0].numpy() - slow.B).max() < 1e-12
        assert len(bank.addresses()[0]) == len(slow.held)


@pytest.mark.parametrize("guard", ["sharp", "simple"])
def test_no_matrix_within_the_radius_leaves_it_and_the_sharp_room_is_used_up(guard):
    rng = np.random.default_rng(0)
    alpha, strength = rng.uniform(0, ALPHA_MAX, 2000), rng.uniform(0, 1, 2000)
    radius, eta = 63.0, 1 - strength
    room = write_room(torch.tensor([[radius]]).double(), torch.tensor(alpha), torch.tensor(strength), guard)[0].numpy()
    s = np.linspace(0, radius, 4001)[:, None]
    worst = np.sqrt((alpha**2 * (radius**2 - s**2) + (alpha * eta * s + room) ** 2).max(0)) / radius
    assert worst.max() <= 1 + 1e-12
    assert (worst.min() > 1 - 1e-6) == (guard == "sharp")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("guard", ["sharp", "simple"])
def test_the_norm_stays_within_the_radius_under_a_sustained_attack(dtype, guard):
    bank = protected_bank(4, 1, dtype=dtype, guard=guard)
    k, v, alpha, beta = stream(1, 8192, 24, 10, 9, dtype)
    k[:], v[:], alpha[:], beta[:] = k[:, :1], 1e6 * v[:, :1], ALPHA_MAX, 1e-3
    alpha[0, 0], beta[0, 0] = 0.0, 1.0
    largest = 0.0
    for t in range(0, 8192, 64):
        bank.segment(*(part[:, t : t + 64] for part in (k, v, alpha, beta)))
        largest = max(largest, float(torch.linalg.vector_norm(bank.physical().double())))
    assert 60.0 < largest <= 64.0


def test_the_sharp_guard_lets_more_in_than_the_simple_one():
    norms = {}
    for guard in ("sharp", "simple"):
        bank = protected_bank(4, 1, guard=guard)
        k, v, alpha, beta = stream(1, 640, 24, 10, 9)
        alpha[:] = 0.999
        bank.run(k, 1e3 * v, alpha, beta)
        norms[guard] = float(torch.linalg.vector_norm(bank.physical()))
    assert norms["sharp"] > 3 * norms["simple"]


@pytest.mark.parametrize("guarded", [False, True])
def test_the_read_at_the_written_key_follows_its_correction(guarded):
    bank = protected_bank(5, 2)
    rng = np.random.default_rng(5)
    k, v = unit(rng.standard_normal(24)), rng.standard_normal(10) * (1e5 if guarded else 1)
    K, U = bank.addresses()[0].T, bank.pins()[0]
    B = bank.physical()[0].numpy()
    H = np.linalg.inv(K.T @ K)
    inside, y = K @ H @ K.T @ k, U.T @ H @ K.T @ k
    p, X = k - inside, B - K @ H @ U
    bank.step(*(torch.tensor(part, dtype=torch.float64)[None] for part in (k, v, 0.9, 1.0)))
    tau2 = p @ p
    bh = 1 + inside @ inside / (tau2 + RHO)
    b = bh * v - (0.9 + (0.1 + 0.9 * (inside @ inside)) / (tau2 + RHO)) * y
    written = bank.physical()[0].numpy().T @ k - y - 0.9 * (1 - bh * tau2) * X.T @ p
    sigma = written @ b / (tau2 * (b @ b))
    assert np.abs(written - sigma * tau2 * b).max() < (1e-9 if guarded else 1e-13)
    assert (sigma < 0.9) == guarded
    assert guarded or abs(sigma - 1) < 1e-13


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 1.001),
        ("k", float("nan")),
        ("v", float("inf")),
        ("v", 1e200),
        ("alpha", -0.001),
        ("alpha", 1.0),
        ("alpha", float("nan")),
        ("beta", 1.001),
        ("beta", -1.0),
    ],
)
@pytest.mark.parametrize("path", ["segment", "sequential"])
def test_a_stretch_with_one_token_outside_the_domain_is_refused_before_its_first(name, value, path):
    bank = protected_bank(2, 0, 2)
    tokens = dict(zip(("k", "v", "alpha", "beta"), stream(2, 9, 24, 10), strict=True))
    tokens[name][1, 8] = torch.nn.functional.one_hot(torch.tensor(0), 24) * value if name == "k" else value
    before = bank.digest(), bank.clock
    with pytest.raises(NC01Refused, match="1 of 18 tokens"):
        bank.run(**tokens, path=path)
    assert (bank.digest(), bank.clock) == before


@pytest.mark.parametrize("change", ["dtype", "banks", "width", "long", "gates"])
def test_arrays_of_another_type_or_shape_are_refused(change):
    bank = protected_bank(2, 0, 2)
    k, v, alpha, beta = stream(2, 4, 24, 10)
    bad = {
        "dtype": (k, v.float(), alpha, beta),
        "banks": (k[:1], v, alpha, beta),
        "width": (k, v[..., :9], alpha, beta),
        "long": [part.repeat_interleave(20, 1) for part in (k, v, alpha, beta)],
        "gates": (k, v, alpha[:, :3], beta),
    }
    before = bank.digest()
    with pytest.raises(NC01Refused):
        bank.segment(*bad[change])
    assert bank.digest() == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_key_inside_the_protected_span_writes_nothing_into_the_complement(dtype):
    bank = NC01Bank(1, dtype=dtype)
    rng = np.random.default_rng(0)
    for _ in range(4):
        assert bank.boundary(unit(rng.standard_normal((1, 128))), unit(rng.standard_normal((1, 128)))) == [None]
    inside = torch.from_numpy(unit(bank.addresses()[0].sum(0, keepdims=True)) * (1 - 1e-7)).to(dtype)
    before = bank.physical()
    bank.step(
        inside, torch.full((1, 128), 1 / 12.0, dtype=dtype), torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype)
    )
    rest = torch.from_numpy(bank.to_state()["arrays"]["complement"])
    assert (rest == 0).all()
    assert (bank.physical() - before).abs().max() < 50 * torch.finfo(dtype).eps
