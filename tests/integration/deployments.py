"""Deployments on a server of the tests: registering them, workers as processes, runs through the server's own API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import Command

SETTINGS = """
stays = 16
buckets = 4
wards = 2
directions = 16
recall_events = 1
bootstrap_draws = 100
"""
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


BUSY = 503  # its database is locked for a moment


class Refused(Exception):
    """The server has refused a request; holds its answer."""


@dataclass(frozen=True)
class Deployments:
    """A server's address and the command line whose orchestrator's home it uses."""

    command: Command
    address: str

    def environment(self, **more: str) -> dict[str, str]:
        return self.command.environment(PREFECT_API_URL=self.address, PREFECT_WORKER_QUERY_SECONDS="1", **more)

    def orchestrator(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "flows.orchestrator", *arguments, "--data-root", str(self.command.home.parent)]

    def register(self) -> str:
        done = subprocess.run(
            self.orchestrator("deploy"),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def worker(self, log: Path, pool: str = "icu-cpu", **more: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker in a process group of its own, ended with all that it started when the block ends."""
        with log.open("ab") as stream:
            process = subprocess.Popen(
                self.orchestrator("worker", "--pool", pool), env=self.environment(**more), start_new_session=True,
                stdout=stream, stderr=stream,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.address}/{path}", method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as refusal:
                if refusal.code != BUSY:
                    raise Refused(refusal.read().decode()) from None
                time.sleep(1)

    def start(self, name: str, **parameters: Any) -> str:
        """Ask for a run of a deployment `flow/name`; returns the run's id."""
        deployment = self.call("GET", f"deployments/name/{name}")["id"]
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return str(self.call("POST", f"deployments/{deployment}/create_flow_run", body)["id"])

    def state(self, run: str) -> dict[str, Any]:
        return dict(self.call("GET", f"flow_runs/{run}")["state"])

    def wait(self, run: str, seconds: float = 180) -> dict[str, Any]:
        """The state in which a run has ended."""
        self.wait_until(lambda: self.state(run)["type"] in FINAL, seconds)
        return self.state(run)

    def wait_until(self, reached: Callable[[], bool], seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def ended(self, name: str, **parameters: Any) -> dict[str, Any]:
        return self.wait(self.start(name, **parameters))

    def steps_of(self, run: str) -> str:
        """The flow run inside a deployment run that holds the tasks."""
        inner = {"flow_runs": {"parent_flow_run_id": {"any_": [run]}}}
        (found,) = self.call("POST", "flow_runs/filter", inner)
        return str(found["id"])

    def tasks(self, run: str) -> list[str]:
        """The tasks of a flow run by name, one entry a task run."""
        found: list[str] = []
        while True:
            body = {"flow_runs": {"id": {"any_": [run]}}, "limit": 200, "offset": len(found), "sort": "ID_DESC"}
            page = self.call("POST", "task_runs/filter", body)
            found += [task["name"].split("-")[0] for task in page]
            if len(page) < 200:
                return sorted(found)

    def artefacts(self, *runs: str) -> dict[str, Any]:
        body = {"artifacts": {"flow_run_id": {"any_": list(runs)}}}
        return {found["key"]: found["data"] for found in self.call("POST", "artifacts/filter", body)}


def flow_processes(worker: int) -> list[int]:
    """The processes that a worker has started, and theirs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit():
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], list(children.get(worker, []))
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found
