"""The paper's synthetic tasks: against its published values and an independent solver, with honest statuses."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation import published, synthetic_tasks
from evaluation.oracle_svdd import solve
from evaluation.synthetic_tasks import NEAR, NU, WIDTH, coefficients, distinct_keys, rows, skewed_redundancy


@pytest.fixture(scope="module")
def table():
    return {(row["task"], row["policy"]): row for row in rows(trials=120)}


@pytest.mark.parametrize("policy", ["support", "random", "recency"])
def test_skewed_redundancy_comes_out_as_published(policy, table):
    row = table["skewed redundancy", policy]
    assert row["value"] == pytest.approx(row["published"], abs=NEAR)
    assert row["status"] == "reproduced"


def test_knowing_the_queries_does_not_save_the_rare_keys(table):
    mass, random, support = (
        table["skewed redundancy", name]["value"] for name in ("oracle attention mass", "random", "support")
    )
    assert mass < random < support


def test_status_follows_from_the_distance_to_the_published_value_alone(table):
    assert len(table) == len(published.TASKS_PUBLISHED)
    for row in table.values():
        near = abs(row["value"] - row["published"]) <= NEAR
        assert row["status"] == ("reproduced" if near else "not reproduced")
    assert {row["status"] for row in table.values()} == {"reproduced", "not reproduced"}


def test_reads_follow_their_definition_on_keys_far_apart(monkeypatch):
    """Where no key is near another every kept rare key answers, so recall is the share kept."""
    monkeypatch.setattr(synthetic_tasks, "SPREAD", 40.0)
    found = skewed_redundancy(np.random.default_rng(1))
    assert found["support"] == 1.0
    assert found["recency"] == 0.0
    assert found["random"] in {n / 6 for n in range(7)}
    apart = distinct_keys(np.random.default_rng(1))
    assert (apart["gate"], apart["no gate"], apart["support fraction"]) == (1.0, 1.0, 1.0)


def test_same_seed_same_rows_and_more_draws_narrow_the_interval(table):
    again = {(row["task"], row["policy"]): row for row in rows(trials=120)}
    assert again == table
    few = {(row["task"], row["policy"]): row for row in rows(trials=20)}
    name = ("skewed redundancy", "random")
    assert few[name]["high"] - few[name]["low"] > table[name]["high"] - table[name]["low"]


def test_one_draw_has_no_interval_and_says_why():
    (row,) = [row for row in rows(trials=1) if row["policy"] == "recency"]
    assert (row["low"], row["reason"]) == (None, "fewer than two groups to resample")


def test_coefficients_are_those_of_an_independent_solver():
    keys = np.random.default_rng(2).normal(size=(30, 4))
    exact = solve(keys, 1 / (NU * 30), WIDTH)
    assert coefficients(keys) == pytest.approx([float(part) for part in exact.alpha], abs=1e-9)
