"""Invented patients in the MIMIC-IV v3.1 layout, with planted faults and the truth beside them.

Beside the source files, `simulate` writes what no real source has:

- truth/hours.parquet, one row per stay-hour: the latent vitals (bpm, mmHg, breaths/min, %, degrees Celsius), the
  deterioration episode and its severity, and whether the hour was a charting gap or a burst. A faultless reading is the
  latent value of its hour plus instrument error.
- truth/stays.parquet, one row per stay: the true intime, outtime and deathtime, and the channel that was never charted.
- truth/faults.parquet, one row per planted fault of `FAULTS`: the row, stay or patient it struck, and for rows the
  number as written beside the number that a faultless bedside would have written, in the item's own unit.
- SIMULATED.json, the marker: seed, number of patients, and for each fault its rate, how many could have had it and how
  many rows, stays or patients it struck. It holds no time of day.

Not simulated: faults of a whole file (a byte-order mark, CRLF, mixed time formats, a missing column).
"""

from cohort_sql.simulate.rates import FAULTS, Fault
from cohort_sql.simulate.simulator import MARKER, SimulateError, simulate

__all__ = ["FAULTS", "MARKER", "Fault", "SimulateError", "simulate"]
