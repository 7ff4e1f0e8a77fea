"""A campaign as a step: no data in, one JSON table of claims out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from evaluation.campaigns import CAMPAIGNS, run_campaign
from evaluation.campaigns.table import Size
from flows.errors import FlowError
from flows.progress import current_progress
from flows.run.manifest import package_versions
from flows.run.publish import write_json
from flows.settings import Settings

_FIELDS = {"quantity", "conditions", "ours", "published", "source", "target", "status", "reason"}


def campaign(name: str, out: Path, size: Size, settings: Settings) -> dict[str, Any]:
    """Run a campaign on one thread, write its table to ``out`` and return it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            table = run_campaign(name, size, settings.seed, current_progress().fraction)
    finally:
        torch.set_num_threads(threads)
    document: dict[str, Any] = {**table, "versions": package_versions()}
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_json(out.absolute(), document)
    return document


def campaign_rows(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The claims of files that `icu-memory campaign` wrote, each with its campaign and size, for the report."""
    rows = []
    for file in files:
        try:
            table = json.loads(file.read_text(encoding="utf-8"))
            named = {"campaign": table["campaign"], "size": table["settings"]["size"]}
            sound = table["campaign"] in CAMPAIGNS and all(set(row) == _FIELDS for row in table["rows"])
        except (OSError, ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            raise FlowError(f"{file}: is not a table that `icu-memory campaign` wrote; give its --out file")
        rows += [{**named, **row} for row in table["rows"]]
    return rows
