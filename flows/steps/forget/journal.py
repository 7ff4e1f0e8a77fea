"""What a pass over one run has to know to go on after a crash, as the journal keeps it until the requests are done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flows.run.layout import RunLayout
from flows.run.registry import Site

STAGE = "pass"
BUILDING = "building"


@dataclass(frozen=True)
class Pass:
    """Some requests carried out on some runs; one run after another, all requests together.

    Attributes:
        request_ids: in the order in which they were received.
        runs: the passes over single runs.
        others: whether registered runs of the site are left untreated.
        lost: whether a registered run was not found where it should be.
    """

    request_ids: tuple[str, ...]
    runs: tuple[RunPass, ...]
    others: bool
    lost: bool = False


@dataclass(frozen=True)
class RunPass:
    """One run: where it is, what its next state is, what was found and done; it holds the ids until they are gone."""

    run_id: str
    path: str
    digest: str
    actions: dict[str, str]
    held: dict[str, bool]
    stays: tuple[int, ...] = field(repr=False)
    subjects: tuple[int, ...] = field(repr=False)
    failures: dict[str, int]
    worst: float
    measured: float | None
    moved: float = 0.0

    @property
    def layout(self) -> RunLayout:
        """The run's directory."""
        return RunLayout(Path(self.path))


def record(site: Site, made: Pass) -> None:
    """The point of no return, in one transaction: every request of the pass is intended, and how is written down."""
    with site.transaction():
        for request_id in made.request_ids:
            site.write_journal(request_id, STAGE, asdict(made))
            site.set_request_state(request_id, "intended")


def recorded(site: Site, request_id: str) -> Pass:
    """The pass that a pending request belongs to."""
    (payload,) = (entry.payload for entry in site.journal(request_id) if entry.stage == STAGE)
    runs = tuple(_run_pass(row) for row in payload["runs"])
    return Pass(tuple(payload["request_ids"]), runs, payload["others"], payload["lost"])


def _run_pass(row: dict[str, Any]) -> RunPass:
    return RunPass(**{**row, "stays": tuple(row["stays"]), "subjects": tuple(row["subjects"])})
