"""The cohort on real recordings against a slow independent one, and what must not change it."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

import naive_cohort as naive
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tiny_source import BASE, HR, INTIME, as_csv, build, built_from, person, stay, write, write_source

from cohort_sql import presets
from cohort_sql.build import BLOCK_ROWS, build_cohort, plan_blocks
from cohort_sql.simulate import simulate
from cohort_sql.source import find_source, preflight

REPOSITORY = Path(__file__).parents[2]
DATA = Path(os.environ.get("ICU_MEMORY_TEST_DATA", REPOSITORY / "../shared/data"))
RECORDINGS = ("mimic_demo_iv", "eicu_demo")


def recording(name):
    assert (DATA / name).is_dir(), f"{name} is needed here; set ICU_MEMORY_TEST_DATA to the folder that holds it"
    return DATA / name


def digests(out):
    files = sorted(path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The paper and the causal cohort of the MIMIC demo."""
    folder = tmp_path_factory.mktemp("demo")
    root = recording("mimic_demo_iv")
    return {preset: build(root, folder / preset, preset=preset, stays=1500) for preset in ("paper", "causal")}


# --- the published protocol -----------------------------------------------------------------------


def test_the_paper_preset_gives_the_published_protocols_cohort_on_the_demo(demo):
    cohort = demo["paper"]
    lengths = cohort.stays["hours"]
    fractions = cohort.hours.group_by("stay_id").agg(pl.col("event").mean())["event"]
    assert (cohort.result.stays, cohort.result.tokens) == (68, 12_273)
    assert (lengths.median(), lengths.max()) == (103.5, 845)
    assert round(fractions.mean(), 3) == 0.208


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_paper_preset_agrees_with_the_rules_applied_one_reading_at_a_time(tmp_path, name):
    filled, measured, typical = naive.paper(recording(name), stays=90, seed=5)
    cohort = build(recording(name), tmp_path / "out", preset="paper", stays=90, seed=5)
    assert cohort.result.tokens * 6 == len(filled)
    for channel in naive.CHANNELS:
        rows = cohort.hours.select("stay_id", "hour", channel, f"{channel}_measured").rows()
        expected = np.array([filled[stay, hour, channel] for stay, hour, _, _ in rows])
        values = np.array([value for _, _, value, _ in rows])
        assert np.abs(values - expected).max() < 1e-12
        assert all(((stay, hour, channel) in measured) == flag for stay, hour, _, flag in rows)
        found = cohort.statistics[channel]
        assert found["median"] == pytest.approx(typical[channel], abs=1e-12)
        assert found["mean"] == pytest.approx(expected.mean(), abs=1e-9)
        assert found["sd"] == pytest.approx(expected.std(), abs=1e-9)
        standardised = (expected - expected.mean()) / expected.std()
        assert np.abs(cohort.hours[f"{channel}_z"].to_numpy() - standardised).max() < 1e-9


@pytest.mark.parametrize("preset", ["paper", "causal"])
def test_event_flags_are_the_thresholds_applied_to_the_filled_values(demo, preset):
    for row in demo[preset].hours.iter_rows(named=True):
        crossed = [naive.crosses(channel, row[channel]) for channel in naive.CHANNELS]
        flags = [row.get(f"{channel}_event", False) for channel in naive.CHANNELS]
        assert crossed == flags
        assert row["event"] == any(crossed)


# --- the causal preset ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*RECORDINGS, "simulated with every fault"])
def test_the_causal_preset_agrees_with_the_rules_applied_one_reading_at_a_time(tmp_path, name):
    root = recording(name) if name in RECORDINGS else tmp_path / "simulated"
    if name not in RECORDINGS:
        simulate(root, patients=40, seed=5)
    means, stays, counts = naive.causal(root)
    cohort = build(root, tmp_path / "out")
    assert set(cohort.stays["stay_id"]) == set(stays)
    training = set(cohort.stays.filter(split="train")["stay_id"])
    typical = {
        channel: statistics.median(
            value for (stay, _, of), value in means.items() if of == channel and stay in training
        )
        for channel in naive.CHANNELS
    }
    filled = naive.fill_forward(means, stays, typical)
    assert cohort.result.tokens * 6 == len(filled)
    for channel in naive.CHANNELS:
        rows = cohort.hours.select("stay_id", "hour", channel, f"{channel}_age", f"{channel}_measured").rows()
        assert max(abs(value - filled[stay, hour, channel][0]) for stay, hour, value, _, _ in rows) < 1e-12
        assert all(age == filled[stay, hour, channel][1] for stay, hour, _, age, _ in rows)
        assert all(((stay, hour, channel) in means) == flag for stay, hour, _, _, flag in rows)
        fitted = np.array([value for (stay, _, of), (value, _) in filled.items() if of == channel and stay in training])
        assert cohort.statistics[channel]["mean"] == pytest.approx(fitted.mean(), abs=1e-9)
        assert cohort.statistics[channel]["sd"] == pytest.approx(fitted.std(), abs=1e-9)
    left_out = cohort.rows_left_out
    assert left_out.get("identical_copy", 0) == counts["copies"]
    assert left_out.get("systolic_below_diastolic", 0) == counts["inverted"]
    assert sum(cohort.result.attrition["repaired"].values()) == counts["repaired"]
    assert name in RECORDINGS or min(counts.values()) > 0


