"""The published protocol on real recordings, against figures counted with other code.

The figures below were measured on the MIMIC-III clinical demo with the published protocol and its solver; an exact
solver agrees within 0.002.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.spatial.distance import cdist

from cohort_sql.build import build_cohort
from cohort_sql.source import find_source
from evaluation.protocol_fixed import FixedContext
from evaluation.retention import RetentionFrames, StayTokens, evaluate_stays, stays_from_bucket
from evaluation.retention_tables import contrast_rows, retention_rows

DATA = Path(os.environ.get("ICU_MEMORY_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
CHANNELS = ("composite", "spo2")
AGREEMENT = 0.002


@pytest.fixture(scope="module")
def stays(tmp_path_factory: pytest.TempPathFactory) -> list[StayTokens]:
    root = DATA / "mimic_demo_iv"
    assert root.is_dir(), f"no recordings at {root}; set ICU_MEMORY_TEST_DATA to the folder that holds mimic_demo_iv"
    out = tmp_path_factory.mktemp("cohort")
    build_cohort(
        find_source(root),
        out / "cohort",
        preset="paper",
        stays=1500,
        seed=0,
        buckets=4,
        scratch=out / "scratch",
        threads=1,
    )
    table = pl.read_parquet(out / "cohort" / "stays.parquet")
    parts = sorted((out / "cohort" / "hourly").glob("*/*.parquet"))
    return [stay for part in parts for stay in stays_from_bucket(pl.read_parquet(part), table)]


@pytest.fixture(scope="module")
def frames(stays: list[StayTokens]) -> RetentionFrames:
    return evaluate_stays(stays, FixedContext(), CHANNELS)


@pytest.mark.parametrize(
    ("channel", "policy", "counted", "retention", "retrieval"),
    [
        ("composite", "svdd", 64, 0.688, None),
        ("composite", "density", 64, 0.092, None),
        ("composite", "recency", 64, 0.392, None),
        ("composite", "random", 64, 0.323, None),
        ("spo2", "svdd", 40, 0.497, 0.565),
        ("spo2", "density", 40, 0.178, 0.213),
        ("spo2", "recency", 40, 0.529, 0.550),
        ("spo2", "random", 40, 0.302, 0.458),
    ],
)
def test_retention_agrees_with_the_reference(frames, channel, policy, counted, retention, retrieval):
    (row,) = [
        row
        for row in retention_rows(frames.scores, FixedContext(), [channel], draws=2)
        if (row["policy"], row["events"]) == (policy, "all")
    ]
    assert row["stays"] == counted
    assert row["retention"] == pytest.approx(retention, abs=AGREEMENT)
    if retrieval is not None:
        assert row["retrieval"] == pytest.approx(retrieval, abs=AGREEMENT)


@pytest.mark.parametrize(
    ("channel", "right", "mean", "low", "high"),
    [
        ("composite", "density", 0.595, 0.505, 0.682),
        ("composite", "least-dense", -0.029, -0.052, -0.007),
        ("spo2", "density", 0.319, 0.138, 0.491),
        ("spo2", "least-dense", -0.084, -0.156, -0.027),
    ],
)
def test_paired_differences_agree_with_the_reference(frames, channel, right, mean, low, high):
    (row,) = [
        row
        for row in contrast_rows(frames.scores, FixedContext(), [channel])
        if (row["right"], row["unit"]) == (right, "stay")
    ]
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((mean, low, high), abs=AGREEMENT)


def test_at_the_same_budget_policies_keep_what_a_square_kernel_matrix_says(stays):
    for stay in stays[::4]:
        seen = stay.label("spo2").seen
        keys, kept = seen.keys, FixedContext().select(seen, stay.stay_id).kept
        sums = np.exp(-cdist(keys, keys, "sqeuclidean") / 9.0).sum(axis=1) - 1.0
        worst, k = 1e-8, len(kept["svdd"])
        for policy, ordered in (("density", -np.sort(-sums)), ("least-dense", np.sort(sums))):
            assert np.sort(sums[kept[policy]]) == pytest.approx(np.sort(ordered[:k]), abs=worst)
