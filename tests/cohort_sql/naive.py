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
