"""What the simulated bodies and bedsides do: plausible enough to exercise every part of the cohort."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from simulated_source import read_table, thresholds, vitals

CHANNELS = ("hr", "sbp", "dbp", "rr", "spo2", "temp")


def hours(root: Path) -> pl.DataFrame:
    return read_table(root, "truth/hours.parquet")


def is_event(channel: str) -> pl.Expr:
    limits = thresholds().row(by_predicate=pl.col("channel") == channel, named=True)
    below = pl.col(channel) < limits["below"]
    return below if limits["above"] is None else below | (pl.col(channel) > limits["above"])


def test_between_5_and_20_percent_of_hours_cross_an_event_threshold(simulated: Path) -> None:
    events = [is_event(channel).alias(channel) for channel in thresholds()["channel"]]
    shares = hours(simulated).select(events).select(pl.all().mean(), any=pl.any_horizontal(pl.all()).mean())
    share = shares.row(0, named=True)
    assert 0.05 < share.pop("any") < 0.20
    assert all(0.01 < each < 0.15 for each in share.values())


def test_episodes_carry_most_of_the_event_hours(simulated: Path) -> None:
    event = pl.any_horizontal(*(is_event(channel) for channel in thresholds()["channel"]))
    table = hours(simulated).group_by("episode").agg(event.mean().alias("share"), pl.len())
    share = dict(table.select("episode", "share").iter_rows())
    assert set(share) == {"none", "sepsis", "respiratory", "haemorrhage", "terminal"}
    assert all(share[kind] > 5 * share["none"] for kind in share if kind != "none")


@pytest.mark.parametrize(
    ("episode", "rises", "falls"),
    [
        ("sepsis", ("hr", "rr", "temp"), ("sbp", "dbp", "spo2")),
        ("respiratory", ("hr", "rr"), ("spo2",)),
        ("haemorrhage", ("hr", "rr"), ("sbp", "dbp", "temp")),
    ],
)
def test_each_kind_of_episode_moves_its_own_vitals(
    simulated: Path, episode: str, rises: tuple[str, ...], falls: tuple[str, ...]
) -> None:
    means = hours(simulated).group_by("episode").agg(pl.col(CHANNELS).mean())
    quiet = means.row(by_predicate=pl.col("episode") == "none", named=True)
    ill = means.row(by_predicate=pl.col("episode") == episode, named=True)
    assert all(ill[channel] > quiet[channel] for channel in rises)
    assert all(ill[channel] < quiet[channel] for channel in falls)


def test_vitals_are_autocorrelated_from_hour_to_hour_and_correlated_with_each_other(simulated: Path) -> None:
    centred = hours(simulated).filter(pl.len().over("stay_id") >= 48).sort("stay_id", "hour")
    centred = centred.with_columns(pl.col(channel) - pl.col(channel).mean().over("stay_id") for channel in CHANNELS)
    lagged = [pl.corr(channel, pl.col(channel).shift(1).over("stay_id")).alias(channel) for channel in CHANNELS]
    assert all(0.7 < correlation < 0.98 for correlation in centred.select(lagged).row(0))
    pairs = centred.select(pl.corr("sbp", "dbp"), hr_rr=pl.corr("hr", "rr"), rr_spo2=pl.corr("rr", "spo2"))
    assert pairs.row(0) > (0.5, 0.0, -1.0)
    assert pairs["hr_rr"].item() > 0.2
    assert pairs["rr_spo2"].item() < -0.2


def test_temperature_peaks_in_the_afternoon_and_is_lowest_before_dawn(simulated: Path) -> None:
    stays = read_table(simulated, "truth/stays.parquet").select("stay_id", "intime")
    quiet = hours(simulated).filter(pl.col("episode") == "none").join(stays, on="stay_id")
    clock = (pl.col("intime") + pl.duration(hours=pl.col("hour"))).dt.hour()
    curve = dict(quiet.group_by(clock.alias("clock")).agg(pl.col("temp").mean()).iter_rows())
    afternoon = sum(curve[hour] for hour in (15, 16, 17, 18)) / 4
    night = sum(curve[hour] for hour in (3, 4, 5, 6)) / 4
    assert 0.25 < afternoon - night < 0.75


def test_a_faultless_reading_is_the_latent_value_of_its_elapsed_hour_plus_instrument_error(simulated: Path) -> None:
    stays = read_table(simulated, "truth/stays.parquet").select("stay_id", "intime", "outtime")
    faults = read_table(simulated, "truth/faults.parquet")
    rows = read_table(simulated, "icu/chartevents.csv.gz").filter(pl.col("itemid").is_in([220045, 223762, 220050]))
    rows = rows.join(faults, on=["stay_id", "itemid", "charttime"], how="anti").join(stays, on="stay_id")
    elapsed = (pl.col("charttime") - pl.col("intime")).dt.total_seconds() // 3600
    rows = rows.with_columns(elapsed.cast(pl.Int32).alias("hour")).join(hours(simulated), on=["stay_id", "hour"])
    for itemid, channel, error in ((220045, "hr", 1.5), (223762, "temp", 0.08), (220050, "sbp", 2.5)):
        difference = rows.filter(pl.col("itemid") == itemid).select(pl.col("valuenum") - pl.col(channel)).to_series()
        assert difference.len() > 2_000
        assert abs(difference.mean()) < 0.1 * error
        assert 0.9 * error < difference.std() < 1.25 * error


def test_the_median_stay_lasts_two_to_four_days_and_most_patients_have_one(simulated: Path) -> None:
    stays = read_table(simulated, "truth/stays.parquet")
    assert 48 <= stays["hours"].median() <= 96
    assert (stays["hours"] >= 48).mean() >= 0.40
    assert stays["hours"].max() > 500
    per_patient = stays.group_by("subject_id").len()["len"]
    assert 0.1 < (per_patient > 1).mean() < 0.5
    assert (stays.group_by("hadm_id").len()["len"] > 1).sum() > 10


def test_some_patients_die_in_intensive_care_and_some_later_in_hospital(simulated: Path) -> None:
    deaths = read_table(simulated, "hosp/admissions.csv.gz").filter(pl.col("deathtime").is_not_null())
    assert (deaths["hospital_expire_flag"] == 1).all()
    assert (deaths["deathtime"] == deaths["dischtime"]).all()
    in_unit = read_table(simulated, "truth/stays.parquet").filter(pl.col("deathtime").is_not_null())
    assert 10 < in_unit.height < deaths.height < 80
    assert (in_unit["deathtime"] <= in_unit["outtime"]).all()


def test_every_item_of_the_vitals_table_is_charted_among_distractors(simulated: Path) -> None:
    known = set(read_table(simulated, "icu/d_items.csv.gz")["itemid"])
    seen = set(read_table(simulated, "icu/chartevents.csv.gz")["itemid"])
    assert set(vitals()["itemid"]) < seen == known


def test_gaps_are_empty_and_bursts_are_dense(simulated: Path) -> None:
    stays = read_table(simulated, "truth/stays.parquet").select("stay_id", "intime", "outtime")
    rows = read_table(simulated, "icu/chartevents.csv.gz").join(stays, on="stay_id")
    within = pl.col("charttime").is_between("intime", "outtime", closed="left")
    rows = rows.filter(within & (pl.col("itemid") == 220045))
    elapsed = ((pl.col("charttime") - pl.col("intime")).dt.total_seconds() // 3600).cast(pl.Int32)
    counts = rows.group_by("stay_id", elapsed.alias("hour")).len()
    table = hours(simulated).join(counts, on=["stay_id", "hour"], how="left").with_columns(pl.col("len").fill_null(0))
    gap, burst = table.filter("gap"), table.filter("burst")
    assert min(gap.height, burst.height) > 200
    # The moment of a death before outtime is charted whatever else happens; nothing else is charted in a gap.
    after_death = read_table(simulated, "truth/faults.parquet").filter(pl.col("kind") == "after_death")
    assert (gap["len"] > 0).sum() <= after_death["stay_id"].n_unique()
    assert burst["len"].mean() > 4


def test_both_thermometers_and_both_pressure_instruments_are_read_side_by_side(simulated: Path) -> None:
    rows = read_table(simulated, "icu/chartevents.csv.gz").select("stay_id", "itemid", "charttime")
    for left, right in ((223761, 223762), (220050, 220179)):
        one, other = (rows.filter(pl.col("itemid") == itemid) for itemid in (left, right))
        assert one.join(other, on=["stay_id", "charttime"]).height > 100
