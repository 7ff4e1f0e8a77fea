"""The next generation of a run: a complete directory beside it in which the deleted stays never were.

Files that hold nothing of them are hard links; a file is never changed in place, so the run stays as it is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from evaluation.retention import CHANNELS
from flows.run.inventory import entries
from flows.run.layout import RunLayout, bucket_name
from flows.run.manifest import recorded_step, write_manifest
from flows.run.publish import write_atomic, written_whole
from flows.run.states import read_states, write_states
from flows.settings import Settings
from flows.steps.forget.plan import Plan, is_restandardised
from flows.steps.forget.rebuilt import rebuild
from flows.steps.opened import opened_manifest, opened_settings
from flows.steps.report import write_report
from flows.steps.summarise import write_results
from flows.steps.wards import WARDS, Floats, Ward, build_ward, read_ward, subjects_of, ward_counts, write_ward
from memory.contract import MemoryRefused
from memory.svdd import SVDDMemory
from reports.receipts.state import build_state, state_digest

TOLERANCE = 1e-6  # largest certified error of a ward's score that counts as completed
_LINKED = ("cohort", "memories", "retained", "counts", "results", "receipts")
_PER_STAY = ("svdd", "vla", "nc01")


@dataclass(frozen=True)
class WardsDone:
    """What the deletions from the wards took: failures by reason, the worst certificate, the worst measured gap."""

    failures: Mapping[str, int] = field(default_factory=dict)
    worst: float = 0.0
    measured: float | None = None


def next_of(layout: RunLayout) -> RunLayout:
    """Where the next generation of a run is made: beside it, so that one exchange publishes it."""
    return RunLayout(layout.root.with_name(f".{layout.root.name}.next"))


def make_generation(layout: RunLayout, plan: Plan, *, audit: bool = False) -> tuple[str, WardsDone]:
    """Make the next generation of a run whole; returns the digest of its state manifest and what the wards took.

    What an earlier attempt left is dropped first.
    """
    made, settings = next_of(layout), opened_settings(layout)
    shutil.rmtree(made.root, ignore_errors=True)
    done = WardsDone()
    if is_restandardised(plan.actions):
        made.root.mkdir(mode=0o700)
        rebuild(layout, made, plan)
        _linked(layout, made, layout.receipts)
    else:
        _linked_copy(layout, made)
        if plan.changes:
            done = _without_stays(made, settings, plan.stays, audit=audit)
    _manifest_and_state(made)
    write_report_again(made)
    return state_digest(made.state_manifest.read_bytes()), done


def moved_statistics(before: RunLayout, after: RunLayout) -> float:
    """Largest change of a vital's mean or spread over all hours, in units of the former spread."""
    one, other = (_moments(layout) for layout in (before, after))
    changes = [np.abs(other[part] - one[part])[one[1] > 0] / one[1][one[1] > 0] for part in (0, 1)]
    return float(np.concatenate(changes).max(initial=0.0))


def _moments(layout: RunLayout) -> tuple[Floats, Floats]:
    """Means and spreads of the vitals, each (channels,), in their own units."""
    files = sorted(layout.cohort.glob("hourly/*/*.parquet"))
    hours = pl.read_parquet(files, columns=list(CHANNELS), hive_partitioning=False).to_numpy().astype(np.float64)
    return hours.mean(axis=0), hours.std(axis=0)


def write_report_again(layout: RunLayout) -> None:
    """Render and record the report of a generation from what it holds, its receipts among it."""
    with recorded_step(layout, "report", [layout.report]):
        write_report(layout, opened_settings(layout))


def state_files(layout: RunLayout) -> dict[str, str]:
    """Digest by path of every file that the state manifest lists."""
    parts = (layout.cohort, layout.memories, layout.retained, layout.counts, layout.results)
    return {entry.name: entry.digest for entry in entries(layout, parts)}


def _linked_copy(layout: RunLayout, made: RunLayout) -> None:
    made.root.mkdir(mode=0o700)
    for name in _LINKED:
        _linked(layout, made, layout.root / name)
    os.link(layout.manifest, made.manifest)
    os.link(layout.report, made.report)


def _linked(layout: RunLayout, made: RunLayout, directory: Path) -> None:
    """Link every file one by one: a copy of the whole tree would tell a full disk without its reason."""
    for path in [directory, *sorted(directory.rglob("*"))] if directory.is_dir() else ():
        place = made.root / path.relative_to(layout.root)
        if path.is_dir():
            place.mkdir()
        else:
            os.link(path, place)


def _without_stays(made: RunLayout, settings: Settings, stays: Collection[int], *, audit: bool) -> WardsDone:
    tables = [made.cohort / "stays.parquet", *made.cohort.glob("hourly/*/*.parquet")]
    tables += [*made.retained.glob("*.parquet"), *made.counts.glob("*/*.parquet")]
    for table in sorted(tables):
        _filter_table(table, stays)
    for memory in _PER_STAY:
        for states in sorted((made.memories / memory).glob("*.safetensors")):
            _drop_states(states, stays)
    done = _wards_without(made, settings, stays, audit=audit)
    _drop_empty_buckets(made)
    shutil.rmtree(made.results)
    with threadpool_limits(limits=1):
        write_results(made.cohort, made.counts, settings, made.results)
    return done


