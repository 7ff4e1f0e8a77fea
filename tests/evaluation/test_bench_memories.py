"""Speed of the matrix memories, gated as ratios of processor time within one run."""

from __future__ import annotations

import pytest
import torch

from evaluation.bench_memories import PRECISIONS, STAYS, batched_vla, segments


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("precision", sorted(PRECISIONS))
def test_segments_with_their_boundary_outrun_the_loop(precision) -> None:
    row = segments(precision, 4, 0)
    assert row["loop_ratio"] > 4.0
    assert row["boundary_share_ratio"] < 0.6
    assert row["bytes_per_bank"] == {"float32": 98_376, "float64": 172_104}[precision]


@pytest.mark.parametrize("precision", sorted(PRECISIONS))
def test_stays_in_lock_step_have_twenty_times_the_token_rate_of_one(precision) -> None:
    row = batched_vla(precision, "hourly", 1, 3, 0)
    assert row["stays"] == STAYS
    assert row["one_stay_ratio"] >= 20.0
