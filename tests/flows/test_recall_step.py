"""The recall step of a study: counts a bucket, a table that follows from them, cohorts that cannot be asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from evaluation.net_recall import COUNTS_SCHEMA
from evaluation.retention import CHANNELS, EVENT_CHANNELS
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import Manifest, write_manifest
from flows.settings import Settings, load_settings
from flows.steps.recall import prepare_recall, recall_bucket, recall_path, recall_plan, recall_table

SETTINGS = Settings.model_validate({"directions": 8, "bootstrap_draws": 50, "recall_events": 2})


def hourly(stay: int, hours: int, seed: int) -> pl.DataFrame:
    keys = np.cumsum(np.random.default_rng(seed).normal(size=(hours, 6)), axis=0) / 3
    columns = {name: 50.0 + keys[:, i] for i, name in enumerate(CHANNELS)}
    columns |= {f"{name}_z": keys[:, i] for i, name in enumerate(CHANNELS)}
    columns |= {f"{name}_measured": np.ones(hours, dtype=np.bool_) for name in CHANNELS}
    columns |= {f"{name}_event": keys[:, CHANNELS.index(name)] > 0.3 for name in EVENT_CHANNELS}
    return pl.DataFrame({"stay_id": [stay] * hours, "hour": np.arange(hours), **columns})


def cohort(root: Path, split: str = "train") -> RunLayout:
    """Three stays of two patients in two buckets."""
    layout = RunLayout(root)
    parts = {0: [hourly(11, 60, 1), hourly(12, 80, 2)], 1: [hourly(13, 120, 3)]}
    for bucket, frames in parts.items():
        place = layout.cohort / "hourly" / bucket_name(bucket)
        place.mkdir(parents=True)
        pl.concat(frames).write_parquet(place / "part.parquet")
    stays = {"stay_id": [11, 12, 13], "subject_id": [1, 1, 2], "split": [split] * 3}
    pl.DataFrame(stays).write_parquet(layout.cohort / "stays.parquet")
    write_manifest(layout, Manifest(settings={}, source={}, versions={}))
    return layout


def measured(layout: RunLayout, settings: Settings = SETTINGS) -> pl.DataFrame:
    prepare_recall(layout, settings)
    assert [recall_bucket(layout, settings, bucket) for bucket in (0, 1)] == [140, 120]
    return pl.concat([pl.read_parquet(recall_path(layout, bucket)) for bucket in (0, 1)])


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> RunLayout:
    made = cohort(tmp_path_factory.mktemp("run"))
    measured(made)
    return made


def test_counts_hold_every_stay_once_a_row_in_the_declared_columns(layout: RunLayout) -> None:
    counts = measured(layout)
    assert counts.columns == list(COUNTS_SCHEMA)
    assert set(counts["stay_id"]) == {11, 12, 13}
    assert counts["asked"].max() == 2
    assert not counts.select("stay_id", "memory", "size", "delay", "tolerance").is_duplicated().any()


def test_the_same_cohort_gives_the_same_bytes(layout: RunLayout, tmp_path: Path) -> None:
    other = cohort(tmp_path / "again")
    measured(other)
    for bucket in (0, 1):
        assert recall_path(other, bucket).read_bytes() == recall_path(layout, bucket).read_bytes()


def test_a_finished_bucket_is_not_measured_again(layout: RunLayout) -> None:
    before = recall_path(layout, 0).stat().st_mtime_ns
    measured(layout)
    assert recall_path(layout, 0).stat().st_mtime_ns == before


def test_rows_without_a_patient_are_those_of_counts_without_the_patient(layout: RunLayout) -> None:
    counts = measured(layout)
    rest = recall_table(counts.filter(pl.col("subject_id") != 1), SETTINGS, [])
    own = recall_table(pl.read_parquet(recall_path(layout, 1)), SETTINGS, [])
    assert rest == own
    assert {row["patients"] for row in rest if row["net"] is not None} == {1}


@pytest.mark.parametrize("spoil", ["no training patient", "hours all alike"])
def test_hours_that_cannot_be_fitted_leave_net_recall_undefined_with_a_reason(spoil: str, tmp_path: Path) -> None:
    layout = cohort(tmp_path, split="test" if spoil == "no training patient" else "train")
    if spoil == "hours all alike":
        for file in layout.cohort.glob("hourly/*/*.parquet"):
            frame = pl.read_parquet(file)
            frame.with_columns(pl.lit(0.0).alias(f"{name}_z") for name in CHANNELS).with_columns(
                pl.lit(0).alias("hour")
            ).write_parquet(file)
    counts = measured(layout)
    assert counts.height == 0
    rows = recall_table(counts, SETTINGS, [])
    assert {row["net"] for row in rows} == {None}
    assert all(row["reason"] for row in rows)


def test_the_held_out_channel_of_the_study_is_the_one_asked_for() -> None:
    assert recall_plan(SETTINGS).channel == "spo2"
    assert recall_plan(Settings.model_validate({"held_out": "rr"})).channel == "rr"
    assert load_settings(quick=True).recall_events < Settings().recall_events
