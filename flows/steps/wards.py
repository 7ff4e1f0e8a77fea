"""Wards: support-vector memories that many patients share, each fed by all stays of its patients.

A patient belongs to exactly one ward, by a hash of the run's seed and the subject. Dates are shifted a patient, so no
order of time holds across patients: tokens come in a declared order (hash of the patient, then admission to the unit,
then hour), and the exact solution does not depend on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from evaluation.retention import CHANNELS
from flows.errors import FlowError
from flows.run.layout import RunLayout, ward_name
from flows.run.manifest import step_is_done
from flows.run.publish import written_whole
from flows.run.states import read_states, write_states
from flows.settings import Settings
from flows.steps.opened import opened_manifest
from flows.steps.stream import STREAM_SCHEMA
from memory.contract import Outcome
from memory.svdd import SVDDMemory

WARDS = "wards"  # the memory's name in counts, states and results
PRUNE_EVERY = 256  # tokens between two prunings while a ward is fed
_ENTRY = "ward"

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ids = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Ward:
    """A shared memory and where each of its tokens came from.

    Attributes:
        memory: the exact support-vector memory; its ids are 0 .. m-1 in the declared order, hot and cold alike.
        stay: stay id of every token, (m,) int64.
        hour: hour of every token since admission to the unit, (m,) int64.
    """

    memory: SVDDMemory
    stay: Ids
    hour: Ids

    def without(self, stay_ids: Collection[int]) -> tuple[Ward, Outcome]:
        """The ward as one that was never given these stays, by maintained deletion, and what that took.

        Stays that the ward does not hold change nothing. A rest that cannot carry the mass (n C < 1) returns to
        collecting, which is exactly a memory that was given the rest. Tokens are numbered again in the declared order.
        The state equals a build from the rest within its certificate, not bit for bit; this ward stays as it is.
        """
        leaving = np.isin(self.stay, np.array(sorted(stay_ids), np.int64))
        if not leaving.any():
            return self, Outcome("reserve")
        memory = SVDDMemory.from_state(self.memory.to_state())
        outcome = memory.delete(np.flatnonzero(leaving).tolist(), below_capacity="collect")
        outcome.certificate  # noqa: B018 (worked out now: numbering and pruning come after the deletion)
        return _numbered(memory, self.stay[~leaving], self.hour[~leaving], np.flatnonzero(~leaving)), outcome


def ward_of(seed: int, subject_id: int, wards: int) -> int:
    """The number of the ward that a patient belongs to."""
    return int(_hashed("ward", seed, subject_id), 16) % wards


def ward_capacity(settings: Settings) -> float:
    """The cap C = 1 / (nu * n0) of a ward, n0 the declared hours of a ward."""
    return 1.0 / (settings.nu * settings.ward_hours)


def ward_numbers(settings: Settings) -> range:
    """The wards of a study; none where it has no support-vector memories."""
    return range(settings.wards if "svdd" in settings.memories else 0)


def feed(keys: Floats, values: Floats, stay: Ids, hour: Ids, settings: Settings) -> Ward:
    """A ward given tokens in the order of the rows: keys (m, d), values (m, d_v), pruned at intervals.

    After every pruning the hot state still equals the solution over everything given.
    """
    memory = SVDDMemory(ward_capacity(settings), settings.sigma)
    with threadpool_limits(limits=1):
        for start in range(0, len(keys), PRUNE_EVERY):
            part = slice(start, start + PRUNE_EVERY)
            memory.admit_many(keys[part], values[part], range(start, min(part.stop, len(keys))))
            if memory.ready:
                memory.prune()
        return _numbered(memory, stay, hour, np.arange(len(keys)))


def build_ward(layout: RunLayout, settings: Settings, ward: int) -> Ward:
    """The ward that RUN/cohort makes: all stays of its patients in the declared order."""
    rows = _tokens(layout.cohort, settings, ward)
    keys = rows.select(f"{channel}_z" for channel in CHANNELS).to_numpy().astype(np.float64)
    values = rows.select(CHANNELS).to_numpy().astype(np.float64)
    return feed(keys, values, rows["stay_id"].to_numpy(), rows["hour"].cast(pl.Int64).to_numpy(), settings)


def make_ward(layout: RunLayout, settings: Settings, ward: int) -> int:
    """Write one ward's state and its counts, unless they are there; returns its stay-hours.

    The counts are written last, so that they stand for both.
    """
    counts = ward_counts_path(layout, ward)
    if step_is_done(layout, opened_manifest(layout), "evaluate"):
        return 0
    if counts.exists():
        return len(read_ward(ward_path(layout, ward)).stay)
    built = build_ward(layout, settings, ward)
    write_ward(ward_path(layout, ward), built)
    with written_whole(counts) as beside:
        ward_counts(built, subjects_of(layout.cohort)).write_parquet(beside, compression="zstd", statistics=False)
    return len(built.stay)


def ward_path(layout: RunLayout, ward: int) -> Path:
    """Where one ward waits to be published."""
    return layout.generation(WARDS) / f"{ward_name(ward)}.safetensors"


def ward_counts_path(layout: RunLayout, ward: int) -> Path:
    """Where one ward's counts wait to be published."""
    return layout.generation(WARDS) / f"counts-{ward_name(ward)}.parquet"


