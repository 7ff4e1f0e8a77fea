"""The margin factor in lock-step against the Gram matrix it stands for, where members are nearly dependent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from memory.svdd.batch.arithmetic import ordered_sum
from memory.svdd.batch.factor import backward, drop, factorise, forward

MEMBERS, ROWS, SIGMA = 9, 6, 1.5


def differences(keys):
    """H_ij = k_ij - k_i,ref - k_ref,j of keys (B, m, d), the reference first."""
    k = torch.expm1(-((keys[:, :, None] - keys[:, None]) ** 2).sum(-1) / SIGMA**2)
    return k - k[:, :, :1] - k[:, :1, :]


def clustered(rng):
    """Three clusters whose members lie 1e-7 to 1e-3 apart."""
    spread = 10.0 ** rng.uniform(-7.0, -3.0, size=(ROWS, 1, 1))
    keys = np.repeat(rng.normal(size=(ROWS, 3, 2)), 3, axis=1) + spread * rng.normal(size=(ROWS, MEMBERS, 2))
    return torch.from_numpy(keys[:, rng.permutation(MEMBERS)])


def product(V, D, count):
    """V D V' without the reference."""
    unit = V[:, 1:count, 1:count] + torch.eye(count - 1, dtype=torch.float64)
    return unit * D[:, None, 1:count] @ unit.mT


def full(keys):
    """Factor, members and sizes of rows whose members are all independent, and which rows those are."""
    m = torch.full((len(keys),), MEMBERS)
    V, D, aside = factorise(differences(keys), m, (4.0 + MEMBERS) * 2.0**-51 * torch.ones(len(keys)))
    return V, D, torch.arange(MEMBERS).expand(len(keys), -1).clone(), m, ~aside.any(1)


@pytest.mark.parametrize("seed", range(30))
def test_dropping_members_one_after_another_leaves_the_factor_of_the_rest(seed):
    rng = np.random.default_rng(seed)
    keys = clustered(rng)
    V, D, members, m, sound = full(keys)
    for left in range(MEMBERS - 1, 3, -1):
        V, D, members, m = drop(V, D, members, m, torch.from_numpy(rng.integers(0, left + 1, size=ROWS)), 0, left + 1)
        held = keys.gather(1, members[:, :left, None].expand(-1, -1, 2))
        error = (product(V, D, left) - differences(held)[:, 1:, 1:]).abs().amax((1, 2))
        assert (error[sound] < 1e-14).all()
        assert (V[:, left:] == 0.0).all()
        assert (D[:, left:] == 1.0).all()


def test_a_member_in_the_affine_hull_of_those_before_it_is_set_aside():
    keys = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]], dtype=torch.float64)
    V, D, aside = factorise(differences(keys), torch.tensor([5]), torch.tensor([1e-14]))
    assert aside.tolist() == [[False, False, False, True, False]]
    kept = torch.tensor([0, 1, 2, 4])
    unit = V[0][kept][:, kept][1:, 1:] + torch.eye(3, dtype=torch.float64)
    rebuilt = unit * D[0][kept][1:] @ unit.T
    torch.testing.assert_close(rebuilt, differences(keys[:, kept])[0, 1:, 1:], rtol=0, atol=1e-15)


def test_forward_and_backward_solves_invert_the_unit_triangle():
    V = full(torch.from_numpy(np.random.default_rng(0).normal(size=(ROWS, MEMBERS, 3))))[0]
    h = torch.from_numpy(np.random.default_rng(1).normal(size=(ROWS, MEMBERS)))
    h[:, 0] = 0.0
    unit = V + torch.eye(MEMBERS, dtype=torch.float64)
    torch.testing.assert_close((unit @ forward(V, h, MEMBERS)[:, :, None])[:, :, 0], h, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close((unit.mT @ backward(V, h, MEMBERS)[:, :, None])[:, :, 0], h, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("width", [0, 1, 2, 3, 7, 8, 13, 64, 100])
def test_trailing_zeros_change_no_bit_of_a_sum(width):
    x = torch.from_numpy(np.random.default_rng(width).normal(size=(50, width)))
    padded = torch.nn.functional.pad(x, (0, 29))
    assert torch.equal(ordered_sum(padded), ordered_sum(x))
    torch.testing.assert_close(ordered_sum(x), x.sum(-1), rtol=1e-12, atol=1e-12)
