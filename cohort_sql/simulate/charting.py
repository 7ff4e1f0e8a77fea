"""What the bedside charts of a stay: when, which items, and with which instrument, from the latent vitals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cohort_sql.simulate import items
from cohort_sql.simulate.people import HOUR, MINUTE, Stay
from cohort_sql.simulate.physiology import FloatArray, Latent
from cohort_sql.simulate.rates import CODE, RATE, Tally, choose

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_MISSED_HOUR, _ON_THE_HOUR = 0.04, 0.70
_GAPS_PER_DAY, _GAP_HOURS = 0.15, (2.0, 9.0)
_BURSTS_PER_DAY, _BURST_MINUTES = 0.20, np.arange(10, 60, 10)
_ARTERIAL_LINE, _SECOND_LINE, _VENTILATED = 0.35, 0.03, 0.25
_CELSIUS_WARD, _OTHER_UNIT, _BOTH_UNITS = 0.30, 0.10, 0.08
_STUCK_GROUPS = ((items.HR,), (items.RR,), (items.SPO2,), items.ARTERIAL)
_STUCK_HOURS = (4.0, 12.0)
# Standard errors of a reading: heart rate, respiratory rate, SpO2, temperature; then, for each instrument in the order
# of items.PRESSURES, that of a pressure and the standard deviation of the instrument's offset between stays.
_MONITOR_ERRORS = np.array([1.5, 1.0, 0.5, 0.08])
_PRESSURE_ERRORS = ((2.5, 0.0), (3.0, 2.0), (5.0, 4.0))
# Chance that an item is charted at a moment; the arterial line, the cuff and the thermometers depend on more.
_CHANCE = np.zeros(len(items.ITEMS))
_CHANCE[[items.HR, items.RR, items.SPO2]] = 0.98
_CHANCE[[items.RHYTHM, items.GCS, items.FIO2, items.ALARM_HIGH, items.ALARM_LOW]] = (0.25, 0.22, 0.10, 0.05, 0.05)


class Moments(NamedTuple):
    """When a stay is charted, one entry per charting time, sorted.

    `time` in seconds since 1970, whole minutes, unique; `hour` of the stay; `routine` for the round of each clock hour;
    `forced` for times at which something must be charted; `window` the fault code of a time outside the stay, or 0.
    """

    time: IntArray
    hour: IntArray
    routine: BoolArray
    forced: BoolArray
    window: npt.NDArray[np.int8]


class Chart(NamedTuple):
    """One stay as a matrix of moments by chart columns: written `value`, `truth`, `charted` and fault `kind`."""

    moments: Moments
    value: FloatArray
    truth: FloatArray
    charted: BoolArray
    kind: npt.NDArray[np.int8]
    absence: str | None
    missing_channel: str | None
    gap: BoolArray
    burst: BoolArray


def chart_stay(rng: np.random.Generator, tally: Tally, stay: Stay, latent: Latent) -> Chart:
    """Chart one stay: readings are the latent vitals of their stay hour plus instrument error.

    Then monitors get stuck and pressures are exchanged, in `value` and `kind` but not in `truth`.
    """
    absence, missing_channel, absent = _absence(rng, tally)
    gap, burst = _hour_flags(rng, len(latent.vitals))
    moments = _moments(rng, tally, stay, gap, burst, has_vitals=absence != "no_vitals")
    truth = _readings(rng, latent.vitals[moments.hour])
    charted = _charted(rng, moments)
    charted[:, absent] = False
    kind = np.where(charted, moments.window[:, None], np.int8(0))
    value = truth.copy()
    _stick(rng, tally, moments.hour, len(gap), value, charted, kind)
    _invert_pressure(rng, tally, value, charted, kind)
    return Chart(moments, value, truth, charted, kind, absence, missing_channel, gap, burst)


def _absence(rng: np.random.Generator, tally: Tally) -> tuple[str | None, str | None, list[int]]:
    """Draw what a stay never charts: the fault, the channel where it is one, and the chart columns left empty."""
    if choose(rng, tally, ("no_vitals",)):
        return "no_vitals", None, items.VITAL_OR_MEAN
    if choose(rng, tally, ("channel_missing",)):
        channel = items.CHANNELS[int(rng.integers(len(items.CHANNELS)))]
        return "channel_missing", channel, items.columns_of(channel)
    return None, None, []


def _hour_flags(rng: np.random.Generator, hours: int) -> tuple[BoolArray, BoolArray]:
    """Draw the hours without charting (patient away) and the hours charted every ten minutes."""
    hour = np.arange(hours)
    starts = rng.uniform(0.0, hours, rng.poisson(_GAPS_PER_DAY * hours / 24.0))
    lengths = rng.uniform(*_GAP_HOURS, len(starts))
    away = (hour >= starts[:, None]) & (hour < (starts + lengths)[:, None])
    gap: BoolArray = np.logical_or.reduce(away, axis=0)
    burst = rng.random(hours) < _BURSTS_PER_DAY / 24.0
    burst[1:] |= burst[:-1] & (rng.random(hours - 1) < 0.5)
    return gap, burst & ~gap


def _moments(
    rng: np.random.Generator, tally: Tally, stay: Stay, gap: BoolArray, burst: BoolArray, has_vitals: bool
) -> Moments:
    """Draw the charting times: about one a clock hour, more in bursts, none in gaps, a few outside the stay."""
    clock_hours = np.arange(stay.intime // HOUR, stay.outtime // HOUR + 1) * HOUR
    late = (rng.random(len(clock_hours)) > _ON_THE_HOUR) * rng.integers(1, 60, len(clock_hours))
    routine = clock_hours + late * MINUTE
    routine = routine[(routine >= stay.intime) & (routine < stay.outtime)]
    routine = routine[~gap[(routine - stay.intime) // HOUR] & (rng.random(len(routine)) > _MISSED_HOUR)]
    hour_start = -(-stay.intime // MINUTE) * MINUTE + np.flatnonzero(burst) * HOUR
    extra = (hour_start[:, None] + _BURST_MINUTES * MINUTE).ravel()
    extra = extra[extra < stay.outtime]
    forced = _outside(rng, tally, stay, has_vitals)
    time = np.unique(np.concatenate([routine, extra, forced]))
    hour = np.clip((time - stay.intime) // HOUR, 0, len(gap) - 1)
    return Moments(time, hour, np.isin(time, routine), np.isin(time, forced), _window(stay, time))


def _outside(rng: np.random.Generator, tally: Tally, stay: Stay, has_vitals: bool) -> IntArray:
    """Draw the charting times before intime, after outtime and after death, where the stay has such faults."""
    times: list[IntArray] = []
    if has_vitals and choose(rng, tally, ("before_intime",)):
        times.append(stay.intime // MINUTE - rng.integers(1, 157, size=rng.integers(1, 5)))
    if has_vitals and choose(rng, tally, ("after_outtime",)):
        times.append(-(-stay.outtime // MINUTE) + rng.integers(0, 361, size=rng.integers(1, 5)))
    if stay.deathtime is not None and stay.deathtime < stay.outtime:
        times.append(np.array([-(-stay.deathtime // MINUTE)]))
    return np.concatenate([*times, np.zeros(0, dtype=np.int64)]) * MINUTE


def _window(stay: Stay, time: IntArray) -> npt.NDArray[np.int8]:
    """Name the window fault of each charting time, 0 inside the stay."""
    death = stay.outtime if stay.deathtime is None else stay.deathtime
    conditions = [time < stay.intime, time >= stay.outtime, time >= death]
    codes = [np.int8(CODE[kind]) for kind in ("before_intime", "after_outtime", "after_death")]
    return np.select(conditions, codes, default=np.int8(0))


def _readings(rng: np.random.Generator, latent: FloatArray) -> FloatArray:
    """Read every instrument at every moment, (moments, columns), each in its own unit and resolution."""
    moments = len(latent)
    seen = latent[:, [0, 3, 4, 5]] + rng.standard_normal((moments, 4)) * _MONITOR_ERRORS
    hr, rr, spo2, _ = np.round(seen).T
    celsius = np.round(seen[:, 3], 1)
    value = np.empty((moments, len(items.ITEMS)))
    value[:, items.HR], value[:, items.RR], value[:, items.SPO2] = hr, np.maximum(rr, 5.0), np.minimum(spo2, 100.0)
    value[:, items.RR_TOTAL] = np.maximum(rr + rng.integers(-1, 3, moments), 5.0)
    for group, (error, bias) in zip(items.PRESSURES, _PRESSURE_ERRORS, strict=True):
        value[:, group] = _pressure(rng, latent[:, 1:3], error, bias)
    value[:, items.TEMP_C], value[:, items.TEMP_F] = celsius, np.round(celsius * 9.0 / 5.0 + 32.0, 1)
    value[:, items.RHYTHM] = rng.integers(0, len(items.RHYTHM_TEXTS), moments)
    value[:, items.ALARM_HIGH], value[:, items.ALARM_LOW] = 130.0, 50.0
    value[:, items.GCS], value[:, items.FIO2] = rng.integers(1, 5, moments), 5.0 * rng.integers(6, 13, moments)
    return value


def _pressure(rng: np.random.Generator, latent: FloatArray, error: float, bias: float) -> FloatArray:
    """Read one pressure instrument, (moments, 3) as systolic, diastolic and mean, with an offset for the whole stay."""
    seen = np.round(latent + rng.standard_normal(latent.shape) * error + rng.standard_normal() * bias)
    systolic = np.maximum(seen[:, 0], 30.0)
    # From 20 on, so that a pressure exchanged with its systolic is still in the systolic range.
    diastolic = np.clip(seen[:, 1], 20.0, systolic - 5.0)
    return np.stack([systolic, diastolic, np.round((systolic + 2.0 * diastolic) / 3.0)], axis=1)


def _charted(rng: np.random.Generator, moments: Moments) -> BoolArray:
    """Draw which items are charted at which moments, (moments, columns)."""
    count = len(moments.time)
    chance = np.broadcast_to(_CHANCE, (count, len(_CHANCE))).copy()
    line = rng.random() < _ARTERIAL_LINE
    in_line = line & (moments.hour < rng.uniform(0.3, 1.0) * (moments.hour.max(initial=0) + 1))
    chance[:, items.ARTERIAL] = np.where(in_line, 0.96, 0.0)[:, None]
    chance[:, items.CUFF] = np.where(in_line, 0.25, 0.94)[:, None]
    chance[:, items.SECOND_LINE] = 0.3 * (rng.random() < _SECOND_LINE)
    chance[:, items.RR_TOTAL] = 0.25 * (rng.random() < _VENTILATED)
    draw = rng.random((count, len(_CHANCE)))
    for group in items.PRESSURES:
        draw[:, group] = draw[:, group[:1]]
    charted = draw < chance
    charted[:, [items.TEMP_F, items.TEMP_C]] = _thermometers(rng, moments)
    charted[moments.forced] |= items.IS_FORCED
    return charted


def _thermometers(rng: np.random.Generator, moments: Moments) -> BoolArray:
    """Draw when each thermometer is charted, (moments, 2), Fahrenheit first: four-hourly, in one unit or both."""
    four_hourly = moments.routine & ((moments.time // HOUR) % 4 == 0)
    taken = rng.random(len(four_hourly)) < np.where(four_hourly, 0.93, 0.03)
    celsius = (rng.random(len(taken)) < _OTHER_UNIT) ^ (rng.random() < _CELSIUS_WARD)
    both = rng.random(len(taken)) < _BOTH_UNITS
    return np.stack([taken & (~celsius | both), taken & (celsius | both)], axis=1)


def _stick(
    rng: np.random.Generator,
    tally: Tally,
    hour: IntArray,
    hours: int,
    value: FloatArray,
    charted: BoolArray,
    kind: npt.NDArray[np.int8],
) -> None:
    """Let monitors repeat their value for hours: overwrites `value` and marks `kind` from the second reading on."""
    starts = np.flatnonzero(rng.random(hours) < RATE["stuck"])
    tally.add("stuck", hours)
    for start in starts:
        group = _STUCK_GROUPS[int(rng.integers(len(_STUCK_GROUPS)))]
        end = start + rng.uniform(*_STUCK_HOURS)
        for column in group:
            free = charted[:, column] & (kind[:, column] == 0)
            rows = np.flatnonzero(free & (hour >= start) & (hour < end))
            value[rows[1:], column] = value[rows[:1], column]
            kind[rows[1:], column] = CODE["stuck"]


def _invert_pressure(
    rng: np.random.Generator, tally: Tally, value: FloatArray, charted: BoolArray, kind: npt.NDArray[np.int8]
) -> None:
    """Exchange systolic and diastolic of a few readings: overwrites `value` and marks `kind`."""
    for systolic, diastolic, _ in items.PRESSURES:
        free = charted[:, systolic] & charted[:, diastolic] & (kind[:, systolic] == 0) & (kind[:, diastolic] == 0)
        tally.add("inverted_pressure", int(free.sum()))
        rows = np.flatnonzero(free & (rng.random(len(free)) < RATE["inverted_pressure"]))
        value[rows, systolic], value[rows, diastolic] = value[rows, diastolic], value[rows, systolic]
        kind[rows, systolic] = kind[rows, diastolic] = CODE["inverted_pressure"]
