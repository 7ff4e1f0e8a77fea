"""Invented patients with their admissions and intensive-care stays, before anything is charted."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from cohort_sql.simulate.rates import Tally, choose

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86_400, 31_557_600
SLOTS = 16
LARGEST = 10_000_000 // SLOTS

_ADMISSIONS = (0.80, 0.13, 0.05, 0.02)
_STAYS = (0.88, 0.09, 0.03)
_MEDIAN_HOURS, _SPREAD, _SHORTEST_HOURS, _LONGEST_HOURS = 62.0, 1.0, 2.0, 1440.0
_ICU_DEATH, _WARD_DEATH = 0.07, 0.03
_TIME_FAULTS = ("null_outtime", "outtime_before_intime", "los_disagrees", "null_los")
_JOIN_FAULTS = ("overlapping_stay", "touching_stay")

_UNITS = (
    "Medical Intensive Care Unit (MICU)",
    "Surgical Intensive Care Unit (SICU)",
    "Medical/Surgical Intensive Care Unit (MICU/SICU)",
    "Coronary Care Unit (CCU)",
    "Cardiac Vascular Intensive Care Unit (CVICU)",
    "Trauma SICU (TSICU)",
    "Neuro Surgical Intensive Care Unit (Neuro SICU)",
)
_YEAR_GROUPS = ("2008 - 2010", "2011 - 2013", "2014 - 2016", "2017 - 2019", "2020 - 2022")
_TYPES = ("URGENT", "ELECTIVE", "OBSERVATION ADMIT", "SURGICAL SAME DAY ADMISSION")
_ENTRANCES = ("PHYSICIAN REFERRAL", "TRANSFER FROM HOSPITAL", "WALK-IN/SELF REFERRAL")
_EXITS = ("HOME", "HOME HEALTH CARE", "SKILLED NURSING FACILITY", "REHAB")
_INSURANCES = ("Medicare", "Medicaid", "Private", "Other")
_LANGUAGES = ("English", "Spanish", "Russian", "Chinese", "Other")
_MARITAL = ("MARRIED", "SINGLE", "WIDOWED", "DIVORCED")
_RACES = ("WHITE", "BLACK/AFRICAN AMERICAN", "HISPANIC/LATINO", "ASIAN", "OTHER", "UNKNOWN")


class Stay(NamedTuple):
    """One stay with its true times in seconds since 1970; `fault` strikes the times as written, `join` their order."""

    subject_id: int
    hadm_id: int
    stay_id: int
    unit: str
    intime: int
    outtime: int
    deathtime: int | None
    fault: str | None
    join: str | None
    fault_size: float


class Person(NamedTuple):
    """One patient: rows for hosp/patients and hosp/admissions, and the stays."""

    patient: dict[str, Any]
    admissions: list[dict[str, Any]]
    stays: list[Stay]
    minor: bool


class Numbering:
    """Gives every patient, admission and stay an eight-digit id that says nothing about its position.

    An affine bijection of 0..9,999,999 for each kind of id, shifted by the seed; unique by construction.
    """

    _MULTIPLIERS = (6_364_137, 2_862_933, 7_046_029)  # coprime to 10,000,000

    def __init__(self, seed: int) -> None:
        self._shifts = [int(word) for word in np.random.SeedSequence(seed).generate_state(3)]

    def subject(self, patient: int) -> int:
        """Return the subject_id of patient number `patient`."""
        return self._number(0, patient)

    def admission(self, patient: int, nth: int) -> int:
        """Return the hadm_id of the patient's admission `nth`."""
        return self._number(1, patient * SLOTS + nth)

    def stay(self, patient: int, nth: int) -> int:
        """Return the stay_id of the patient's stay `nth`, counted over all admissions."""
        return self._number(2, patient * SLOTS + nth)

    def _number(self, kind: int, position: int) -> int:
        return (kind + 1) * 10_000_000 + (position * self._MULTIPLIERS[kind] + self._shifts[kind]) % 10_000_000


def invent_person(rng: np.random.Generator, tally: Tally, numbering: Numbering, number: int) -> Person:
    """Draw patient `number` with all admissions and stays; the result depends on `rng` and `number` alone."""
    year = int(rng.integers(2110, 2201))
    minor = choose(rng, tally, ("minor",)) is not None
    age = int(rng.integers(14, 18)) if minor else int(np.clip(rng.normal(64.0, 17.0), 19, 91))
    # The first admission begins in the anchor year: a minor's age at it is the anchor age.
    start = _on_the_minute(_new_year(year) + rng.uniform(0.0, 0.95 * YEAR))
    admissions: list[dict[str, Any]] = []
    stays: list[Stay] = []
    remaining = 1 + int(rng.choice(len(_ADMISSIONS), p=_ADMISSIONS))
    while remaining:
        remaining -= 1
        slots = _Slots(numbering, number, len(admissions), len(stays))
        course = _course(rng, tally, slots, start, dying=remaining == 0)
        admissions.append(_admission(rng, course, start))
        stays.extend(course.stays)
        start = _on_the_minute(course.discharge + rng.uniform(20 * DAY, 1.5 * YEAR))
    patient = {
        "subject_id": numbering.subject(number),
        "gender": _pick(rng, ("F", "M")),
        "anchor_age": age,
        "anchor_year": year,
        "anchor_year_group": _pick(rng, _YEAR_GROUPS),
        "dod": course.deathtime,
    }
    return Person(patient, admissions, stays, minor)