@pytest.mark.parametrize("preset", ["paper", "causal"])
def test_every_source_row_stay_and_patient_is_accounted_for(demo, preset):
    flow = json.loads((demo[preset].out / "attrition.json").read_text())
    assert (flow["rows"]["source"], flow["stays"]["source"], flow["patients"]["source"]) == (129_181, 136, 100)
    for level in ("rows", "stays", "patients"):
        assert flow[level]["used"] + sum(flow[level]["left_out"].values()) == flow[level]["source"]


@pytest.mark.parametrize("preset", ["paper", "causal"])
def test_coverage_counts_what_the_hours_hold(demo, preset):
    hours = demo[preset].hours
    for row in demo[preset].result.coverage:
        channel = row["channel"]
        measured = hours[f"{channel}_measured"]
        assert (row["hours"], row["measured_hours"]) == (hours.height, measured.sum())
        assert row["measured_share"] == pytest.approx(measured.mean(), abs=1e-15)
        charted = set(hours.filter(measured)["stay_id"])
        assert row["stays_without"] == demo[preset].result.stays - len(charted)
        if channel == "dbp":
            assert row["event_hours"] is row["measured_event_hours"] is None
        else:
            events = hours[f"{channel}_event"]
            assert (row["event_hours"], row["measured_event_hours"]) == (events.sum(), (events & measured).sum())


# --- nothing leaks --------------------------------------------------------------------------------


def changed(tmp_path, root, change):
    """Write the source at `root` again with every row of chartevents passed through `change`."""
    target = tmp_path / "changed"
    for path in root.glob("*/*.csv.gz"):
        write(target / path.relative_to(root), gzip.decompress(path.read_bytes()))
    rows = [change(row) for row in naive.read(root / "icu/chartevents.csv.gz")]
    with gzip.open(target / "icu/chartevents.csv.gz", "wt", newline="") as text:
        writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return target


def test_the_values_of_a_test_patient_change_no_token_of_another_patient(tmp_path, demo):
    tested = set(demo["causal"].stays.filter(split="test")["stay_id"])
    assert tested

    def change(row):
        altered = row["valuenum"] and int(row["stay_id"]) in tested
        return row | {"valuenum": str(float(row["valuenum"]) * 0.9)} if altered else row

    again = build(changed(tmp_path, recording("mimic_demo_iv"), change), tmp_path / "out")
    others = ~pl.col("stay_id").is_in(tested)
    assert again.hours.filter(others).equals(demo["causal"].hours.filter(others))
    assert not again.hours.equals(demo["causal"].hours)
    assert again.statistics == demo["causal"].statistics


def test_values_after_an_hour_change_no_token_up_to_it(tmp_path, demo):
    # Statistics are fitted on training patients as a whole, so a patient who is not one of them is followed.
    followed = demo["causal"].stays.filter(split="test")["stay_id"][0]
    start = naive.causal_stays(recording("mimic_demo_iv"))[followed][0]
    hour = 20

    def change(row):
        of_stay = row["valuenum"] and int(row["stay_id"]) == followed
        late = of_stay and naive.seconds(row["charttime"]) >= start + (hour + 1) * 3600
        return row | {"valuenum": str(float(row["valuenum"]) * 0.9)} if late else row

    again = build(changed(tmp_path, recording("mimic_demo_iv"), change), tmp_path / "out")
    early = (pl.col("stay_id") != followed) | (pl.col("hour") <= hour)
    assert again.hours.filter(early).equals(demo["causal"].hours.filter(early))
    assert not again.hours.equals(demo["causal"].hours)


