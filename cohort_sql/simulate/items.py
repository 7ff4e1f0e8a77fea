"""The chart items that simulated bedsides record: the `d_items` dictionary and the columns of a chart matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

CHANNELS = ("hr", "sbp", "dbp", "rr", "spo2", "temp")


class Item(NamedTuple):
    """One chart item: its dictionary entry and the vital it measures ("" for a distractor)."""

    itemid: int
    label: str
    abbreviation: str
    category: str
    unit: str | None
    param_type: str
    channel: str


_VITAL, _BREATH, _ALARM = "Routine Vital Signs", "Respiratory", "Alarms"

ITEMS = (
    Item(220045, "Heart Rate", "HR", _VITAL, "bpm", "Numeric", "hr"),
    Item(220210, "Respiratory Rate", "RR", _BREATH, "insp/min", "Numeric", "rr"),
    Item(220277, "O2 saturation pulseoxymetry", "SpO2", _BREATH, "%", "Numeric", "spo2"),
    Item(220050, "Arterial Blood Pressure systolic", "ABPs", _VITAL, "mmHg", "Numeric", "sbp"),
    Item(220051, "Arterial Blood Pressure diastolic", "ABPd", _VITAL, "mmHg", "Numeric", "dbp"),
    Item(220052, "Arterial Blood Pressure mean", "ABPm", _VITAL, "mmHg", "Numeric", ""),
    Item(220179, "Non Invasive Blood Pressure systolic", "NBPs", _VITAL, "mmHg", "Numeric", "sbp"),
    Item(220180, "Non Invasive Blood Pressure diastolic", "NBPd", _VITAL, "mmHg", "Numeric", "dbp"),
    Item(220181, "Non Invasive Blood Pressure mean", "NBPm", _VITAL, "mmHg", "Numeric", ""),
    Item(223761, "Temperature Fahrenheit", "Temperature F", _VITAL, "°F", "Numeric", "temp"),
    Item(223762, "Temperature Celsius", "Temperature C", _VITAL, "°C", "Numeric", "temp"),
    Item(225309, "ART BP Systolic", "ART BP Systolic", _VITAL, "mmHg", "Numeric", "sbp"),
    Item(225310, "ART BP Diastolic", "ART BP Diastolic", _VITAL, "mmHg", "Numeric", "dbp"),
    Item(225312, "ART BP Mean", "ART BP Mean", _VITAL, "mmHg", "Numeric", ""),
    Item(224690, "Respiratory Rate (Total)", "Respiratory Rate (Total)", _BREATH, "insp/min", "Numeric", "rr"),
    Item(220048, "Heart Rhythm", "Heart Rhythm", _VITAL, None, "Text", ""),
    Item(220046, "Heart rate Alarm - High", "HR Alarm - High", _ALARM, "bpm", "Numeric", ""),
    Item(220047, "Heart Rate Alarm - Low", "HR Alarm - Low", _ALARM, "bpm", "Numeric", ""),
    Item(220739, "GCS - Eye Opening", "Eye Opening", "Neurological", None, "Numeric with tag", ""),
    Item(223835, "Inspired O2 Fraction", "FiO2", _BREATH, "%", "Numeric", ""),
)

HR, RR, SPO2, ART_S, ART_D, ART_M, CUFF_S, CUFF_D, CUFF_M, TEMP_F, TEMP_C = range(11)
SECOND_S, SECOND_D, SECOND_M, RR_TOTAL, RHYTHM, ALARM_HIGH, ALARM_LOW, GCS, FIO2 = range(11, 20)

ARTERIAL = (ART_S, ART_D, ART_M)
SECOND_LINE = (SECOND_S, SECOND_D, SECOND_M)
CUFF = (CUFF_S, CUFF_D, CUFF_M)
PRESSURES = (ARTERIAL, SECOND_LINE, CUFF)
RHYTHM_TEXTS = (
    "SR (Sinus Rhythm)",
    "ST (Sinus Tachycardia)",
    "SB (Sinus Bradycardia)",
    "AF (Atrial Fibrillation)",
    "1st AV",
    "VPACED",
)

ITEMIDS = np.array([item.itemid for item in ITEMS])
VITAL_OR_MEAN = [*range(RHYTHM)]
IS_FORCED = np.isin(np.arange(len(ITEMS)), [HR, SPO2])
IS_VITAL = np.array([item.channel != "" for item in ITEMS])


def columns_of(channel: str) -> list[int]:
    """Return the chart columns that measure one channel, e.g. both thermometers for "temp"."""
    return [column for column, item in enumerate(ITEMS) if item.channel == channel]


def item_dictionary() -> pl.DataFrame:
    """Return `d_items` in the v3.1 layout, one row per chart item, sorted by itemid."""
    ordered = sorted(ITEMS)
    return pl.DataFrame(
        {
            "itemid": [item.itemid for item in ordered],
            "label": [item.label for item in ordered],
            "abbreviation": [item.abbreviation for item in ordered],
            "linksto": ["chartevents"] * len(ordered),
            "category": [item.category for item in ordered],
            "unitname": [item.unit for item in ordered],
            "param_type": [item.param_type for item in ordered],
            "lownormalvalue": pl.Series([None] * len(ordered), dtype=pl.Float64),
            "highnormalvalue": pl.Series([None] * len(ordered), dtype=pl.Float64),
        }
    )