class _Slots(NamedTuple):
    """Where an admission and its stays stand in the numbering."""

    numbering: Numbering
    patient: int
    admission: int
    stay: int


class _Course(NamedTuple):
    """The stays of one admission and how it ends."""

    stays: list[Stay]
    discharge: int
    deathtime: int | None


def _course(rng: np.random.Generator, tally: Tally, slots: _Slots, start: int, dying: bool) -> _Course:
    """Draw the stays of one admission one after another; only a patient's last admission may be `dying`."""
    count = 1 + int(rng.choice(len(_STAYS), p=_STAYS))
    fate = rng.random() if dying else 1.0
    stays: list[Stay] = []
    for nth in range(count):
        join = choose(rng, tally, _JOIN_FAULTS) if nth else None
        intime = _intime(rng, start, stays, join)
        # Nobody dies in a stay that overlaps another: the other might go on charting.
        dies_here = nth == count - 1 and fate < _ICU_DEATH and join != "overlapping_stay"
        outtime = intime + int(HOUR * _hours(rng))
        outtime = _on_the_minute(outtime) if dies_here else outtime
        deathtime = _deathtime(rng, tally, intime, outtime) if dies_here else None
        stays.append(
            Stay(
                subject_id=slots.numbering.subject(slots.patient),
                hadm_id=slots.numbering.admission(slots.patient, slots.admission),
                stay_id=slots.numbering.stay(slots.patient, slots.stay + nth),
                unit=_pick(rng, _UNITS),
                intime=intime,
                outtime=outtime,
                deathtime=deathtime,
                fault=choose(rng, tally, _TIME_FAULTS),
                join=join,
                fault_size=rng.random(),
            )
        )
    if stays[-1].deathtime is not None:
        return _Course(stays, stays[-1].deathtime, stays[-1].deathtime)
    discharge = _on_the_minute(max(stay.outtime for stay in stays) + rng.uniform(HOUR, 6 * DAY))
    return _Course(stays, discharge, discharge if fate < _ICU_DEATH + _WARD_DEATH else None)


def _intime(rng: np.random.Generator, start: int, stays: list[Stay], join: str | None) -> int:
    """Place a stay after admission, or after, at or before the end of the stay that precedes it."""
    if not stays:
        return start + int(rng.uniform(0.2 * HOUR, DAY))
    previous = stays[-1]
    if join == "touching_stay":
        return previous.outtime
    if join == "overlapping_stay":
        return previous.outtime - int(rng.uniform(0.1, 0.6) * (previous.outtime - previous.intime))
    return previous.outtime + int(rng.uniform(4 * HOUR, 5 * DAY))


def _hours(rng: np.random.Generator) -> float:
    """Draw the length of a stay in hours: log-normal, so that a few stays last for weeks."""
    length = rng.lognormal(np.log(_MEDIAN_HOURS), _SPREAD)
    return float(np.clip(length, _SHORTEST_HOURS, _LONGEST_HOURS))


def _deathtime(rng: np.random.Generator, tally: Tally, intime: int, outtime: int) -> int:
    """Let death end the stay, or come hours before its outtime while the monitors still chart."""
    if choose(rng, tally, ("after_death",)) is None:
        return outtime
    return _on_the_minute(outtime - rng.uniform(0.1, 0.4) * min(outtime - intime, 15 * HOUR))


def _admission(rng: np.random.Generator, course: _Course, start: int) -> dict[str, Any]:
    """Return one row of hosp/admissions; times are seconds since 1970."""
    emergency = rng.random() < 0.6
    return {
        "subject_id": course.stays[0].subject_id,
        "hadm_id": course.stays[0].hadm_id,
        "admittime": start,
        "dischtime": course.discharge,
        "deathtime": course.deathtime,
        "admission_type": "EW EMER." if emergency else _pick(rng, _TYPES),
        "admit_provider_id": f"P{int(rng.integers(100_000)):05d}",
        "admission_location": "EMERGENCY ROOM" if emergency else _pick(rng, _ENTRANCES),
        "discharge_location": "DIED" if course.deathtime is not None else _pick(rng, _EXITS),
        "insurance": _pick(rng, _INSURANCES),
        "language": _pick(rng, _LANGUAGES),
        "marital_status": _pick(rng, _MARITAL),
        "race": _pick(rng, _RACES),
        "edregtime": _on_the_minute(start - rng.uniform(HOUR, 12 * HOUR)) if emergency else None,
        "edouttime": _on_the_minute(start + rng.uniform(0.0, HOUR)) if emergency else None,
        "hospital_expire_flag": int(course.deathtime is not None),
    }


def _pick(rng: np.random.Generator, options: tuple[str, ...]) -> str:
    """Draw one of equally likely options."""
    return options[int(rng.integers(len(options)))]


def _on_the_minute(seconds: float) -> int:
    """Return the start of the minute, as everything but intime and outtime is charted."""
    return int(seconds) // MINUTE * MINUTE


def _new_year(year: int) -> int:
    """Return the seconds from 1970 to the first second of `year`."""
    return int((datetime(year, 1, 1) - datetime(1970, 1, 1)).total_seconds())
