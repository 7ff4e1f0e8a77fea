"""Evidence for operation: random kills of worker, server and flow, and Dask with one and two workers.

    python tests/operate.py [--kills 50] [--stays 2000] [--out FILE]

Kills: studies run as deployments of a real server; at a drawn moment the server, the worker (with what it started) or
the flow's process is killed with -9 and started again, and the study asked for again until its report is there. Its
bytes are compared with those of an undisturbed run, and parts that were finished at a kill with what they are later.
Dask: the streaming step of one cohort, bucket by bucket, by a local cluster of one and of two processes that is up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "integration")]

from command_line import Command, free_port  # noqa: E402
from deployments import FINAL, SETTINGS, Deployments, flow_processes  # noqa: E402

from cohort_sql.simulate import simulate  # noqa: E402
from flows.evidence import provenance  # noqa: E402
from flows.run.inventory import inventory  # noqa: E402
from flows.run.layout import RunLayout  # noqa: E402
from flows.run.manifest import read_manifest  # noqa: E402
from flows.settings import Settings  # noqa: E402

VICTIMS = ("worker", "server", "flow")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stays", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("evidence/operate.json"))
    chosen = parser.parse_args()
    found: dict[str, Any] = {"load_before": os.getloadavg()[0], "cores": len(os.sched_getaffinity(0))}
    with tempfile.TemporaryDirectory(prefix="icu-memory-operate-") as place:
        if chosen.stays:
            found["dask"] = engines(Path(place), chosen.stays)
        if chosen.kills:
            found["kills"] = Killed(Path(place), random.Random(chosen.seed)).rows(chosen.kills)
    text = json.dumps({**provenance(), "seed": chosen.seed, **found}, indent=1, sort_keys=True)
    chosen.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return int(bool(chosen.kills) and bool(found["kills"]["parts_lost"] or found["kills"]["runs_that_differ"]))


class Killed:
    """A server and a worker that are killed and started again while studies run."""

    def __init__(self, place: Path, draw: random.Random) -> None:
        self.place, self.draw = place, draw
        self.command = Command(place / "site" / ".prefect")
        self.port = free_port()
        self.site = Deployments(self.command, f"http://127.0.0.1:{self.port}/api")
        self.source, self.named = place / "source", place / "small.toml"
        self.running: dict[str, ExitStack] = {}
        self.pids: dict[str, list[int]] = {}
        self.command.home.mkdir(parents=True)
        self.killed: Counter[str] = Counter()
        self.finished: dict[Path, int] = {}
        self.lost = 0

    def rows(self, kills: int) -> dict[str, Any]:
        simulate(self.source, patients=24, seed=3)
        self.named.write_text(SETTINGS, encoding="utf-8")
        try:
            self.begin("server")
            self.site.register()
            self.begin("worker")
            expected = self.study(self.place / "undisturbed", 0)
            runs = differing = 0
            while sum(self.killed.values()) < kills:
                runs += 1
                differing += self.study(self.place / f"run-{runs}", kills) != expected
                told = f"{sum(self.killed.values())} kills {dict(self.killed)}, {runs} runs, {differing} differ"
                print(f"{told}, {self.lost} parts lost", file=sys.stderr, flush=True)
        finally:
            for name in list(self.running):
                self.running[name].close()
        counted = {"kills": sum(self.killed.values()), "of": dict(self.killed), "runs": runs}
        return {**counted, "parts_lost": self.lost, "runs_that_differ": differing}

    def begin(self, name: str) -> None:
        stack = self.running[name] = ExitStack()
        if name == "server":
            stack.enter_context(self.command.server(self.port))
            self.pids[name] = processes_on(self.port)
        else:
            self.pids[name] = [stack.enter_context(self.site.worker(self.place / "worker.log")).pid]

    def study(self, run: Path, kills: int) -> Any:
        asked = {"source": str(self.source), "run": str(run), "settings": str(self.named)}
        while True:
            flow_run = self.site.start("study/study", **asked)
            if sum(self.killed.values()) < kills:
                self.disturb(flow_run, run)
            with suppress(OSError):
                if self.ended(flow_run, run) == "COMPLETED" and (run / "report.html").exists():
                    return inventory(RunLayout(run))

    def disturb(self, flow_run: str, run: Path) -> None:
        """Kill one of the three at a drawn moment of a run, and start again what was killed."""
        self.site.wait_until(lambda: bool(flow_processes(*self.pids["worker"])), 60)
        until = time.monotonic() + self.draw.uniform(2, 24)
        while time.monotonic() < until:
            if self.site.state(flow_run)["type"] in FINAL:
                return
            time.sleep(0.05)
        victim = self.draw.choice(VICTIMS)
        flows = flow_processes(*self.pids["worker"])
        targets = flows if victim == "flow" else self.pids[victim]
        for process in targets:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not targets:
            return
        self.killed[victim] += 1
        self.finished |= {part: part.stat().st_mtime_ns for part in parts(run)}
        if victim != "flow":
            self.running[victim].close()
            self.begin(victim)
        self.site.wait_until(lambda: not any(alive(process) for process in flows), 240)

    def ended(self, flow_run: str, run: Path) -> str:
        """The type of state in which a run has ended, or was when no process of it was left."""
        quiet = 0
        while (state := str(self.site.state(flow_run)["type"])) not in FINAL and quiet < 60:
            quiet = 0 if flow_processes(*self.pids["worker"]) or state == "SCHEDULED" else quiet + 1
            for part, written in list(self.finished.items()):
                with suppress(OSError):
                    if part.stat().st_mtime_ns != written:
                        self.lost += 1
                        del self.finished[part]
            time.sleep(0.1)
        return state


def parts(run: Path) -> list[Path]:
    """The finished buckets of a run that are not put together yet."""
    forms = ("counts-*", "tally-*")
    return [part for form in forms for part in (run / ".generation").rglob(form) if not part.name.startswith(".")]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes_on(port: int) -> list[int]:
    """The server's process, by the port in its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"--port\0{port}\0".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def engines(place: Path, stays: int) -> dict[str, Any]:
    """Seconds of the streaming step by threads of this process and by one and two Dask workers, and the same bytes."""
    from distributed import Client, LocalCluster

    source, run = place / "many", place / "cohort" / "run"
    simulate(source, patients=round(stays / 1.2), seed=4)
    command = [sys.executable, "-m", "flows.cli", "study", str(source), "--out", str(run), "--quiet"]
    named = place / "many.toml"
    named.write_text(f"stays = {stays}\nbootstrap_draws = 2\nrecall_events = 0\n", encoding="utf-8")
    subprocess.run([*command, "--settings", str(named)], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    manifest = read_manifest(RunLayout(run))
    assert manifest is not None
    buckets = list(manifest.steps["cohort"]["buckets"])
    facts = {name: manifest.steps["cohort"][name] for name in ("stays", "tokens")}
    seconds, states = {}, []
    for workers in (1, 2):
        copied = place / f"dask-{workers}"
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            client.gather(client.map(time.sleep, [0.2] * workers, pure=False))
            client.run(_warm)
            began = time.monotonic()
            jobs = [(str(run), str(copied), bucket) for bucket in buckets]
            client.gather(client.map(_stream, jobs, pure=False))
            seconds[workers] = round(time.monotonic() - began, 2)
        files = sorted((copied / ".generation" / "stream").glob("*"))
        states.append([(file.name, file.read_bytes()) for file in files if file.is_file()])
    ratio = round(seconds[1] / seconds[2], 2)
    return {**facts, "seconds": seconds, "speed_ratio": ratio, "same_bytes": states[0] == states[1]}


def _warm() -> None:
    from flows.steps import stream

    assert stream


def _stream(job: tuple[str, str, int]) -> int:
    """Stream one bucket of a run's cohort into another directory, with the run's settings."""
    import shutil

    from flows.steps.stream import stream_bucket

    run, copied, bucket = Path(job[0]), Path(job[1]), job[2]
    layout = RunLayout(copied)
    with suppress(FileExistsError):
        copied.mkdir()
    with suppress(FileExistsError):
        layout.cohort.symlink_to(run / "cohort")
    if not layout.manifest.exists():
        document = json.loads((run / "manifest.json").read_text())
        document["steps"] = {"cohort": document["steps"]["cohort"]}
        beside = layout.manifest.with_name(f"manifest-{os.getpid()}")
        beside.write_text(json.dumps(document))
        beside.replace(layout.manifest)
    manifest = read_manifest(layout)
    assert manifest is not None
    settings = Settings.model_validate(dict(manifest.settings))
    features = layout.generation("stream") / "features.safetensors"
    if not features.exists():
        features.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / "memories" / "features.safetensors", features.with_name(f"features-{os.getpid()}"))
        features.with_name(f"features-{os.getpid()}").replace(features)
    return stream_bucket(layout, settings, bucket)


if __name__ == "__main__":
    sys.exit(main())
