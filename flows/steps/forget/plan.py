"""What a deletion will touch: whom the requests name, which stores a run has, and what is done with each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from flows.errors import FlowError, UsageProblem
from flows.run.layout import RunLayout
from flows.run.manifest import step_is_done
from flows.run.requests import Request
from flows.run.stores import MEMORIES, STORES, store_kind, store_kinds, unknown_files
from flows.steps.opened import opened_manifest, opened_settings

AGAIN = "computed again"
METHODS = {
    "cohort": "rows removed",
    "tokens": "rows removed",
    "retained": "rows removed",
    "counts": "rows removed",
    "results": AGAIN,
    "report": "rendered again",
    "wards": "maintained deletion",
    "svdd": "state dropped",
    "vla": "state dropped",
    "nc01": "state dropped",
}
AFTER = ("former generation", "orchestrator storage", "temporary files", "inbox")
FROZEN = ("cohort statistics",)


@dataclass(frozen=True)
class Plan:
    """One pass over one run.

    Attributes:
        actions: method by kind of store, for every kind that the run has; the same whoever is deleted.
        stays: stay ids that leave, those of all requests together.
        subjects: patients who leave whole; of others only some stays do.
        held: by request id whether the run holds anything of it.
    """

    actions: dict[str, str]
    stays: tuple[int, ...] = field(repr=False)
    subjects: tuple[int, ...] = field(repr=False)
    held: dict[str, bool]

    @property
    def changes(self) -> bool:
        """Whether the run holds anything of any request."""
        return any(self.held.values())


def make_plan(
    layout: RunLayout, requests: Sequence[Request], inventory: frozenset[str], *, restandardise: bool = False
) -> Plan:
    """The pass that carries out some requests on a finished run, from its tables or, restandardised, from the source.

    Raises FlowError for an unfinished run, for a file of a kind that the inventory does not know, named by its
    relative path, and for requests after which no stay would be left.
    """
    refuse_unready(layout, inventory)
    stays = pl.read_parquet(layout.cohort / "stays.parquet", columns=["stay_id", "subject_id"])
    found = {request.request_id: _stays_of(stays, request) for request in requests}
    leaving = sorted(set().union(*found.values()))
    if leaving and len(leaving) == stays.height:
        raise FlowError(f"run {layout.root}: would hold no stay afterwards; remove the whole directory instead")
    subjects = sorted({subject for request in requests for subject in request.subject_ids})
    actions = _actions(layout)
    if restandardise:
        actions = {kind: method if kind == "report" else AGAIN for kind, method in actions.items()}
    return Plan(actions, tuple(leaving), tuple(subjects), {name: bool(held) for name, held in found.items()})


def refuse_unready(layout: RunLayout, inventory: frozenset[str]) -> None:
    """Raise FlowError for a run that is not finished or not a closed world."""
    manifest = opened_manifest(layout)
    undone = [step for step in ("cohort", "evaluate", "report") if not step_is_done(layout, manifest, step)]
    if undone:
        raise FlowError(
            f"run {layout.root}: {' and '.join(undone)} not finished; run the same `icu-memory study` again"
        )
    allowed = inventory | store_kinds(opened_settings(layout).memories)
    if unknown := unknown_files(layout, allowed):
        raise FlowError(
            f"run {layout.root}: {unknown[0]} is of no kind that this program writes ({len(unknown)} such files); "
            "look at it and move it out of the run"
        )


def refuse_retraining(run: Path, *, wanted: bool) -> None:
    """Raise UsageProblem where models are to be trained again and a run has none: no study trains any yet."""
    if wanted:
        raise UsageProblem(f"--retrain: run {run} holds no prediction model; delete without --retrain")


def plan_lines(plan: Plan) -> list[str]:
    """The plan for people: what is done with each kind of store; no id and no count."""
    listed = [f"{kind}: {method}" for kind, method in plan.actions.items()]
    listed += [f"{kind}: file removed" for kind in AFTER]
    return [*listed, *(f"{kind}: not covered" for kind in FROZEN if not is_restandardised(plan.actions))]


def is_restandardised(actions: Mapping[str, str]) -> bool:
    """Whether a pass computes everything again from the source, so that nothing stays frozen."""
    return actions.get("cohort") == AGAIN


def _stays_of(stays: pl.DataFrame, request: Request) -> set[int]:
    named = pl.col("subject_id").is_in(request.subject_ids) | pl.col("stay_id").is_in(request.stay_ids)
    return set(stays.filter(named)["stay_id"].to_list())


def _actions(layout: RunLayout) -> dict[str, str]:
    kinds = {store_kind(path.relative_to(layout.root).as_posix()) for path in _files(layout.root)}
    ordered = [kind for kind in STORES if kind in METHODS and kind not in MEMORIES]
    return {kind: METHODS[kind] for kind in (*ordered, *MEMORIES) if kind in kinds}


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]
