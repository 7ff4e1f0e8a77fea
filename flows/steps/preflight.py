"""What is said before any server starts: the source, the run directory, the small dry build."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cohort_sql.build import build_cohort
from cohort_sql.simulate import simulate
from cohort_sql.source import Source, find_source, preflight
from flows.errors import FlowError, UsageProblem
from flows.progress import current_progress
from flows.run.layout import RunLayout
from flows.run.locks import run_lock
from flows.run.manifest import Manifest, package_versions, read_manifest, step_is_done, write_manifest
from flows.settings import Settings, operational_names
from flows.steps.cohort import cohort_arguments, left_out, refuse_without_events, scratch
from flows.steps.site import refuse_suppressed, registered, suppressed_of

STEPS = ("cohort", "evaluate", "report")
SIMULATED = "simulated"
SOURCE_VARIABLES = ("MIMICIV_PATH", "MIMIC_DATA_DIR")

_DRY_BUILD_BYTES = 64 * 2**20
_BLOCK = 2**16
_BLOCKS = 64
_OWN_ENTRIES = {".lock", ".generation", "manifest.json"}


def source_or_none(given: str | None) -> str | None:
    """The source a user means: the argument, else $MIMICIV_PATH, else $MIMIC_DATA_DIR, else None."""
    candidates = (given, *(os.environ.get(name) for name in SOURCE_VARIABLES))
    return next((candidate for candidate in candidates if candidate), None)


def named_source(given: str | None) -> str:
    """As `source_or_none`; raises UsageProblem where no source is named."""
    name = source_or_none(given)
    if name is None:
        names = " nor ".join(SOURCE_VARIABLES)
        raise UsageProblem(f"no SOURCE given and neither {names} is set; name a MIMIC-IV directory, or `simulated`")
    return name


def locate_source(name: str, layout: RunLayout, settings: Settings) -> Source:
    """Find the source; the word `simulated` makes a small invented one beside the run, or takes the one made before."""
    if name != SIMULATED:
        return find_source(Path(name))
    made = layout.data_root / "simulated" / f"patients-{settings.simulated_patients}-seed-{settings.seed}"
    if not made.is_dir():
        made.parent.mkdir(parents=True, exist_ok=True)
        simulate(
            made,
            patients=settings.simulated_patients,
            seed=settings.seed,
            progress=current_progress().counter("simulate", "patients"),
        )
    return find_source(made)


def source_facts(source: Source) -> dict[str, Any]:
    """What identifies a source: release, file names, sizes and digests of evenly spaced blocks of each file."""
    files = [file for file in (source.icustays, source.chartevents, source.patients, source.admissions) if file]
    listed = [{"name": file.name, "bytes": file.stat().st_size, "digest": _sampled_digest(file)} for file in files]
    return {
        "path": str(source.root.absolute()),
        "release": source.release,
        "simulated": source.simulated,
        "files": listed,
    }


@contextmanager
def opened_run(layout: RunLayout, source: Source, settings: Settings) -> Iterator[bool]:
    """Hold the run's lock with its manifest in place; yields whether any step is left to do.

    Raises FlowError, and leaves the disk as it was, for a directory that is not a run, a run with other settings or
    another source, a run in use, a run that holds a suppressed patient, a source that a small dry build refuses.
    """
    _refuse_foreign_directory(layout)
    _refuse_inside_source(layout, source)
    facts = source_facts(source)
    wanted = Manifest(settings.model_dump(mode="json"), facts, package_versions())
    with _made_or_removed(layout), run_lock(layout), registered(layout, facts, settings):
        refuse_suppressed(layout, settings.state)
        found = read_manifest(layout)
        if found is not None and (refusal := other_study(layout, found, wanted)):
            if found.steps:
                raise FlowError(f"run {layout.root}: {refusal}; choose another --out")
            shutil.rmtree(layout.generations, ignore_errors=True)
        sound = _sound_steps(layout, found, settings) if found is not None else {}
        if "cohort" not in sound:
            _dry_build(source, layout, settings)
        pending = set(sound) != set(STEPS)
        if pending:
            queries = found.queries if found is not None else {}
            write_manifest(layout, replace(wanted, queries=queries, steps=sound))
        yield pending


def _refuse_inside_source(layout: RunLayout, source: Source) -> None:
    """A run in the source's own directory would change what is to be left as it is."""
    if layout.root.absolute().resolve().is_relative_to(source.root.resolve()):
        raise FlowError(
            f"run {layout.root}: lies inside the source directory, which is only read; choose another --out"
        )