# --- patients, not stays --------------------------------------------------------------------------


def many_patients(count):
    """Return stays (two for each patient), people and readings of `count` patients."""
    stays = [stay(2 * place + twice, place, place) for place in range(1, count + 1) for twice in (0, 1)]
    rows = [(item, time, number, row["stay_id"]) for row in stays for item, time, number in BASE]
    return {"stays": stays, "people": [person(place) for place in range(1, count + 1)]}, rows


def test_all_stays_of_a_patient_share_split_and_bucket_and_the_shares_are_70_15_15(tmp_path):
    tables, rows = many_patients(400)
    stays = built_from(tmp_path, rows, **tables).stays
    shared = stays.group_by("subject_id").agg(pl.n_unique("split", "bucket"), pl.len().alias("stays"))
    assert set(shared["split"]) == set(shared["bucket"]) == {1}
    assert set(shared["stays"]) == {2}
    shares = stays.group_by("split").len().rows()
    assert dict(shares)["train"] / 800 == pytest.approx(0.7, abs=0.07)
    assert dict(shares)["test"] / 800 == pytest.approx(0.15, abs=0.055)
    assert len(set(stays["bucket"])) == 4


def test_the_split_depends_on_the_seed_and_not_on_who_else_is_there(tmp_path):
    tables, rows = many_patients(60)
    root = write_source(tmp_path / "all", rows, **tables)
    some = {"stays": tables["stays"][40:], "people": tables["people"]}
    fewer = write_source(tmp_path / "fewer", [row for row in rows if row[3] >= 42], **some)
    whole, part = build(root, tmp_path / "a").stays, build(fewer, tmp_path / "b").stays
    assert part.select("stay_id", "split", "bucket").rows() == whole[40:].select("stay_id", "split", "bucket").rows()
    assert build(root, tmp_path / "c", seed=1).stays["split"].to_list() != whole["split"].to_list()


def test_a_lone_patient_is_a_training_patient_under_every_seed(tmp_path):
    root = write_source(tmp_path / "source")
    assert {build(root, tmp_path / str(seed), seed=seed).stays["split"][0] for seed in range(8)} == {"train"}


def test_a_draw_takes_as_many_stays_as_asked_whole_patients_in_turn(tmp_path):
    tables, rows = many_patients(30)
    cohort = build(write_source(tmp_path / "source", rows, **tables), tmp_path / "out", stays=21)
    assert cohort.result.stays == 21
    assert cohort.result.patients == 11
    assert cohort.stays_left_out == {"not_drawn": 39}


# --- the same bytes -------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["paper", "causal"])
def test_threads_and_a_second_build_change_no_byte(tmp_path, demo, preset):
    root = recording("mimic_demo_iv")
    one = build(root, tmp_path / "one", preset=preset, stays=1500, threads=1)
    again = build(root, tmp_path / "one", preset=preset, stays=1500, threads=3)
    apart = build(root, tmp_path / "apart" / "out", preset=preset, stays=1500, threads=3)
    assert digests(one.out) == digests(again.out) == digests(apart.out) == digests(demo[preset].out)
    assert one.result == again.result == apart.result


def test_selected_readings_are_used_again_only_for_the_same_files_and_draw(tmp_path):
    tables, rows = many_patients(30)
    root = write_source(tmp_path / "source", rows, **tables)
    kept = tmp_path / "scratch/selected"
    everyone = build(root, tmp_path / "out", seed=0)
    build(root, tmp_path / "out", seed=1, buckets=5)
    assert len(list(kept.iterdir())) == 1
    assert build(root, tmp_path / "out", stays=21, seed=1).result.stays == 21
    assert len(list(kept.iterdir())) == 2
    write(root / "icu/icustays.csv.gz", as_csv(tables["stays"][:-2]))
    assert build(root, tmp_path / "out", seed=0).result.stays == everyone.result.stays - 2


def test_the_order_of_rows_changes_no_byte(tmp_path, demo):
    root, target = recording("mimic_demo_iv"), tmp_path / "shuffled"
    for path in root.glob("*/*.csv.gz"):
        header, *lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
        random.Random(1).shuffle(lines)
        write(target / path.relative_to(root), header + "".join(lines))
    assert digests(build(target, tmp_path / "causal").out) == digests(demo["causal"].out)
    everyone = {"preset": "paper", "stays": None}
    in_order = build(root, tmp_path / "in_order", **everyone)
    assert digests(build(target, tmp_path / "any_order", **everyone).out) == digests(in_order.out)


