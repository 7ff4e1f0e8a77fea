from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from evaluation.retention import CHANNELS, EVENT_CHANNELS, SCORES_SCHEMA, StayTokens
from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.run.states import read_states, write_states
from flows.settings import Settings, load_settings
from flows.steps import summarise
from flows.steps.memories import (
    MEMORIES,
    fit_features,
    read_features,
    selectors,
    stream_nc01,
    stream_vla,
)
from flows.steps.stream import STREAM_SCHEMA, TALLY, streaming_rows, tally
from memory.features import VitalFeatures
from memory.nc01 import ICU, NC01Bank
from memory.vla import VLAMemory

SETTINGS = Settings.model_validate({"directions": 16, "bootstrap_draws": 20})


def a_stay(hours: int = 120, stay: int = 7, patient: int = 1, seed: int = 0) -> StayTokens:
    keys = np.round(np.cumsum(np.random.default_rng(seed).normal(size=(hours, 6)), axis=0) / 4, 1)
    nothing = np.zeros((hours, len(EVENT_CHANNELS)), dtype=np.bool_)
    measured = np.ones((hours, len(CHANNELS)), dtype=np.bool_)
    return StayTokens(stay, patient, np.arange(2, hours + 2), keys, nothing, measured, keys * 10)


@pytest.fixture(scope="module")
def features() -> VitalFeatures:
    stay = a_stay(200, seed=5)
    return VitalFeatures.fit(stay.keys[:, selectors(SETTINGS)], stay.hours, stay.keys, d_k=16, seed=0)


def loaded(name: str, state: dict[str, object]) -> list[str]:
    """The digest of a memory loaded from its state."""
    if name == "vla":
        return [VLAMemory.from_state(state).digest()]
    return NC01Bank.from_state(state).digest()


@pytest.mark.parametrize("name", ["vla", "nc01"])
def test_states_come_back_from_the_disk_with_the_digest_of_the_memory(
    name: str, features: VitalFeatures, tmp_path: Path
) -> None:
    stays = [a_stay(stay=7), a_stay(60, stay=8, seed=1)]
    states = {str(s.stay_id): MEMORIES[name](s, s.keys, SETTINGS, features).state for s in stays}
    write_states(tmp_path / "states", states)
    again = read_states(tmp_path / "states")
    for stay, state in states.items():
        assert loaded(name, again[stay]) == loaded(name, state)


@pytest.mark.parametrize("name", ["svdd", "vla", "nc01"])
def test_a_stay_ends_alike_whatever_was_streamed_before_it(name: str, features: VitalFeatures) -> None:
    first = MEMORIES[name](a_stay(), a_stay().keys, SETTINGS, features)
    MEMORIES[name](a_stay(90, seed=3), a_stay(90, seed=3).keys, SETTINGS, features)
    again = MEMORIES[name](a_stay(), a_stay().keys, SETTINGS, features)
    assert again.counts == first.counts
    assert again.worst == first.worst
    assert again.kept == first.kept


def test_vla_reads_the_ridge_fit_of_the_stay(features: VitalFeatures) -> None:
    stay = a_stay()
    end = stream_vla(stay, stay.keys, SETTINGS, features)
    keys, values = features.keys(stay.keys[:, selectors(SETTINGS)], stay.hours), features.scaled(stay.keys)
    fit = values.T @ keys @ np.linalg.inv(1e-3 * np.eye(16) + keys.T @ keys)
    read = np.asarray(VLAMemory.from_state(end.state).read(torch.from_numpy(keys)))
    assert np.abs(read - keys @ fit.T).max() < 1e-3  # tokens are rounded to 2^-20 and divided by lam0 = 1e-3
    assert end.counts["written"] == len(stay.hours)


def test_unit_gain_is_streamed_without_a_claim_of_a_ridge_fit(features: VitalFeatures) -> None:
    stay = a_stay()
    unit = SETTINGS.model_copy(update={"vla_gain": "unit"})
    end = stream_vla(stay, stay.keys, unit, features)
    assert end.worst == {}
    assert loaded("vla", end.state) != loaded("vla", stream_vla(stay, stay.keys, SETTINGS, features).state)


