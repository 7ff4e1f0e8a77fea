"""Chart rows and the faults that strike single rows: each row carries one at most, so each has one right answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cohort_sql.simulate import items
from cohort_sql.simulate.charting import Chart, IntArray
from cohort_sql.simulate.people import MINUTE, YEAR
from cohort_sql.simulate.physiology import FloatArray
from cohort_sql.simulate.rates import CODE, FAULTS, Tally, choose

# Free text in `value`: heart rhythms, texts that break a careless CSV reader, remarks in place of a number.
QUOTED_TEXTS = (
    'AF, rate "controlled"',
    "SR with PVCs,\nsee note",
    '"see flowsheet"',
    'paced, "demand",\r\nintermittent capture',
    "ST, 220045,999,bpm",
)
REMARKS = ("unable to obtain", "patient moving", "refused")
TEXTS = (*items.RHYTHM_TEXTS, *QUOTED_TEXTS, *REMARKS)
NO_TEXT = -1

# What the rates of single-row faults are "per", as chart columns.
_COLUMNS: dict[str, list[int]] = {
    "vital row": np.flatnonzero(items.IS_VITAL).tolist(),
    "monitor row": [items.HR, items.RR, items.SPO2, items.ART_S, items.ART_D],
    "Celsius row": [items.TEMP_C],
    "Fahrenheit row": [items.TEMP_F],
    "thermometer row": [items.TEMP_F, items.TEMP_C],
    "text row": [items.RHYTHM],
}
_SINGLE = tuple(fault for fault in FAULTS if fault.per in _COLUMNS)
_SINGLE_CODES = np.array([CODE[fault.kind] for fault in _SINGLE], dtype=np.int8)
_EDGES = np.cumsum([fault.rate for fault in _SINGLE])
# Which chart column can have which single-row fault, (faults, columns).
_CAN_HAVE = np.array([np.isin(np.arange(len(items.ITEMS)), _COLUMNS[fault.per]) for fault in _SINGLE])
_COPIED = [CODE["identical_duplicate"], CODE["conflicting_value"]]
# Outside every vital's range and, for thermometers, no reading of the other unit either.
_IMPLAUSIBLE = {
    "hr": (10_000_000.0, 3_000.0, 999.0, -1.0),
    "sbp": (11_647.0, 1_200.0, 999.0, -8.0),
    "dbp": (7_100.0, 999.0, 2.0, -4.0),
    "rr": (7_000_400.0, 999.0, 120.0, -1.0),
    "spo2": (981.0, 110.0, 12.0, -1.0),
    "temp": (986.0, 370.0, 160.0, 3.7),
}
_CONFLICT = {"hr": 3.0, "sbp": 3.0, "dbp": 3.0, "rr": 2.0, "spo2": 2.0, "temp": 0.3}
_CHANNEL_INDEX = np.array([items.CHANNELS.index(item.channel) if item.channel else 0 for item in items.ITEMS])
_IMPLAUSIBLE_TABLE = np.array([_IMPLAUSIBLE[channel] for channel in items.CHANNELS])
_CONFLICT_TABLE = np.array([_CONFLICT[channel] for channel in items.CHANNELS])


class Rows(NamedTuple):
    """Chart rows of one stay, all arrays of one length; `column` indexes `items.ITEMS`, `kind` is a fault code or 0.

    `value` is the number as written and `truth` the number that a faultless bedside would have written (NaN: none);
    `text` indexes TEXTS; times are seconds since 1970.
    """

    column: IntArray
    time: IntArray
    stored: IntArray
    value: FloatArray
    truth: FloatArray
    text: npt.NDArray[np.int8]
    warning: npt.NDArray[np.int8]
    kind: npt.NDArray[np.int8]

    def take(self, rows: npt.NDArray[np.intp]) -> Rows:
        """Return copies of the given rows."""
        return Rows._make(field[rows] for field in self)


def chart_rows(rng: np.random.Generator, tally: Tally, chart: Chart) -> Rows:
    """Turn the chart of one stay into rows and plant the faults of single rows."""
    rows = _flatten(rng, chart)
    strike = _strikes(rng, tally, rows)
    _overwrite(rng, rows, strike)
    extras = [
        _copies(rng, rows, strike, "identical_duplicate"),
        _copies(rng, rows, strike, "conflicting_value"),
        _years_late(rng, tally, rows, strike),
    ]
    return Rows._make(np.concatenate(fields) for fields in zip(rows, *extras, strict=True))


def _flatten(rng: np.random.Generator, chart: Chart) -> Rows:
    """List the charted cells of a chart; text items carry a text instead of a number."""
    moment, column = np.nonzero(chart.charted)
    value, truth = chart.value[moment, column], chart.truth[moment, column]
    is_text = column == items.RHYTHM
    text = np.where(is_text, truth, NO_TEXT).astype(np.int8)
    time = chart.moments.time[moment]
    stored = time + rng.integers(1, 3600, len(chart.moments.time))[moment]
    kind = chart.kind[moment, column]
    value[is_text] = truth[is_text] = np.nan
    return Rows(column, time, stored, value, truth, text, np.zeros(len(kind), dtype=np.int8), kind)


def _strikes(rng: np.random.Generator, tally: Tally, rows: Rows) -> npt.NDArray[np.int8]:
    """Draw the fault of each row that no earlier fault has touched: a code, or 0 (rows,)."""
    free = rows.kind == 0
    per_column = np.bincount(rows.column[free], minlength=len(items.ITEMS))
    for fault, eligible in zip(_SINGLE, _CAN_HAVE @ per_column, strict=True):
        tally.add(fault.kind, int(eligible))
    draw = rng.random(len(free))
    strike = np.zeros(len(free), dtype=np.int8)
    hit = np.flatnonzero(free & (draw < _EDGES[-1]))
    nth = np.searchsorted(_EDGES, draw[hit], side="right")
    possible = _CAN_HAVE[nth, rows.column[hit]]
    strike[hit[possible]] = _SINGLE_CODES[nth[possible]]
    return strike


def _overwrite(rng: np.random.Generator, rows: Rows, strike: npt.NDArray[np.int8]) -> None:
    """Write the faults that change a row in place (`rows` is this module's own copy of the chart)."""

    def struck(kind: str) -> npt.NDArray[np.intp]:
        return np.flatnonzero(strike == CODE[kind])

    value, truth = rows.value, rows.truth
    at = struck("implausible")
    value[at] = _IMPLAUSIBLE_TABLE[_CHANNEL_INDEX[rows.column[at]], rng.integers(0, 4, len(at))]
    value[struck("zero")] = 0.0
    at = struck("fahrenheit_under_celsius")
    value[at] = np.round(truth[at] * 9.0 / 5.0 + 32.0, 1)
    at = struck("celsius_under_fahrenheit")
    value[at] = np.round((truth[at] - 32.0) * 5.0 / 9.0, 1)
    at = struck("null_valuenum")
    value[at] = np.nan
    rows.text[at] = rng.choice([NO_TEXT, *range(len(TEXTS) - len(REMARKS), len(TEXTS))], len(at))
    rows.warning[struck("warning")] = 1
    at = struck("stored_early")
    rows.stored[at] = rows.time[at] - MINUTE * rng.integers(1, 31, len(at))
    at = struck("single_precision")
    value[at] = value[at].astype(np.float32)
    at = struck("quoted_text")
    rows.text[at] = rng.integers(len(items.RHYTHM_TEXTS), len(TEXTS) - len(REMARKS), len(at))
    rows.kind[:] = np.where(np.isin(strike, _COPIED), rows.kind, np.maximum(rows.kind, strike))


def _copies(rng: np.random.Generator, rows: Rows, strike: npt.NDArray[np.int8], kind: str) -> Rows:
    """Return the second rows of duplicates: the same row again, or the same stay, item and time with a lower value."""
    at = np.flatnonzero(strike == CODE[kind])
    copies = rows.take(at)
    copies.kind[:] = CODE[kind]
    if kind == "conflicting_value":
        copies.value[:] = np.round(copies.value - _CONFLICT_TABLE[_CHANNEL_INDEX[copies.column]], 1)
        copies.stored[:] = copies.stored + MINUTE * rng.integers(1, 31, len(at))
    return copies


def _years_late(rng: np.random.Generator, tally: Tally, rows: Rows, strike: npt.NDArray[np.int8]) -> Rows:
    """Return, for few stays, one good row of a vital charted again one to three years later."""
    good = np.flatnonzero(items.IS_VITAL[rows.column] & (rows.kind == 0) & (strike == 0))
    if not len(good) or choose(rng, tally, ("years_late",)) is None:
        return rows.take(good[:0])
    late = rows.take(rng.choice(good, 1))
    delay = int(rng.uniform(1.0, 3.0) * YEAR) // MINUTE * MINUTE
    late.time[:] += delay
    late.stored[:] += delay
    late.kind[:] = CODE["years_late"]
    return late
