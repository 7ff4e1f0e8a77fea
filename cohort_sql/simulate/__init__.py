"""Invented patients in the MIMIC-IV v3.1 layout, with planted faults and the truth beside them."""

from cohort_sql.simulate.rates import FAULTS, Fault
from cohort_sql.simulate.simulator import MARKER, SimulateError, simulate

__all__ = ["FAULTS", "MARKER", "Fault", "SimulateError", "simulate"]
