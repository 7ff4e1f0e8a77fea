"""The bench of the support-vector memory: its gates as ratios, and that it measures what it names."""

from __future__ import annotations

import pytest

from evaluation.bench_svdd import admission, deletion, growth


@pytest.mark.parametrize("n", [200, 500])
def test_admission_is_at_least_twenty_times_a_refit_every_hour(n: int) -> None:
    row = admission(n, seed=0)
    assert row["refit_ratio"] >= 20
    assert row["forward_filled_speed_ratio"] >= 0.5
    assert row["refits_per_second"] < row["tokens_per_second"]


def test_active_deletion_is_at_least_a_hundred_times_an_interior_point_refit() -> None:
    rows = {row["kind"]: row for row in deletion(256, seed=0)}
    assert set(rows) == {"margin", "bound", "reserve"}
    assert min(rows[kind]["clarabel_ratio"] for kind in ("margin", "bound")) >= 100
    assert rows["reserve"]["seconds"] < rows["margin"]["seconds"]
    assert rows["margin"]["published_seconds"] == 0.92e-3


@pytest.mark.parametrize("stuck", [False, True])
def test_hot_locations_grow_slower_than_the_square_root_of_the_stream(stuck: bool) -> None:
    row = growth((500, 4000), stuck, seed=0)
    assert row["hot_to_root_ratio"] < 1
    assert row["hot_locations"][1] < 100
    assert row["reexamined_per_admission"][1] < 40
