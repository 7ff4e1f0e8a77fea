"""The protected-read campaign at small size: what must hold at any size holds, and its parts measure what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evaluation.campaigns import nc01_hard, nc01_local, run_campaign
from evaluation.campaigns.nc01_cost import counted, extra_operations
from evaluation.campaigns.nc01_streams import REGIMES, out_of_domain, regimes, rotated, stressed
from memory.nc01 import NC01Bank, NC01Refused
from memory.nc01.limits import ALPHA_MAX


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def rows():
    return {row["quantity"]: row for row in run_campaign("nc01")["rows"]}


@pytest.mark.parametrize(
    "quantity",
    [
        "retention error, float64",
        "retention error, float32",
        "admission error, float64",
        "admission error, float32",
        "drift of a protected read, float64",
        "drift of a protected read, float32, segments",
        "tokens outside the domain",
        "stress: norm",
        "decisions that differ by path",
        "reads, segment against sequential",
        "matrix, segment against sequential",
        "from zero: breaches",
        "hard fp32 admissions over 1/64",
        "worst hard fp32 admission error",
        "variational form",
        "read correction under active guard",
        "extra operations a token",
    ],
)
def test_claims_that_hold_at_any_size_are_reproduced_at_the_small_one(rows, quantity) -> None:
    assert rows[quantity]["status"] == "reproduced"


def test_counts_of_the_published_size_are_not_claimed_at_the_small_one(rows) -> None:
    assert rows["transitions"]["status"] == "not reproduced"
    assert rows["from zero: admissions"]["status"] == "not reproduced"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_generator_leaves_the_domain_and_the_bank_agrees(dtype) -> None:
    for stream in (regimes(64, 1, 5, dtype), stressed(7, 64, 5, dtype)):
        assert out_of_domain(stream) == 0
        NC01Bank(7, dtype=dtype).segment(*stream)


@pytest.mark.parametrize("fault", ["key", "alpha", "beta", "value"])
def test_the_audit_counts_what_the_bank_refuses(fault) -> None:
    k, v, alpha, beta = regimes(64, 1, 5, torch.float64)
    if fault == "key":
        k[0, 3] *= 1.01
    elif fault == "alpha":
        alpha[0, 3] = (1 + ALPHA_MAX) / 2
    elif fault == "beta":
        beta[0, 3] = -0.1
    else:
        v[0, 3, 0] = torch.nan
    assert out_of_domain((k, v, alpha, beta)) == 1
    with pytest.raises(NC01Refused):
        NC01Bank(len(REGIMES)).segment(k, v, alpha, beta)


def test_rotated_keys_keep_norms_and_the_product_depends_on_the_distance_alone() -> None:
    rng = np.random.default_rng(0)
    pair = rng.standard_normal((2, 128))
    left, right = (rotated(np.tile(row, (50, 1))) for row in pair)
    assert np.allclose(np.linalg.norm(left, axis=1), np.linalg.norm(pair[0]))
    products = [left[t] @ right[t + 7] for t in range(40)]
    assert np.ptp(products) < 1e-12


def test_hard_states_are_hard_and_the_unverified_form_misses_there() -> None:
    bank, offer, value = nc01_hard.hard_state(40, 5, np.random.default_rng(1))
    assert torch.linalg.vector_norm(bank.physical(), dim=(1, 2)).min() > 63.5
    assert float(nc01_hard.textbook_misses(bank, offer, value).max()) > 1 / 64


def test_operations_are_counted_as_multiplications_and_additions() -> None:
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    assert counted(lambda: a @ b) == 2 * 3 * 4 * 5
    assert counted(lambda: a * 2 + a) == 24
    write, read = extra_operations(8)
    # two passes of h = Q'k and p = k - Q h, y = Y'h: five products of 128 x 8, and what elementwise work they need
    assert 5 * 2 * 128 * 8 < write < 1.3 * 5 * 2 * 128 * 8
    assert read == 2 * 2 * 128 * 8


def test_local_checks_notice_a_wrong_transition(monkeypatch) -> None:
    plain = nc01_local.NC01Bank.step

    def off(self, k, v, alpha, beta):
        plain(self, k, v, alpha * (1 - 1e-9), beta)

    monkeypatch.setattr(nc01_local.NC01Bank, "step", off)
    found = {row.quantity: row.status for row in nc01_local.checks(3, 0).rows}
    assert found["variational form"] == "not reproduced"
