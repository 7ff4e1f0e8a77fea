"""Campaigns: what the sources of the memories claimed, measured again here, one module a source."""

from __future__ import annotations

from typing import Any, get_args

from evaluation.campaigns.nc01 import run as nc01
from evaluation.campaigns.recall import run as recall
from evaluation.campaigns.spectral import run as spectral
from evaluation.campaigns.table import Progress, Size
from evaluation.campaigns.vla import run as vla
from evaluation.errors import EvaluationError

CAMPAIGNS = {"nc01": nc01, "vla": vla, "spectral": spectral, "recall": recall}
SCHEMA_VERSION = 1


def run_campaign(name: str, size: Size = "ci", seed: int = 0, progress: Progress = lambda label, share: None) -> Any:
    """Return {"schema_version", "campaign", "settings", "rows", "raw"}: a row a claim, raw rows behind them.

    `size` "ci" takes seconds, "evidence" the published sizes and minutes. Deterministic given the seed, up to times of
    the spectral layer and rounding between builds. Raises EvaluationError for an unknown name or size.
    """
    if name not in CAMPAIGNS or size not in get_args(Size):
        raise EvaluationError(
            f"campaign {name!r} of size {size!r}: choose one of {', '.join(CAMPAIGNS)} and "
            f"{' or '.join(get_args(Size))}"
        )
    found = CAMPAIGNS[name](size, seed, progress)
    return {
        "schema_version": SCHEMA_VERSION,
        "campaign": name,
        "settings": {"size": size, "seed": seed},
        "rows": found.records(),
        "raw": found.raw,
    }