def test_protected_hours_are_those_whose_reads_nc01_keeps(features: VitalFeatures) -> None:
    stay = a_stay(150)
    end = stream_nc01(stay, stay.keys, SETTINGS, features)
    assert end.kept
    assert set(end.kept) <= set(stay.hours.tolist())
    bank = NC01Bank.from_state(end.state)
    assert len(bank.addresses()[0]) == len(end.kept) == end.counts["protected"]
    held = np.isin(stay.hours, end.kept)
    keys = features.keys(stay.keys[held][:, selectors(SETTINGS)], stay.hours[held])
    read = bank.read(torch.from_numpy(keys)[None])[0].numpy()
    assert np.linalg.norm(read - features.scaled(stay.keys)[held], axis=1).max() < 1 / 32
    assert (min(end.kept), ICU["cadence"]) >= (2, 12)


def test_the_held_out_channel_is_in_no_key(features: VitalFeatures) -> None:
    stay = a_stay()
    spoilt = stay.keys.copy()
    spoilt[:, CHANNELS.index("spo2")] += 1.0
    columns = selectors(SETTINGS)
    assert np.array_equal(stay.keys[:, columns], spoilt[:, columns])
    assert selectors(SETTINGS.model_copy(update={"held_out": "hr"})) == [1, 2, 3, 4, 5]


def a_cohort(layout: RunLayout, split: str) -> None:
    stay = a_stay(50)
    layout.cohort.joinpath("hourly", "bucket=00").mkdir(parents=True)
    pl.DataFrame({"stay_id": [7], "split": [split]}).write_parquet(layout.cohort / "stays.parquet")
    columns = {f"{channel}_z": stay.keys[:, n] for n, channel in enumerate(CHANNELS)}
    rows = pl.DataFrame({"stay_id": np.full(50, 7), "hour": stay.hours, **columns})
    rows.write_parquet(layout.cohort / "hourly" / "bucket=00" / "part.parquet")


def test_features_come_from_training_patients_alone(tmp_path: Path) -> None:
    train, test = RunLayout(tmp_path / "a"), RunLayout(tmp_path / "b")
    a_cohort(train, "train")
    a_cohort(test, "test")
    fit_features(train, SETTINGS)
    found = read_features(train)
    assert found is not None
    assert found.largest == np.sqrt((a_stay(50).keys ** 2).sum(1)).max()
    with pytest.raises(FlowError, match="--memories svdd"):
        fit_features(test, SETTINGS)
    fit_features(test, SETTINGS.model_copy(update={"memories": ("svdd",)}))
    assert read_features(test) is None


def test_memories_are_any_subset_and_named_once() -> None:
    assert load_settings(flags={"memories": "nc01, svdd,nc01"}).memories == ("nc01", "svdd")
    with pytest.raises(ValueError, match="memories"):
        load_settings(flags={"memories": "svdd,lstm"})


def counted(place: Path, stays: list[StayTokens], features: VitalFeatures) -> None:
    """Tables of counts of a study with nc01 alone."""
    (place / TALLY).mkdir(parents=True)
    (place / "fixed-context").mkdir()
    frames = [tally("nc01", s, stream_nc01(s, s.keys, SETTINGS, features)) for s in stays]
    pl.concat(frames).write_parquet(place / TALLY / "bucket=00.parquet")
    pl.DataFrame(schema=SCORES_SCHEMA).write_parquet(place / "fixed-context" / "bucket=00.parquet")


def test_results_after_rows_are_taken_out_of_the_counts_are_those_of_a_study_without_them(
    features: VitalFeatures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (summarise._retention, summarise._streaming)  # whose counts are here
    monkeypatch.setattr(summarise, "RESULTS", made)
    settings = SETTINGS.model_copy(update={"memories": ("nc01",)})
    stays = [a_stay(80 + 10 * n, stay=n, patient=n // 2, seed=n) for n in range(4)]
    (tmp_path / "coverage.json").write_text("[]")
    counted(tmp_path / "all", stays, features)
    counted(tmp_path / "rest", stays[1:], features)
    table = tmp_path / "all" / TALLY / "bucket=00.parquet"
    pl.read_parquet(table).filter(pl.col("stay_id") != 0).write_parquet(table)
    after, without = (summarise.result_tables(tmp_path, tmp_path / name, settings) for name in ("all", "rest"))
    assert after["streaming"] == without["streaming"]
    assert after["streaming"][0]["stays"] == 3
    summarise.write_results(tmp_path, tmp_path / "all", settings, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "streaming.json").read_text())["rows"] == without["streaming"]


def test_a_memory_without_a_stay_is_a_row_of_nothing() -> None:
    (row,) = streaming_rows(["svdd"], SETTINGS, pl.DataFrame(schema=STREAM_SCHEMA))
    assert (row["stays"], row["patients"], row["bound"]) == (0, 0, None)
