"""The manifest: settings, versions, source, query digests and the state of every step."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flows.errors import FlowError
from flows.run.inventory import entries, file_digest
from flows.run.layout import RunLayout
from flows.run.publish import write_json

PACKAGES = ("icu-stream-memory", "duckdb", "numpy", "polars", "prefect", "pyarrow", "scikit-learn", "scipy", "torch")


@dataclass(frozen=True)
class Manifest:
    """What RUN/manifest.json holds; the only place for times and host facts."""

    settings: Mapping[str, Any]
    source: Mapping[str, Any]
    versions: Mapping[str, str]
    queries: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def with_step(self, name: str, **facts: Any) -> Manifest:
        """A copy in which one step has these facts."""
        return replace(self, steps={**self.steps, name: facts})

    def without_steps(self, names: Iterable[str]) -> Manifest:
        """A copy that has forgotten some steps."""
        dropped = set(names)
        return replace(self, steps={name: facts for name, facts in self.steps.items() if name not in dropped})


def package_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide the bytes of a run."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def read_manifest(layout: RunLayout) -> Manifest | None:
    """The manifest of a run, None where there is none; raises FlowError for one that cannot be read."""
    try:
        document = json.loads(layout.manifest.read_text(encoding="utf-8"))
        return Manifest(**{name: document[name] for name in Manifest.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise FlowError(f"{layout.manifest}: is not the manifest of a study; choose another --out") from None


def write_manifest(layout: RunLayout, manifest: Manifest) -> None:
    """Replace the manifest atomically."""
    write_json(layout.manifest, {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__})


def step_is_done(layout: RunLayout, manifest: Manifest, name: str, *, thorough: bool = False) -> bool:
    """Whether a step is recorded as done and its files are all there with their sizes, when thorough their digests."""
    facts = manifest.steps.get(name)
    if facts is None or facts.get("state") != "done":
        return False
    files: Mapping[str, Mapping[str, Any]] = facts.get("files", {})
    return all(_is_whole(layout.root / file, recorded, thorough) for file, recorded in files.items())


@contextmanager
def recorded_step(layout: RunLayout, name: str, parts: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Record a step as done, with its duration and files, when the block ends without an error.

    The block may add facts (counts, never ids) to the dictionary it is given; ``queries`` among them moves to the
    manifest's own field.
    """
    began = time.monotonic()
    facts: dict[str, Any] = {}
    yield facts
    manifest = read_manifest(layout)
    if manifest is None:
        raise FlowError(f"{layout.manifest}: vanished during the step {name}; run the same command again")
    manifest = replace(manifest, queries=facts.pop("queries", manifest.queries))
    seconds = round(time.monotonic() - began, 3)
    files = {entry.name: {"bytes": entry.size, "sha256": entry.digest} for entry in entries(layout, parts)}
    done = manifest.with_step(name, state="done", seconds=seconds, files=files, **facts)
    write_manifest(layout, done)


def _is_whole(file: Path, recorded: Mapping[str, Any], thorough: bool) -> bool:
    try:
        return file.stat().st_size == recorded["bytes"] and (not thorough or file_digest(file) == recorded["sha256"])
    except OSError:
        return False
