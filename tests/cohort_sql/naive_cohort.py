"""The cohort rules once more, written from their statement in plain Python: slow, one reading at a time, no SQL.

It reads the source files with the csv module and shares nothing with the product, not even its tables of items.
"""

from __future__ import annotations

import csv
import gzip
import math
import statistics
from collections import defaultdict
from datetime import datetime
from fractions import Fraction
from pathlib import Path

import numpy as np

CHANNELS = ("hr", "sbp", "dbp", "rr", "spo2", "temp")
RANGE = {"hr": (10, 300), "sbp": (20, 300), "dbp": (5, 220), "rr": (2, 80), "spo2": (30, 100), "temp": (25, 45)}
PAPER_ITEM = {
    220045: "hr", 220050: "sbp", 220179: "sbp", 220051: "dbp", 220180: "dbp", 220210: "rr", 220277: "spo2",
    223761: "temp", 223762: "temp",
}  # fmt: skip
FAHRENHEIT = 223761


def read(path):
    with gzip.open(path, "rt", newline="") as lines:
        return list(csv.DictReader(lines))


def celsius(fahrenheit):
    return (fahrenheit - 32) * 5 / 9


def seconds(text):
    return (datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds()


def crosses(channel, value):
    return {
        "hr": value > 130 or value < 40,
        "sbp": value < 90 or value > 200,
        "dbp": False,
        "rr": value > 30 or value < 6,
        "spo2": value < 90,
        "temp": value > 38.5 or value < 35,
    }[channel]


def paper(root: Path, stays: int, seed: int):
    """Return {stay_id: {hour: {channel: value}}} after filling, with `measured` pairs, means and deviations."""
    eligible = [row for row in read(root / "icu/icustays.csv.gz") if row["los"] and float(row["los"]) >= 2.0]
    drawn = sorted(np.random.RandomState(seed).permutation(len(eligible))[:stays])
    intime = {int(eligible[i]["stay_id"]): seconds(eligible[i]["intime"]) for i in drawn}
    sums = defaultdict(list)
    for row in read(root / "icu/chartevents.csv.gz"):
        channel = PAPER_ITEM.get(int(row["itemid"]))
        if channel is None or not row["valuenum"] or int(row["stay_id"]) not in intime:
            continue
        value = float(row["valuenum"])
        value = celsius(value) if int(row["itemid"]) == FAHRENHEIT else value
        hour = math.floor((seconds(row["charttime"]) - intime[int(row["stay_id"])]) / 3600)
        if RANGE[channel][0] <= value <= RANGE[channel][1] and hour >= 0:
            sums[int(row["stay_id"]), hour, channel].append(value)
    means = {key: math.fsum(values) / len(values) for key, values in sums.items()}
    return fill_both_ways(means)


def fill_both_ways(means):
    hours = defaultdict(set)
    for stay, hour, _ in means:
        hours[stay].add(hour)
    kept = {stay: (min(seen), max(seen)) for stay, seen in hours.items() if max(seen) - min(seen) + 1 >= 48}
    typical = {
        channel: statistics.median(value for (stay, _, c), value in means.items() if c == channel and stay in kept)
        for channel in CHANNELS
    }
    filled = {}
    for stay, (first, last) in kept.items():
        for channel in CHANNELS:
            series = [means.get((stay, hour, channel)) for hour in range(first, last + 1)]
            known = next((value for value in series if value is not None), typical[channel])
            for offset, value in enumerate(series):
                known = known if value is None else value
                filled[stay, first + offset, channel] = known
    return filled, means, typical


def exact_mean(values):
    return float(sum(map(Fraction, values)) / len(values))


# --- the causal preset ----------------------------------------------------------------------------

CAUSAL_ITEM = PAPER_ITEM | {225309: "sbp", 225310: "dbp", 224690: "rr"}
# The order in which instruments come; items of one rank are one instrument.
RANK = {220050: 1, 220051: 1, 225309: 2, 225310: 2, 220179: 3, 220180: 3, 220210: 1, 224690: 2}
LIMIT = {"hr": 6, "sbp": 6, "dbp": 6, "rr": 6, "spo2": 6, "temp": 12}
CELSIUS = 223762


def in_channel_unit(item, number):
    """Return (value or None, repaired) of a charted number."""
    low, high = RANGE[CAUSAL_ITEM[item]]
    if item not in (FAHRENHEIT, CELSIUS):
        return (number if low <= number <= high else None), False
    as_charted, as_other = (celsius(number), number) if item == FAHRENHEIT else (number, celsius(number))
    if low <= as_charted <= high:
        return as_charted, False
    return (as_other, True) if low <= as_other <= high else (None, False)


def causal_stays(root: Path):
    """Return {stay_id: (start, end, subject_id)} of adults whose times make sense."""
    people = {row["subject_id"]: row for row in read(root / "hosp/patients.csv.gz")}
    died = {row["hadm_id"]: row["deathtime"] for row in read(root / "hosp/admissions.csv.gz")}
    found = {}
    for row in read(root / "icu/icustays.csv.gz"):
        person = people[row["subject_id"]]
        age = int(person["anchor_age"]) + int(row["intime"][:4]) - int(person["anchor_year"])
        if age < 18 or not row["outtime"]:
            continue
        ends = [seconds(text) for text in (row["outtime"], died[row["hadm_id"]]) if text]
        if min(ends) > seconds(row["intime"]):
            found[int(row["stay_id"])] = (seconds(row["intime"]), min(ends), int(row["subject_id"]))
    return found


def causal(root: Path):
    """Return {(stay, hour, channel): mean} of what was measured, the stays used, and how many rows went where."""
    stays, counts = causal_stays(root), defaultdict(int)
    values, rows = defaultdict(set), defaultdict(list)
    for row in read(root / "icu/chartevents.csv.gz"):
        item, stay = int(row["itemid"]), int(row["stay_id"])
        if item not in CAUSAL_ITEM or stay not in stays:
            continue
        at, (start, end, _) = seconds(row["charttime"]), stays[stay]
        if not (start <= at < end) or not row["valuenum"]:
            continue
        value, repaired = in_channel_unit(item, float(row["valuenum"]))
        counts["repaired"] += repaired
        if value is not None:
            key = (stay, at, CAUSAL_ITEM[item], RANK.get(item, 1))
            values[key].add(value)
            counts["copies"] += (item, row["valuenum"]) in rows[key]
            rows[key].append((item, row["valuenum"]))
    middle = {key: (min(found) + max(found)) / 2 for key, found in values.items()}
    inverted = {
        key
        for key in middle
        if key[2] in ("sbp", "dbp")
        and (*key[:2], "sbp", key[3]) in middle
        and (*key[:2], "dbp", key[3]) in middle
        and middle[*key[:2], "sbp", key[3]] < middle[*key[:2], "dbp", key[3]]
    }
    by_rank = defaultdict(lambda: defaultdict(list))
    for (stay, at, channel, rank), value in middle.items():
        if (stay, at, channel, rank) not in inverted:
            by_rank[stay, math.floor((at - stays[stay][0]) / 3600), channel][rank].append(value)
    means = {key: exact_mean(ranks[min(ranks)]) for key, ranks in by_rank.items()}
    counts["inverted"] = sum(len(set(rows[key])) for key in inverted)
    return means, {stay: stays[stay] for stay, _, _ in means}, counts


def fill_forward(means, stays, typical):
    """Return {(stay, hour, channel): (value, age)} on every hour of the stays; age None where the value is typical."""
    filled = {}
    for stay, (start, end, _) in stays.items():
        for channel in CHANNELS:
            last = None
            for hour in range(math.ceil((end - start) / 3600)):
                last = hour if (stay, hour, channel) in means else last
                fresh = last is not None and hour - last <= LIMIT[channel]
                value = means[stay, last, channel] if fresh else typical[channel]
                filled[stay, hour, channel] = (value, hour - last if fresh else None)
    return filled