def _filter_table(table: Path, stays: Collection[int]) -> None:
    frame = pl.read_parquet(table, hive_partitioning=False)
    kept = frame.filter(~pl.col("stay_id").is_in(list(stays)))
    if kept.height < frame.height:
        with written_whole(table) as beside:
            kept.rechunk().write_parquet(beside, compression="zstd", statistics=False)


def _drop_states(file: Path, stays: Collection[int]) -> None:
    states = read_states(file)
    leaving = {str(stay) for stay in stays}
    if leaving & set(states):
        write_states(file, {name: state for name, state in states.items() if name not in leaving})


def _wards_without(made: RunLayout, settings: Settings, stays: Collection[int], *, audit: bool) -> WardsDone:
    done = WardsDone()
    for file in sorted((made.memories / WARDS).glob("*.safetensors")):
        ward = read_ward(file)
        if not np.isin(ward.stay, list(stays)).any():
            continue
        number = int(file.stem.split("=")[1])
        rest, failures = _ward_without(made, settings, number, ward, stays)
        write_ward(file, rest)
        counts = made.counts / WARDS / f"{bucket_name(number)}.parquet"
        with written_whole(counts) as beside:
            table = ward_counts(rest, subjects_of(made.cohort))
            table.write_parquet(beside, compression="zstd", statistics=False)
        done = _joined(done, failures, rest, audit=audit)
    return done


def _ward_without(
    made: RunLayout, settings: Settings, number: int, ward: Ward, stays: Collection[int]
) -> tuple[Ward, Mapping[str, int]]:
    """Maintained deletion; where that is refused or above the tolerance, the ward is fed again from what stays."""
    try:
        rest, _ = ward.without(stays)
        if _bound(rest) <= TOLERANCE:
            return rest, {}
        failures = {"above tolerance": 1}
    except MemoryRefused:
        failures = {"refused": 1}
    return build_ward(made, settings, number), failures


def _joined(done: WardsDone, failures: Mapping[str, int], rest: Ward, *, audit: bool) -> WardsDone:
    merged = {
        reason: max(done.failures.get(reason, 0), failures.get(reason, 0)) for reason in {*done.failures, *failures}
    }
    gap = max(done.measured or 0.0, _refit_gap(rest)) if audit else done.measured
    return WardsDone(merged, max(done.worst, _bound(rest)), gap)


def _bound(ward: Ward) -> float:
    return ward.memory.certificate().score_bound if ward.memory.ready else 0.0


def _refit_gap(ward: Ward) -> float:
    """Largest difference of the score from a fresh fit to the ward's tokens at the same C, over these tokens."""
    if not ward.memory.ready:
        return 0.0
    state = ward.memory.to_state()
    keys = np.concatenate([state["keys"][state["location"]], state["cold"]["keys"]])
    fresh = SVDDMemory(ward.memory.C, ward.memory.sigma).fit(keys)
    return float(np.abs(fresh.score(keys) - ward.memory.score(keys)).max())


def _drop_empty_buckets(made: RunLayout) -> None:
    """Remove the files of buckets that hold no stay any more: an empty one would tell where somebody was."""
    for part in sorted(made.cohort.glob("hourly/*/*.parquet")):
        if pl.read_parquet(part, columns=["stay_id"], hive_partitioning=False).height:
            continue
        bucket = part.parent.name
        shutil.rmtree(part.parent)
        others = [made.retained / f"{bucket}.parquet", *made.memories.glob(f"*/{bucket}.safetensors")]
        others += [file for file in made.counts.glob(f"*/{bucket}.parquet") if file.parent.name != WARDS]
        for file in others:
            file.unlink(missing_ok=True)


def _manifest_and_state(made: RunLayout) -> None:
    """Bring the records of the steps up to date and list every file under a fresh nonce."""
    manifest = opened_manifest(made)
    stays = pl.read_parquet(made.cohort / "stays.parquet", columns=["stay_id", "subject_id", "hours", "bucket"])
    counted: dict[str, dict[str, Any]] = {
        "cohort": {
            "stays": stays.height,
            "patients": stays["subject_id"].n_unique(),
            "tokens": int(stays["hours"].sum()),
            "buckets": sorted(stays["bucket"].unique().to_list()),
        },
        "evaluate": {"buckets": stays["bucket"].n_unique()},
    }
    parts = {"cohort": [made.cohort], "evaluate": [made.counts, made.results, made.retained, made.memories]}
    steps = dict(manifest.steps)
    for name, facts in counted.items():
        files = {entry.name: {"bytes": entry.size, "sha256": entry.digest} for entry in entries(made, parts[name])}
        steps[name] = {**steps[name], **facts, "files": files}
    write_manifest(made, replace(manifest, steps=steps))
    write_atomic(made.state_manifest, build_state(state_files(made)))