def _sound_steps(layout: RunLayout, found: Manifest, settings: Settings) -> dict[str, Mapping[str, Any]]:
    """The recorded steps whose files are there byte for byte; a report that shows other counts is not asked for."""
    sound = {step: found.steps[step] for step in STEPS if step_is_done(layout, found, step, thorough=True)}
    if "cohort" not in sound and settings.state is not None:
        return {}  # built anew, and perhaps without a patient whom the other steps have counted
    if found.settings.get("show_records") != settings.show_records:
        sound.pop("report", None)
    return sound


def other_study(layout: RunLayout, found: Manifest, wanted: Manifest) -> str | None:
    """What keeps the study a run holds from being the one asked for, or None where nothing does.

    Library versions count only while a study is unfinished: its parts must come from the same ones.
    """
    names = sorted((set(found.settings) | set(wanted.settings)) - operational_names())
    differing = [name for name in names if found.settings.get(name) != wanted.settings.get(name)]
    if differing:
        pairs = (f"{name} {found.settings.get(name)} there, {wanted.settings.get(name)} asked" for name in differing)
        return f"holds a study with other settings ({', '.join(pairs)})"
    if not same_source(found.source, wanted.source):
        return "holds a study of another source"
    changed = sorted(name for name, version in wanted.versions.items() if found.versions.get(name) != version)
    finished = all(step_is_done(layout, found, step, thorough=True) for step in STEPS)
    return f"was begun with other versions of {', '.join(changed)}" if changed and not finished else None


def same_source(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Whether two records of source facts are of one source, wherever it lies."""
    return _content(left) == _content(right)


def _content(source: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name != "path"}


def _refuse_foreign_directory(layout: RunLayout) -> None:
    root = layout.root
    if root.exists() and not root.is_dir():
        raise FlowError(f"--out {root}: is a file; name a directory")
    if root.is_dir() and not layout.manifest.exists():
        foreign = [entry.name for entry in root.iterdir() if entry.name not in _OWN_ENTRIES]
        if foreign:
            raise FlowError(f"--out {root}: holds {len(foreign)} entries but no study; choose a new or empty directory")


@contextmanager
def _made_or_removed(layout: RunLayout) -> Iterator[None]:
    """Make the run directory; when the block refuses before a manifest exists, remove what was made."""
    missing = [path for path in (layout.root, *layout.root.parents) if not path.exists()]
    try:
        layout.root.parent.mkdir(parents=True, exist_ok=True)
        layout.root.mkdir(mode=0o700, exist_ok=True)  # records of patients: for its owner alone
    except OSError as failure:
        raise FlowError(f"--out {layout.root}: cannot be made ({failure.strerror}); choose another --out") from None
    try:
        yield
    except BaseException:
        if not layout.manifest.exists() and missing:
            shutil.rmtree(layout.root, ignore_errors=True)
            for path in missing[1:]:
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
        raise


def _dry_build(source: Source, layout: RunLayout, settings: Settings) -> None:
    """Build the cohort of a small source once and drop it, so that its faults are told at once."""
    preflight(source, preset=settings.preset, suppressed=suppressed_of(source, settings))
    if source.chartevents.stat().st_size > _DRY_BUILD_BYTES:
        return
    trial = layout.generation("preflight")
    try:
        arguments = {**cohort_arguments(settings), **left_out(source, settings)}
        result = build_cohort(source, trial, scratch=scratch(layout), **arguments)
        refuse_without_events(result, settings)
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _sampled_digest(file: Path) -> str:
    """SHA-256 over at most 64 evenly spaced blocks of 64 KiB, the first and the last among them."""
    size = file.stat().st_size
    last = max(size - _BLOCK, 0)
    offsets = (
        range(0, size, _BLOCK) if size <= _BLOCK * _BLOCKS else [last * i // (_BLOCKS - 1) for i in range(_BLOCKS)]
    )
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for offset in offsets:
            stream.seek(offset)
            digest.update(stream.read(_BLOCK))
    return digest.hexdigest()
