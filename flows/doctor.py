"""What is ready and what is missing on this machine, told in a few seconds."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cohort_sql.source import find_source, preflight
from flows.environment import orchestrator_home
from flows.errors import FlowError, data_free, is_refusal
from flows.run.manifest import PACKAGES
from flows.run.registry import opened_site
from flows.settings import Settings
from flows.steps.preflight import SIMULATED
from flows.steps.site import suppressed_of

State = Literal["ready", "missing", "note"]

_SCRATCH_FACTOR = 4  # a cohort build needs about this many times the compressed source


@dataclass(frozen=True)
class Finding:
    """One thing looked at: whether it is ready, and in one line what was found or what to do."""

    name: str
    state: State
    text: str


def examine(source_name: str | None, settings: Settings, data_root: Path) -> list[Finding]:
    """Look at Python, libraries, compiled parts, device, disk, orchestrator, state directory and the source.

    Reads small tables only and starts nothing.
    """
    checks: list[Callable[[], Iterator[Finding]]] = [
        _python,
        _libraries,
        _compiled,
        lambda: _device(settings),
        lambda: _disk(data_root),
        lambda: _orchestrator(data_root),
        lambda: _state_directory(settings),
        lambda: _source(source_name, settings, data_root),
    ]
    return [finding for check in checks for finding in check()]


def _python() -> Iterator[Finding]:
    ready = sys.version_info >= (3, 11)
    yield Finding("python", "ready" if ready else "missing", platform.python_version())


def _libraries() -> Iterator[Finding]:
    for package in PACKAGES:
        try:
            yield Finding(package, "ready", version(package))
        except PackageNotFoundError:
            yield Finding(package, "missing", f"install it: python -m pip install {package}")


def _compiled() -> Iterator[Finding]:
    built = find_spec("memory.svdd._core") is not None
    yield Finding(
        "compiled solver",
        "ready" if built else "missing",
        "built" if built else "run `make test` or `pip install -e .`",
    )


def _device(settings: Settings) -> Iterator[Finding]:
    import torch  # noqa: PLC0415 (seconds to import)

    if torch.cuda.is_available():
        yield Finding("device", "ready", torch.cuda.get_device_name(0))
    elif settings.device == "cuda":
        yield Finding("device", "missing", "cuda was asked for and none is present; use --device auto")
    else:
        yield Finding("device", "note", "no cuda device; memories run on the CPU")


def _disk(data_root: Path) -> Iterator[Finding]:
    place = next(path for path in (data_root, *data_root.parents) if path.exists())
    free = shutil.disk_usage(place).free / 2**30
    writable = os.access(place, os.W_OK)
    yield Finding(
        "data root", "ready" if writable else "missing", f"{data_root}" if writable else f"{place} is not writable"
    )
    if place.stat().st_mode & 0o077:
        text = f"{place} can be read by others; runs are made for their owner alone, what stands beside them is not"
        yield Finding("data root", "note", text)
    yield Finding(
        "disk", "ready" if free >= 1 else "missing", f"{free:.1f} GiB free" + ("" if free >= 1 else "; make room")
    )


def _orchestrator(data_root: Path) -> Iterator[Finding]:
    address = os.environ.get("PREFECT_API_URL")
    text = f"server at {address}" if address else "a temporary server is started for each study"
    yield Finding("prefect server", "ready", text)
    home = orchestrator_home(data_root)
    yield Finding("prefect home", "ready", f"{home}, SQLite {sqlite3.sqlite_version}")


def _state_directory(settings: Settings) -> Iterator[Finding]:
    if settings.state is None:
        yield Finding("state directory", "note", "ICU_MEMORY_STATE is not set; deletions need one")
    elif not settings.state.exists():
        yield Finding("state directory", "note", f"{settings.state} is made by the first study or key")
    else:
        yield from _site(settings.state)


def _site(state: Path) -> Iterator[Finding]:
    """What an existing state directory holds; deletions that wait are told, not completed."""
    try:
        with opened_site(state) as site:
            runs, requests, pending = len(site.runs()), len(site.requests()), len(site.pending())
    except FlowError as refusal:
        yield Finding("state directory", "missing", str(refusal))
        return
    yield Finding("state directory", "ready", f"{state}, runs: {runs}, requests: {requests}")
    if pending:
        text = f"deletions past their intent: {pending}; the next study, report or delete completes them"
        yield Finding("state directory", "note", text)


def _source(name: str | None, settings: Settings, data_root: Path) -> Iterator[Finding]:
    if name is None:
        yield Finding("source", "note", "none named; give a MIMIC-IV directory, or `simulated`")
        return
    if name == SIMULATED:
        yield Finding("source", "ready", "invented patients, made on the spot")
        return
    try:
        source = find_source(Path(name))
        facts = preflight(source, preset=settings.preset, suppressed=suppressed_of(source, settings))
    except (ValueError, OSError) as failure:
        if isinstance(failure, ValueError) and not is_refusal(failure):
            raise
        yield Finding("source", "missing", str(data_free(failure, "source")))
        return
    for fact in facts:
        yield Finding("source", "ready", str(fact))
    needed = _SCRATCH_FACTOR * source.chartevents.stat().st_size / 2**30
    place = next(path for path in (data_root, *data_root.parents) if path.exists())
    if shutil.disk_usage(place).free / 2**30 < needed:
        yield Finding("disk", "missing", f"a build of this source may need {needed:.1f} GiB; make room")