def write_ward(path: Path, ward: Ward) -> None:
    """Write a ward atomically: the same bytes for the same ward."""
    places = {"ids": np.arange(len(ward.stay), dtype=np.int64), "stay": ward.stay, "hour": ward.hour}
    write_states(path, {_ENTRY: {"memory": ward.memory.to_state(), **places}})


def read_ward(path: Path) -> Ward:
    """The ward that `write_ward` wrote; FlowError for any other file, MemoryRefused for a state that is not exact."""
    try:
        stored = read_states(path)[_ENTRY]
        memory, ids, stay, hour = (stored[name] for name in ("memory", "ids", "stay", "hour"))
    except KeyError:
        raise FlowError(f"{path.name}: is not a file of a ward; run the same study again") from None
    ward = Ward(SVDDMemory.from_state(memory), stay, hour)
    held = sorted([*ward.memory.ids.tolist(), *ward.memory.cold_ids])
    if not len(ids) == len(stay) == len(hour) or held != ids.tolist() or held != list(range(len(held))):
        raise FlowError(f"{path.name}: its tokens and their places do not fit together; run the same study again")
    return ward


def subjects_of(cohort: Path) -> dict[int, int]:
    """The patient of every stay of a cohort."""
    stays = pl.read_parquet(cohort / "stays.parquet", columns=["stay_id", "subject_id"])
    return dict(stays.select("stay_id", "subject_id").iter_rows())


def ward_counts(ward: Ward, subjects: Mapping[int, int]) -> pl.DataFrame:
    """A ward's counts as rows of STREAM_SCHEMA by stay: tokens, hot and active ones, whether the ward still collects.

    Each stay carries the certified bound of its ward, relative to the range of the score where that is below 1.
    """
    memory = ward.memory
    collecting = not memory.ready
    hot, active = np.zeros((2, len(ward.stay)), np.int64)
    hot[memory.ids] = 1
    active[memory.ids[(memory.alpha > 0.0) | collecting]] = 1
    bound = None if collecting else memory.certificate().relative_bound
    frame = pl.DataFrame({"stay_id": ward.stay, "tokens": np.ones_like(hot), "hot": hot, "active": active})
    rows: list[tuple[Any, ...]] = []
    for stay, tokens, hots, actives in frame.group_by("stay_id").sum().sort("stay_id").iter_rows():
        counts = {"active": actives, "collecting": int(collecting), "hot": hots, "tokens": tokens}
        rows += [(stay, subjects[stay], WARDS, "count", name, float(value)) for name, value in counts.items()]
        rows += [] if bound is None else [(stay, subjects[stay], WARDS, "worst", "bound", bound)]
    return pl.DataFrame(rows, STREAM_SCHEMA, orient="row")


def _hashed(purpose: str, seed: int, subject_id: int) -> str:
    return hashlib.sha256(f"{purpose}:{seed}:{subject_id}".encode()).hexdigest()


def _tokens(cohort: Path, settings: Settings, ward: int) -> pl.DataFrame:
    """The hourly tokens of one ward in the declared order."""
    stays = pl.read_parquet(cohort / "stays.parquet", columns=["stay_id", "subject_id", "intime"])
    members = sorted(
        (_hashed("order", settings.seed, subject), intime, stay)
        for stay, subject, intime in stays.select("stay_id", "subject_id", "intime").iter_rows()
        if ward_of(settings.seed, subject, settings.wards) == ward
    )
    places = pl.LazyFrame({"stay_id": [stay for *_, stay in members]}, {"stay_id": pl.Int64}).with_row_index("place")
    hourly = pl.scan_parquet(cohort / "hourly" / "*" / "*.parquet", hive_partitioning=False)
    return hourly.join(places, on="stay_id", how="inner").sort("place", "hour").collect()


def _numbered(memory: SVDDMemory, stay: Ids, hour: Ids, kept: Ids) -> Ward:
    """A ward whose tokens `kept` are numbered 0 .. m-1, pruned, with nothing of its history left in the state."""
    if memory.ready:
        memory.prune()
    if not len(kept):
        return Ward(SVDDMemory(memory.C, memory.sigma), stay, hour)
    return Ward(SVDDMemory.from_state(_canonical(memory.to_state(), kept)), stay, hour)


def _canonical(state: dict[str, Any], kept: Ids) -> dict[str, Any]:
    """The state with ids as places in `kept`, hot tokens by id, locations by first id, drift and operations from zero.

    An order-preserving renaming: what is left out is how the state was reached. Expiries are lowered by the drift and
    one rounding, so that they promise no more than before.
    """
    ids = np.searchsorted(kept, state["ids"])
    order = np.argsort(ids)
    seen, first, location = np.unique(state["location"][order], return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    by_first = seen[np.argsort(first)]
    cold = state["cold"]
    lowered = np.nextafter(cold["expiry"] - (cold["drift"] + cold["drift_low"]), -np.inf)
    return state | {
        "ids": ids[order],
        "alpha": state["alpha"][order],
        "values": state["values"][order],
        "location": rank[location].astype(np.int32),
        "keys": state["keys"][by_first],
        "mass": state["mass"][by_first],
        "operations": 0,
        "cold": cold | {"ids": np.searchsorted(kept, cold["ids"]), "expiry": lowered, "drift": 0.0, "drift_low": 0.0},
    }
