"""Evidence of deletions: patients of an invented source deleted one by one, and deletions killed at random points.

`python -m flows.evidence_forget` writes evidence/forget.json; a kill is the end of a process of its own at its n-th
operation on a file, flush to disk or rename, which the interpreter's audit hook counts.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cohort_sql.simulate import simulate
from cohort_sql.source import find_source
from flows.run.layout import RunLayout
from flows.run.publish import write_json
from flows.run.registry import opened_site
from flows.run.requests import new_request, write_request
from flows.settings import Settings
from flows.steps import report
from flows.steps.forget.generation import next_of
from flows.steps.forget.rebuilt import all_steps
from flows.steps.forget.work import Options, delete
from flows.steps.preflight import opened_run
from flows.steps.site import settled, suppressed_stays
from flows.steps.verify import site_keys, site_ledger, trust, verify
from memory.svdd import SVDDMemory

SMALL = {
    "bootstrap_draws": 20,
    "buckets": 3,
    "directions": 4,
    "recall_events": 0,
    "ward_hours": 200,
    "wards": 2,
}
KILLED = 9
_COUNTED = ("open", "os.", "shutil.", "sqlite3.", "ctypes.")
_LONGEST = 300


@dataclass(frozen=True)
class Killed:
    """What was found after a kill and the next command: counts over all kills."""

    kills: int
    before_the_intent: int
    completed: int
    half_states: int
    lost_receipts: int
    receipts_for_something_undone: int


def small_study(source: Path, run: Path, settings: Settings) -> RunLayout:
    """A study step by step in this process, without the orchestrator."""
    layout = RunLayout(run)
    with opened_run(layout, find_source(source), settings):
        all_steps(layout, settings)
        report.render(layout, settings)
        shutil.rmtree(layout.generations)
    return layout


def small_site(place: Path, patients: int) -> tuple[RunLayout, Settings]:
    """An invented source, a state directory with a key, and a registered run."""
    simulate(place / "source", patients=patients, seed=1)
    settings = Settings.model_validate({**SMALL, "state": place / "state"})
    with opened_site(place / "state"):
        site_keys(place / "state").new()
    return small_study(place / "source", place / "run", settings), settings


def asked(place: Path, request_id: str, subject: int) -> Path:
    """A request file about one patient."""
    file = place / f"{request_id}.json"
    write_request(file, new_request(request_id, "consent withdrawn", "patient", [subject], "patient", "data steward"))
    return file


def subjects_of_run(layout: RunLayout) -> list[int]:
    """The patients that a run holds."""
    stays = pl.read_parquet(layout.cohort / "stays.parquet", columns=["subject_id"])
    return sorted(stays["subject_id"].unique().to_list())


def tree_digest(root: Path) -> str:
    """SHA-256 over names and bytes of all files below a directory but its lock."""
    digest = hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.is_file() and path.name != ".lock"):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def delete_each(place: Path, patients: int, simulated: int) -> dict[str, Any]:
    """Delete patients one after another, each with an audit and a verification; counts and times."""
    layout, settings = small_site(place, simulated)
    seconds, passed = [], 0
    chosen = subjects_of_run(layout)[:patients]
    for number, subject in enumerate(chosen):
        began = time.monotonic()
        word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        delete(layout.root, [asked(place, f"request-{word}", subject)], settings, Options(audit=True))
        seconds.append(time.monotonic() - began)
        verify(layout.root, trust(None, settings.state, None), settings.state)
        passed += subject not in subjects_of_run(layout)
    return {"attempted": len(chosen), "passed": passed, "seconds": _spread(seconds)}


def kill_at_random(place: Path, kills: int, seed: int = 0, patients: int = 8) -> Killed:
    """Kill deletions at random operations and look at what the next command leaves."""
    layout, settings = small_site(place / "made", patients)
    subject = subjects_of_run(layout)[0]
    operations = _operations(place, layout, settings, subject)
    drawn = random.Random(seed)  # noqa: S311 (a draw of places, no secret)
    counts = dict.fromkeys(Killed.__dataclass_fields__, 0)
    for _ in range(kills):
        for name, found in _after_kill(place, layout, settings, subject, drawn.randrange(operations)).items():
            counts[name] += found
    return Killed(**counts)


def _operations(place: Path, layout: RunLayout, settings: Settings, subject: int) -> int:
    """How many operations a deletion takes from its start to its end."""
    with _Restored(place, layout, settings) as run:
        done = _child(run, settings, asked(run.root.parent, "request-one", subject), -1)
    return int(done.stdout.split()[-1])


def _after_kill(place: Path, layout: RunLayout, settings: Settings, subject: int, at: int) -> dict[str, int]:
    with _Restored(place, layout, settings) as run:
        before = tree_digest(run.root)
        _child(run, settings, asked(run.root.parent, "request-one", subject), at)
        settled(settings)
        held = subject in subjects_of_run(run)
        state = settings.state or Path()
        entries = site_ledger(state).size
        receipts = len(list((run.root / "receipts").glob("*.json"))) if not held else 0
        with opened_site(state) as site:
            done = site.request_state("request-one") == "done"
            listed = suppressed_stays(run, site.suppression())
        undone = held and done
        whole = (held and not entries and tree_digest(run.root) == before) or (not held and done and not listed)
        whole = whole and not next_of(run).root.exists()
        if not held:
            verify(run.root, trust(None, state, None), state)
    return {
        "kills": 1,
        "before_the_intent": int(held),
        "completed": int(not held),
        "half_states": int(not whole),
        "lost_receipts": int(not held and (receipts != 1 or entries != 2)),
        "receipts_for_something_undone": int(undone),
    }


class _Restored:
    """The site and its run put back as they were, in their own place."""

    def __init__(self, place: Path, layout: RunLayout, settings: Settings) -> None:
        self._saved, self._made, self._layout = place / "saved", layout.root.parent, layout

    def __enter__(self) -> RunLayout:
        if not self._saved.exists():
            shutil.copytree(self._made, self._saved)
        shutil.rmtree(self._made)
        shutil.copytree(self._saved, self._made)
        return self._layout

    def __exit__(self, *_: object) -> None:
        return


def _child(layout: RunLayout, settings: Settings, request: Path, at: int) -> subprocess.CompletedProcess[str]:
    arguments = ["--child", str(layout.root), str(settings.state), str(request), str(at)]
    done = subprocess.run(  # noqa: S603 (fixed arguments)
        [sys.executable, "-m", "flows.evidence_forget", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST,
    )
    if done.returncode not in (0, KILLED):
        raise RuntimeError(done.stderr)
    return done


def _child_main(run: str, state: str, request: str, at: int) -> None:
    """Delete, and end without any clean-up at operation ``at``; -1 never ends early."""
    counted = 0

    def one_more() -> None:
        nonlocal counted
        counted += 1
        if counted == at + 1:
            os._exit(KILLED)

    flush = os.fsync

    def counted_flush(descriptor: int) -> None:
        one_more()
        flush(descriptor)

    os.fsync = counted_flush  # type: ignore[assignment]  # the one operation that the interpreter does not audit
    sys.addaudithook(lambda event, _: one_more() if event.startswith(_COUNTED) else None)
    delete(Path(run), [Path(request)], Settings.model_validate({**SMALL, "state": state}))
    sys.stdout.write(f"{counted}\n")


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"least": ordered[0], "median": ordered[len(ordered) // 2], "most": ordered[-1]}


def figures(place: Path, patients: int, kills: int) -> dict[str, Any]:
    """All figures: deletions one by one, and kills."""
    deleted = delete_each(place / "each", patients, patients * 2)
    killed = asdict(kill_at_random(place / "kills", kills))
    return {"deletions": deleted, "kills": killed, "ward": delete_from_ward()}


def delete_from_ward(tokens: int = 2050, leaving: int = 40, seed: int = 0) -> dict[str, float]:
    """Delete a stay's tokens from a memory of invented keys, nearly all hot; processor seconds and the certificate."""
    drawn = np.random.default_rng(seed)
    memory = SVDDMemory(1.0 / (tokens - 70), 2.0).fit(drawn.normal(size=(tokens, 6)))
    memory.prune()
    hot = len(memory.to_state()["location"])
    chosen = drawn.choice(tokens, leaving, replace=False).tolist()
    began = time.process_time()
    memory.delete(chosen, below_capacity="collect")
    bound = memory.certificate().score_bound
    return {"hot": hot, "leaving": leaving, "seconds": time.process_time() - began, "certificate": bound}


def main(argv: Sequence[str] | None = None) -> int:
    """Write forget.json; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m flows.evidence_forget", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("evidence/forget.json"))
    parser.add_argument("--patients", type=int, default=100)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.child:
        run, state, request, at = chosen.child
        _child_main(run, state, request, int(at))
        return 0
    with tempfile.TemporaryDirectory(prefix="icu-memory-forget-") as place:
        write_json(chosen.out, {"schema_version": 1, **figures(Path(place), chosen.patients, chosen.kills)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