def test_the_zone_of_the_host_changes_no_byte(tmp_path, demo):
    code = (
        "import sys; from pathlib import Path; from tiny_source import build;"
        "build(Path(sys.argv[1]), Path(sys.argv[2]), stays=1500)"
    )
    env = os.environ | {"TZ": "America/New_York", "PYTHONPATH": f"{REPOSITORY}:{Path(__file__).parent}"}
    subprocess.run([sys.executable, "-c", code, recording("mimic_demo_iv"), tmp_path / "out"], env=env, check=True)
    assert digests(tmp_path / "out") == digests(demo["causal"].out)


def test_a_changed_source_file_is_read_again_and_an_unchanged_one_is_not(tmp_path):
    root = write_source(tmp_path / "source")
    build(root, tmp_path / "out")
    kept = next((tmp_path / "scratch/ingested").iterdir())
    written = (kept / "source.json").stat().st_mtime_ns
    build(root, tmp_path / "out", preset="causal", seed=3)
    assert (kept / "source.json").stat().st_mtime_ns == written
    write_source(root, [*BASE, (HR, INTIME, 100)])
    assert build(root, tmp_path / "out").measured("hr") == {0: 90}


# --- blocks ---------------------------------------------------------------------------------------


def test_blocks_cover_every_stay_hour_once_in_order_and_within_their_size():
    stays = pa.table(
        {"bucket": [1, 0, 0, 1], "stay_id": [4, 3, 1, 2], "first_hour": [0, 2, 0, 5], "hours": [3, 11, 4, 4]}
    )
    first = dict(zip(stays["stay_id"].to_pylist(), stays["first_hour"].to_pylist(), strict=True))
    length = dict(zip(stays["stay_id"].to_pylist(), stays["hours"].to_pylist(), strict=True))
    bucket = dict(zip(stays["stay_id"].to_pylist(), stays["bucket"].to_pylist(), strict=True))
    held = [
        [
            (block.bucket, stay, hour)
            for stay in sorted(first)
            if bucket[stay] == block.bucket and block.first_stay <= stay <= block.last_stay
            for hour in range(first[stay], first[stay] + length[stay])
            if block.first_hour <= hour <= block.last_hour
        ]
        for block in plan_blocks(stays, rows=5)
    ]
    flat = [hour for hours in held for hour in hours]
    assert all(0 < len(hours) <= 5 for hours in held)
    assert flat == sorted(flat)
    assert len(flat) == len(set(flat)) == 22


@pytest.mark.parametrize("rows", [0, 1, 2_000_000, 2_000_001, 11_000_000, 50_000_000])
def test_passes_take_every_part_once(rows):
    taken = [part for first, last in presets.passes(rows) for part in range(first, last + 1)]
    assert taken == list(range(presets.PARTS))


def test_many_passes_give_the_bytes_of_one(tmp_path, demo, monkeypatch):
    monkeypatch.setattr(presets, "PASS_ROWS", 1_000)
    assert digests(build(recording("mimic_demo_iv"), tmp_path / "out", stays=1500).out) == digests(demo["causal"].out)


def test_a_grid_longer_than_a_block_is_written_whole(tmp_path):
    rows = [*BASE, (HR, "2170-01-01 10:00:00", 90)]
    cohort = built_from(tmp_path, rows, preset="paper")
    assert cohort.result.tokens > BLOCK_ROWS
    assert cohort.hours["hour"].to_list() == list(range(cohort.result.tokens))
    assert cohort.channel("hr")[-2:] == [80, 90]


def test_progress_tells_the_steps_and_ends_at_one(tmp_path):
    told = []
    root = write_source(tmp_path / "source")
    build_cohort(
        find_source(root),
        tmp_path / "out",
        preset="causal",
        stays=None,
        seed=0,
        buckets=2,
        scratch=tmp_path / "scratch",
        progress=lambda step, share: told.append((step, share)),
    )
    steps = list(dict.fromkeys(step for step, _ in told if step != "reading chartevents"))
    assert steps == ["selecting readings", "filling hours", "writing hours"]
    assert told[-1] == ("writing hours", 1.0)
    assert all(0 <= share <= 1 for _, share in told)


def test_the_preflight_of_the_recordings_takes_under_ten_seconds_and_finds_nothing_to_refuse():
    for name in RECORDINGS:
        for preset in ("paper", "causal"):
            assert preflight(find_source(recording(name)), preset=preset)
