"""Whoever reads the orchestrator's database, logs and storage finds no patient of a deletion, done or refused."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import polars as pl
import pytest
from command_line import Command
from deployments import Deployments

from flows.evidence_forget import asked, small_site, subjects_of_run
from flows.run.layout import RunLayout
from flows.run.registry import opened_site
from flows.run.requests import read_request
from flows.steps.verify import trust, verify

pytestmark = pytest.mark.integration


def ids_of(layout: RunLayout, subject: int) -> list[int]:
    stays = pl.read_parquet(layout.cohort / "stays.parquet").filter(pl.col("subject_id") == subject)
    return [subject, *stays["stay_id"].to_list()]


def holding(place: Path, ids: list[int]) -> list[str]:
    """Files below a place in which an id stands, as text on its own or as a 64-bit integer."""
    text = re.compile(rb"(?<!\d)(?:" + b"|".join(str(number).encode() for number in ids) + rb")(?!\d)")
    packed = [struct.pack("<q", number) for number in ids]
    found = []
    for file in (path for path in place.rglob("*") if path.is_file()):
        content = file.read_bytes()
        if text.search(content) or any(form in content for form in packed):
            found.append(file.relative_to(place).as_posix())
    return found


def test_no_id_is_in_the_orchestrators_home_after_deletions_by_file_by_id_and_refused_ones(tmp_path: Path) -> None:
    layout, settings = small_site(tmp_path / "site", 8)
    state = settings.state or tmp_path
    command = Command(tmp_path / "home")
    first, second = subjects_of_run(layout)[:2]
    ids = [*ids_of(layout, first), *ids_of(layout, second)]
    by_file, by_id = asked(tmp_path, "request-file", first), asked(tmp_path, "request-mark", second)
    assert holding(tmp_path, ids[:1])  # the search can fail
    with opened_site(state) as site:
        site.receive(read_request(by_id))
    spoilt = tmp_path / "spoilt.json"
    spoilt.write_text(json.dumps({**json.loads(by_file.read_text()), "request_id": f"request-{first}"}))
    refused, done = (spoilt, tmp_path / "nowhere"), (by_file, "request-mark")
    log = tmp_path / "log" / "worker"
    log.parent.mkdir()
    with command.server() as address:
        orchestrator = Deployments(command, address)
        orchestrator.register()
        with orchestrator.worker(log, PREFECT_LOGGING_LEVEL="DEBUG", ICU_MEMORY_STATE=str(state)):
            for request in refused:
                assert orchestrator.ended("forget/forget", request=str(request))["type"] == "FAILED"
            for request in done:
                assert orchestrator.ended("forget/forget", request=str(request))["type"] == "COMPLETED"
        kept = ("flow_runs", "artifacts", "logs")
        told = json.dumps([orchestrator.call("POST", f"{kind}/filter", {}) for kind in kept])
    (log.parent / "told").write_text(told)
    assert "Carried out: 1 receipts" in told
    assert b"DEBUG" in log.read_bytes()
    assert (command.home / "prefect.db").stat().st_size > 10_000
    assert holding(command.home, ids) == []
    assert holding(tmp_path / "log", ids) == []
    assert not {first, second} & set(subjects_of_run(layout))
    assert len(verify(layout.root, trust(None, state, None), state).bundles) == 2
