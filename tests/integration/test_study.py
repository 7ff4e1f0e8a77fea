from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Command

from flows.run.inventory import inventory
from flows.run.layout import RunLayout

pytestmark = pytest.mark.integration


def counted(run: Path) -> int:
    return len(list((run / ".generation" / "evaluate").glob("counts-*.parquet")))


KILLS: dict[str, Callable[[Path], bool]] = {
    "the run was made": lambda run: (run / "manifest.json").exists(),
    "the cohort is being built": lambda run: (run / ".generation" / "cohort").exists(),
    "the cohort was published": lambda run: (run / "cohort").exists(),
    "one bucket was measured": lambda run: counted(run) >= 1,
    "half of the buckets were measured": lambda run: counted(run) >= 8,
    "the tables were being published": lambda run: (run / "results").exists(),
}


def kill_when(process: subprocess.Popen[str], run: Path, reached: Callable[[Path], bool]) -> None:
    deadline = time.monotonic() + 120
    while not reached(run):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    assert process.poll() is None
    process.kill()
    process.communicate()


def test_a_study_killed_again_and_again_ends_with_the_same_bytes(
    command: Command, source: Path, server: str, finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    study = ("study", source, "--out", run, "--quick")
    for reached in KILLS.values():
        kill_when(command.start(*study, PREFECT_API_URL=server), run, reached)
    measured = counted(run)
    done = command.run(*study, PREFECT_API_URL=server)
    assert done.returncode == 0, done.stderr
    assert measured >= 8
    assert inventory(RunLayout(run)) == inventory(RunLayout(finished))
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in finished.iterdir())


def test_a_finished_study_is_repeated_in_a_moment_without_a_server(
    command: Command, source: Path, finished: Path
) -> None:
    before = (finished / "manifest.json").read_bytes()
    began = time.monotonic()
    again = command.run("study", source, "--out", finished, "--quick", PREFECT_API_URL="http://127.0.0.1:1/api")
    assert again.returncode == 0, again.stderr
    assert time.monotonic() - began < 8
    assert again.stdout.strip() == str(finished / "report.html")
    assert (finished / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("engine", [("--workers", "1"), ("--runner", "dask", "--workers", "2")], ids=["one", "dask"])
def test_workers_and_engine_do_not_change_a_byte(
    engine: tuple[str, ...], command: Command, source: Path, server: str, finished: Path, tmp_path: Path
) -> None:
    flags = ("--out", tmp_path / "run", "--quick", *engine)
    done = command.run("study", source, *flags, OMP_NUM_THREADS="2", PREFECT_API_URL=server)
    assert done.returncode == 0, done.stderr
    assert "distributed" not in done.stderr
    assert inventory(RunLayout(tmp_path / "run")) == inventory(RunLayout(finished))


def test_two_studies_in_one_run_the_second_is_refused(
    command: Command, source: Path, server: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    first = command.start("study", source, "--out", run, "--quick", PREFECT_API_URL=server)
    while not (run / "manifest.json").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    second = command.run("study", source, "--out", run, "--quick")
    assert second.returncode == 1
    assert second.stderr.startswith("error: ")
    assert "another command is working in it" in second.stderr
    assert first.wait(timeout=300) == 0
    first.communicate()


def test_times_and_host_facts_are_in_the_manifest_only(finished: Path, source: Path) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    assert all(step["state"] == "done" and step["seconds"] >= 0 for step in manifest["steps"].values())
    assert manifest["source"]["path"] == str(source)
    for entry in inventory(RunLayout(finished)):
        assert str(source).encode() not in (finished / entry.name).read_bytes()
    assert not (finished / ".generation").exists()
