"""Deployments against a real server with real process workers."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Command
from deployments import SETTINGS, Deployments, Refused, flow_processes

from flows.run.inventory import inventory
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import read_manifest

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site(command: Command, server: str) -> Deployments:
    made = Deployments(command, server)
    made.register()
    return made


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worker") / "log"


@pytest.fixture
def worker(site: Deployments, log: Path) -> Iterator[int]:
    with site.worker(log) as process:
        yield process.pid


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("settings") / "small.toml"
    file.write_text(SETTINGS, encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def reference(command: Command, server: str, source: Path, named: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the command line makes of the same source and settings."""
    run = tmp_path_factory.mktemp("reference") / "run"
    done = command.run("study", source, "--out", run, "--settings", named, PREFECT_API_URL=server)
    assert done.returncode == 0, done.stderr
    return inventory(RunLayout(run))


def begun(run: Path) -> bool:
    # One named directory: a walk meets directories that vanish under it.
    return any((run / ".generation" / "evaluate").glob("counts-*.parquet"))


def test_two_studies_at_once_on_one_server_end_with_the_bytes_of_the_command_line(
    site: Deployments, worker: int, source: Path, named: str, reference: Any, tmp_path: Path
) -> None:
    runs = [tmp_path / "one" / "run", tmp_path / "two" / "run"]
    ids = [site.start("study/study", source=str(source), run=str(run), settings=named) for run in runs]
    for flow_run, run in zip(ids, runs, strict=True):
        state = site.wait(flow_run)
        assert state["type"] == "COMPLETED", state
        assert inventory(RunLayout(run)) == reference
        assert not (run / ".generation").exists()
        steps = site.steps_of(flow_run)
        artefacts = site.artefacts(flow_run, steps)
        assert artefacts.pop("report") == f"The report is at `{run}/report.html` on the machine of the run."
        assert artefacts
        assert set(artefacts.values()) == {100.0}
        manifest = read_manifest(RunLayout(run))
        assert manifest is not None
        count = len(manifest.steps["cohort"]["buckets"])
        tasks = Counter(site.tasks(steps))
        assert tasks["evaluate"] == tasks["stream"] == count
        assert {name for name, times in tasks.items() if times > 1} <= {"evaluate", "stream", "recall", "ward"}


def test_the_parts_by_themselves_make_the_same_run_and_a_failed_bucket_is_named_and_done_again_alone(
    site: Deployments, worker: int, source: Path, named: str, reference: Any, tmp_path: Path
) -> None:
    run, layout = tmp_path / "run", RunLayout(tmp_path / "run")
    assert site.ended("cohort/cohort", source=str(source), run=str(run), settings=named)["type"] == "COMPLETED"
    early = site.ended("evaluate/evaluate", run=str(run))
    assert early["type"] == "FAILED"
    assert "run the deployment stream first" in early["message"]
    in_the_way = layout.generation("stream") / f"svdd-{bucket_name(2)}.safetensors"
    in_the_way.mkdir(parents=True)
    failed = site.ended("stream/stream", run=str(run))
    assert failed["type"] == "FAILED"
    assert re.search(r"stream: bucket 2 failed and \d+ are finished; run the same command again", failed["message"])
    in_the_way.rmdir()
    finished = {path: path.stat().st_mtime_ns for path in (run / ".generation/stream").glob("tally-*")}
    assert len(finished) == len(read_manifest(layout).steps["cohort"]["buckets"]) - 1  # type: ignore[union-attr]
    for name in ("stream", "evaluate", "report"):
        assert site.ended(f"{name}/{name}", run=str(run))["type"] == "COMPLETED"
        assert name != "stream" or {path: path.stat().st_mtime_ns for path in finished} == finished
    assert inventory(layout) == reference


def test_a_worker_killed_with_its_flow_loses_nothing_and_another_ends_with_the_same_bytes(
    site: Deployments, log: Path, source: Path, named: str, reference: Any, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    asked: dict[str, Any] = {"source": str(source), "run": str(run), "settings": named}
    with site.worker(log) as first:
        site.start("study/study", **asked)
        site.wait_until(lambda: begun(run))
        for process in (first.pid, *flow_processes(first.pid)):
            os.kill(process, signal.SIGKILL)
    assert not (run / "report.html").exists()
    with site.worker(log):
        assert site.ended("study/study", **asked)["type"] == "COMPLETED"
    assert inventory(RunLayout(run)) == reference


def test_a_cancelled_run_stops_and_the_next_one_ends_with_the_same_bytes(
    site: Deployments, worker: int, source: Path, named: str, reference: Any, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    asked: dict[str, Any] = {"source": str(source), "run": str(run), "settings": named}
    flow_run = site.start("study/study", **asked)
    site.wait_until((run / "cohort").exists)
    site.call("POST", f"flow_runs/{flow_run}/set_state", {"state": {"type": "CANCELLING"}})
    assert site.wait(flow_run)["type"] == "CANCELLED"
    site.wait_until(lambda: not flow_processes(worker))
    assert site.ended("study/study", **asked)["type"] == "COMPLETED"
    assert inventory(RunLayout(run)) == reference


def test_memory_work_is_sent_to_a_device_worker_when_one_is_up(
    site: Deployments, worker: int, log: Path, source: Path, named: str, reference: Any, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with site.worker(log, "icu-gpu"):
        pool = "work_pools/icu-gpu/workers/filter"
        site.wait_until(lambda: any(found["status"] == "ONLINE" for found in site.call("POST", pool, {})))
        state = site.ended("study/study", source=str(source), run=str(run), settings=named)
    assert state["type"] == "COMPLETED", state
    sent = site.call("POST", "flow_runs/filter", {"deployments": {"name": {"any_": ["stream-gpu"]}}})
    assert [(found["parameters"]["run"], found["state"]["type"]) for found in sent] == [(str(run), "COMPLETED")]
    assert inventory(RunLayout(run)) == reference


def test_a_parameter_that_is_no_path_is_refused_by_the_server(site: Deployments) -> None:
    with pytest.raises(Refused, match="type"):
        site.start("study/study", source=482916000123, run="r")
