"""The faults that the simulator plants, each with its rate: the one table to read or to change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Fault(NamedTuple):
    """One kind of fault: `rate` is the probability for each `per` that no earlier fault has touched."""

    kind: str
    level: str
    rate: float
    per: str
    meaning: str


FAULTS = (
    # Faults of one chart row. A row carries one at most, so each has one right answer.
    Fault("implausible", "row", 0.0010, "vital row", "a number no patient has, e.g. a heart rate of 10,000,000"),
    Fault("zero", "row", 0.0010, "monitor row", "leads off, charted as 0"),
    Fault("fahrenheit_under_celsius", "row", 0.0100, "Celsius row", "the Celsius item holds a Fahrenheit reading"),
    Fault("celsius_under_fahrenheit", "row", 0.0100, "Fahrenheit row", "the Fahrenheit item holds a Celsius reading"),
    Fault("identical_duplicate", "row", 0.0010, "vital row", "the same row twice"),
    Fault("conflicting_value", "row", 0.0010, "vital row", "another value for the same stay, item and time"),
    Fault("null_valuenum", "row", 0.0010, "vital row", "no number, sometimes with a remark as value"),
    Fault("warning", "row", 0.0015, "vital row", "warning = 1 on a good reading"),
    Fault("stored_early", "row", 0.0200, "vital row", "storetime before charttime"),
    Fault("single_precision", "row", 0.0300, "thermometer row", "single-precision noise, e.g. 36.900001525878906"),
    Fault("quoted_text", "row", 0.0300, "text row", "value with commas, quotes and line breaks, late in the file"),
    # Faults that strike several rows together; each affected row is in the truth.
    Fault("inverted_pressure", "row", 0.0020, "pressure reading", "systolic and diastolic exchanged"),
    Fault("stuck", "row", 0.0020, "stay hour", "a monitor repeats its value for the next hours"),
    Fault("before_intime", "row", 0.3000, "stay with vitals", "readings up to 156 minutes before intime"),
    Fault("after_outtime", "row", 0.0500, "stay with vitals", "readings up to 6 hours after outtime"),
    Fault("years_late", "row", 0.0050, "stay with vitals", "one row charted one to three years late"),
    Fault("after_death", "row", 0.2000, "death in intensive care", "readings after deathtime and before outtime"),
    # Faults of a stay. Those of its times exclude each other.
    Fault("null_outtime", "stay", 0.0060, "stay", "outtime and los missing"),
    Fault("outtime_before_intime", "stay", 0.0060, "stay", "outtime up to two days before intime"),
    Fault("los_disagrees", "stay", 0.0060, "stay", "los is not the time between intime and outtime"),
    Fault("null_los", "stay", 0.0060, "stay", "los missing"),
    Fault("overlapping_stay", "stay", 0.1500, "later stay of an admission", "starts before the one before it ends"),
    Fault("touching_stay", "stay", 0.3000, "later stay of an admission", "starts when the one before it ends"),
    Fault("no_vitals", "stay", 0.0150, "stay", "no row of any vital"),
    Fault("channel_missing", "stay", 0.0200, "stay with vitals", "one vital never charted"),
    # Faults of a patient.
    Fault("minor", "patient", 0.0100, "patient", "younger than 18 at the first admission"),
)

CODE = {fault.kind: code for code, fault in enumerate(FAULTS, start=1)}
RATE = {fault.kind: fault.rate for fault in FAULTS}


class Tally:
    """Counts, for every fault kind, how many could have had it: the denominators of the stated rates."""

    def __init__(self) -> None:
        self._eligible = np.zeros(len(FAULTS) + 1, dtype=np.int64)

    def add(self, kind: str, eligible: int) -> None:
        """Count `eligible` more rows, readings, hours, stays or patients that could have had `kind`."""
        self._eligible[CODE[kind]] += eligible

    def eligible(self) -> dict[str, int]:
        """Return the denominator of each kind."""
        return {kind: int(self._eligible[code]) for kind, code in CODE.items()}


def choose(rng: np.random.Generator, tally: Tally, kinds: tuple[str, ...]) -> str | None:
    """Draw at most one of several exclusive `kinds` for one stay or patient, and count it as eligible for each."""
    draw, edge = rng.random(), 0.0
    chosen = None
    for kind in kinds:
        tally.add(kind, 1)
        if edge <= draw < edge + RATE[kind]:
            chosen = kind
        edge += RATE[kind]
    return chosen
