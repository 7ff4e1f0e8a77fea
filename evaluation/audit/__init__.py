"""The deletion audit: what a memory still knows after a deletion, measured against a proved solution."""

from evaluation.audit.regimes import REGIMES, Regime
from evaluation.audit.run import run_audit
from evaluation.audit.tamper import run_tamper

__all__ = ["REGIMES", "Regime", "run_audit", "run_tamper"]
