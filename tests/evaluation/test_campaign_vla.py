"""The VLA and recall campaigns at small size, and the model and drift behind them against slow forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evaluation.campaigns import run_campaign
from evaluation.campaigns.recall import MEMORIES, at_load
from evaluation.campaigns.vla_drift import KINDS, maintained
from evaluation.campaigns.vla_model import HEAD, trace


@pytest.fixture(scope="module")
def rows():
    return {row["quantity"]: row for row in run_campaign("vla")["rows"]}


def test_the_jacobian_claim_is_refuted_beside_its_closed_form(rows) -> None:
    assert rows["largest Jacobian norm"]["status"] == "refuted"
    assert rows["largest Jacobian norm"]["ours"] > 1.05
    assert rows["closed form of the Jacobian norm less a solver's"]["status"] == "reproduced"


def test_what_needs_training_on_a_device_is_not_attempted(rows) -> None:
    missing = [row for row in rows.values() if row["status"] == "not attempted"]
    assert sorted(row["published"] for row in missing) == [14, 43_000]


@pytest.mark.parametrize("name", ["linear", "delta rule", "VLA unit, u = k", "VLA ridge, lam0 1e-3"])
def test_read_errors_on_random_keys_are_those_of_the_table(rows, name) -> None:
    assert rows[f"mean relative read error, {name}"]["status"] == "reproduced"


def test_the_penalty_inverse_starts_at_the_published_norm() -> None:
    found = trace("vla", 30, 1, 0)
    assert found.penalty_first == pytest.approx([56.2, 56.2], abs=0.1)
    assert found.penalty_last[0] < found.penalty_first[0]


def test_linear_norms_do_not_depend_on_the_batch_of_seeds_being_run_twice() -> None:
    one, other = (trace("linear", 40, 2, 3).norm for _ in range(2))
    assert torch.equal(one, other)


def test_drift_is_measured_against_the_inverse_and_the_refresh_removes_it() -> None:
    records = {(row["upkeep"], row["token"]): row for row in maintained(2_000, HEAD**-0.5, 0)}
    plain, refreshed, nudged = (records[KINDS[kind], 2_000]["error"] for kind in (0, 2, 3))
    assert refreshed < 1e-7 < plain < 1e-5
    assert nudged > 0.01
    assert all(row["asymmetry"] == 0.0 for row in records.values())


def test_recall_against_load_falls_and_ridge_reads_best_below_the_width() -> None:
    few, many = ({row["memory"]: row for row in at_load(pairs, 10, 0)} for pairs in (8, 48))
    assert tuple(few) == MEMORIES
    for name in ("delta", "gated delta", "VLA unit", "NC01"):
        assert few[name]["recall"] > many[name]["recall"]
        assert few["VLA ridge"]["relative_error"] < few[name]["relative_error"] / 10
    assert all(0 <= row["recall"] <= 1 and np.isfinite(row["relative_error"]) for row in few.values())


def test_published_recall_stands_beside_ours_at_the_same_load() -> None:
    claims = [row for row in run_campaign("recall")["rows"] if row["quantity"].startswith("recall of")]
    assert {row["quantity"] for row in claims} >= {"recall of 4 pairs, VLA unit", "recall of 24 pairs, delta"}
    assert all(row["published"] is not None and row["reason"] for row in claims)
