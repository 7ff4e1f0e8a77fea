"""No id and no single vital reaches the orchestrator, a log, standard error or the report, whatever fails."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Command
from deployments import SETTINGS, Deployments, Refused

from cohort_sql.simulate import simulate

pytestmark = pytest.mark.integration

BASE = 482_916_000_000
CANARY = re.compile(rb"482916\d{6}|7319462")
SPOILT = Path(__file__).with_name("spoilt_study.py")


def marked(path: Path) -> None:
    """Ids of twelve digits and, for heart rates, digits that nothing else has."""
    rows = list(csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode(), newline="")))
    ids = [rows[0].index(name) for name in ("subject_id", "hadm_id", "stay_id") if name in rows[0]]
    item = rows[0].index("itemid") if "itemid" in rows[0] else None
    for row in rows[1:]:
        for at in ids:
            row[at] = str(BASE + int(row[at]) % 1_000_000)
        if item is not None and row[item] == "220045" and row[rows[0].index("valuenum")]:
            row[rows[0].index("valuenum")] = f"{float(row[rows[0].index('valuenum')]):.0f}.7319462"
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    path.write_bytes(gzip.compress(out.getvalue().encode(), mtime=0))


@pytest.fixture(scope="module")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("canaries") / "source"
    simulate(made, patients=16, seed=5)
    for name in ("icu/icustays", "icu/chartevents", "hosp/patients", "hosp/admissions"):
        marked(made / f"{name}.csv.gz")
    return made


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A command line whose orchestrator logs all it can into a home of its own."""
    return Command(tmp_path_factory.mktemp("watched"))


@pytest.fixture(scope="module")
def watched_server(watched: Command) -> Iterator[str]:
    with watched.server() as address:
        yield address


def hits(directory: Path) -> list[str]:
    return [str(file) for file in directory.rglob("*") if file.is_file() and CANARY.search(file.read_bytes())]


def spoken(process: subprocess.CompletedProcess[str]) -> bytes:
    return (process.stdout + process.stderr).encode()


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_canaries_are_in_the_cohort_so_that_the_search_can_fail(
    watched: Command, watched_server: str, canaries: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    loud = {"PREFECT_LOGGING_LEVEL": "DEBUG", "PREFECT_API_URL": watched_server}
    done = watched.run("study", canaries, "--out", run, "--quick", **loud)
    assert done.returncode == 0, done.stderr
    assert "DEBUG" in done.stderr
    assert not CANARY.search(spoken(done))
    assert not CANARY.search((run / "report.html").read_bytes())
    assert not CANARY.search((run / "manifest.json").read_bytes())
    assert hits(run / "results") == []
    assert hits(run / "memories")
    assert hits(watched.home) == []


def test_a_failure_inside_each_step_tells_no_value_and_one_failed_bucket_is_named(
    watched: Command, watched_server: str, canaries: Path, tmp_path: Path
) -> None:
    environment = watched.environment(PREFECT_LOGGING_LEVEL="DEBUG", PREFECT_API_URL=watched_server)
    done = subprocess.run(
        [sys.executable, str(SPOILT), str(canaries), str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout.splitlines()[-1])
    steps = ("cohort", "evaluate", "stream", "summarise", "report", "prepare", "wards", "recall")
    assert codes == dict.fromkeys(steps, 1) | {"one bucket": 4, "again": 0}
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == len(steps) + 1
    assert all("KeyError at" in line for line in errors)
    assert re.search(r"stream: bucket \d+ failed and \d+ are finished", errors[-1])
    assert not CANARY.search(spoken(done))
    assert hits(watched.home) == []


def test_a_study_stopped_by_hand_tells_nothing_and_can_be_continued(
    watched: Command, watched_server: str, canaries: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = watched.start("study", canaries, "--out", run, "--quick", PREFECT_API_URL=watched_server)
    wait_until((run / "cohort").exists, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "stopped by the user" in err
    assert not CANARY.search((out + err).encode())
    assert hits(watched.home) == []
    assert watched.run("study", canaries, "--out", run, "--quick", PREFECT_API_URL=watched_server).returncode == 0


def test_deployment_runs_that_succeed_fail_and_are_cancelled_tell_nothing_to_server_worker_and_artefacts(
    watched: Command, watched_server: str, canaries: Path, tmp_path: Path
) -> None:
    site = Deployments(watched, watched_server)
    site.register()
    log, run, named = tmp_path / "worker.log", tmp_path / "run", tmp_path / "small.toml"
    named.write_text(SETTINGS, encoding="utf-8")
    spoilt = {
        "unknown.toml": "subject = 482916000123",
        "range.toml": "stays = -482916000123",
        "text.toml": "482916000123",
    }
    for name, text in spoilt.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    asked = {"source": str(canaries), "run": str(run), "settings": str(named)}
    with site.worker(log, PREFECT_LOGGING_LEVEL="DEBUG"):
        with pytest.raises(Refused):
            site.start("study/study", **asked | {"source": BASE + 123})
        bad = [site.start("study/study", **asked | {"settings": str(tmp_path / name)}) for name in spoilt]
        bad.append(site.start("study/study", **asked | {"source": str(tmp_path / "nowhere")}))
        bad.append(site.start("stream/stream", run=str(tmp_path / "nothing")))
        states = [site.wait(flow_run) for flow_run in bad]
        assert {state["type"] for state in states} == {"FAILED"}
        assert all("Traceback" not in state["message"] for state in states)
        stopped = site.start("study/study", **asked)
        site.wait_until((run / "cohort").exists)
        site.call("POST", f"flow_runs/{stopped}/set_state", {"state": {"type": "CANCELLING"}})
        assert site.wait(stopped)["type"] == "CANCELLED"
        in_the_way = run / ".generation" / "stream" / "svdd-bucket=01.safetensors"
        in_the_way.mkdir(parents=True, exist_ok=True)
        assert "failed" in site.ended("study/study", **asked)["message"]
        in_the_way.rmdir()
        assert site.ended("study/study", **asked)["type"] == "COMPLETED"
    told = json.dumps([site.call("POST", f"{kind}/filter", {}) for kind in ("flow_runs", "artifacts", "logs")])
    assert "The report is at" in told
    assert not CANARY.search(told.encode())
    assert b"DEBUG" in log.read_bytes()
    assert not CANARY.search(log.read_bytes())
    assert not CANARY.search((run / "report.html").read_bytes())
    assert hits(watched.home) == []
