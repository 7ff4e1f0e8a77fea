"""The long table of net recall from per-stay counts: recalled, ghost and net with intervals by patient, by budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from evaluation import published
from evaluation.bootstrap import Interval, mean_bootstrap
from evaluation.net_recall import CACHES, DELAYS, OWN, RIDGES, SIZES, THIRD, TOLERANCES, RecallPlan
from evaluation.recall_memories import TOKEN_FLOATS, width_within

Floats = NDArray[np.float64]
Row = dict[str, Any]
Named = tuple[str, str]  # memory and size, as in the counts

BYTES_A_FLOAT = 8
SAME_STATE, THIRD_OF_HOURS = "same state", "a third of the hours"
EVENTS = {"all": "", "measured": "measured_"}  # kind of event hour -> prefix of its columns in the counts
MATRIX_ROWS = (*(f"vla-ridge {lam0:g}" for lam0 in RIDGES), "vla-unit", "delta", "linear", "nc01")


@dataclass(frozen=True)
class _Cell:
    """The stays asked at one delay about one kind of event hour; arrays are (memories x tolerances, stays)."""

    recalled: Floats
    ghost: Floats
    kept: Floats
    floats: Floats
    patients: NDArray[np.int64]
    totals: Row


def recall_rows(
    counts: pl.DataFrame,
    plan: RecallPlan,
    *,
    unmeasured: tuple[str, ...] = (),
    draws: int = published.DRAWS,
    seed: int = published.SEED,
) -> list[Row]:
    """Return one row per budget, memory, delay, tolerance and kind of event hour.

    Shares are means over stays of the share of a stay's asked event hours; net = recalled - ghost on the same hours;
    low and high bound net at 95 percent, resampling patients with all their stays. `state_bytes` is the mean state,
    `matched_hours` the hours of a cache of that size. Two budgets: states of the same bytes, and caches of a third of
    a stay's hours beside the matrix memories as they are. What is not defined is None, with the cause under `reason`.
    """
    rows: list[Row] = []
    members = [(budget, size, named) for budget, size, group in _budgets(plan) for named in group]
    listed = list(dict.fromkeys(named for *_, named in members))
    for delay in DELAYS:
        for events, prefix in EVENTS.items():
            cell = _cell(counts, listed, delay, prefix)
            found = _intervals(cell, draws, seed)
            head = {"channel": plan.channel, "delay": delay, "events": events} | cell.totals
            for budget, size, named in members:
                at = listed.index(named) * len(TOLERANCES)
                for step, tolerance in enumerate(TOLERANCES):
                    row = head | {"budget": budget, "budget_bytes": size, "tolerance": tolerance}
                    row |= _figures(named, cell, at + step, found)
                    rows.append(row | {"reason": _reason(plan.channel, unmeasured, found["net"][at + step])})
    return rows


def _budgets(plan: RecallPlan) -> Iterator[tuple[str, int | None, list[Named]]]:
    """Each budget with its bytes and the memories compared at it."""
    own = [("svdd", OWN), ("svdd-support", OWN)]
    for floats in plan.budgets:
        matrices = [(name, f"d_k {width_within(floats, SIZES[name.split()[0]])}") for name in MATRIX_ROWS]
        caches = [(name, f"{max(1, floats // TOKEN_FLOATS)} hours") for name in CACHES]
        yield SAME_STATE, floats * BYTES_A_FLOAT, [*matrices, *own, *caches]
    matrices = [(name, f"d_k {plan.directions}") for name in MATRIX_ROWS]
    yield THIRD_OF_HOURS, None, [*matrices, *own, *((name, THIRD) for name in CACHES)]


def _cell(counts: pl.DataFrame, listed: list[Named], delay: int, part: str) -> _Cell:
    asked = counts.filter((pl.col("delay") == delay) & (pl.col(f"{part}asked") > 0)).sort("stay_id")
    groups = dict(asked.group_by("memory", "size", "tolerance", maintain_order=True))
    frames = [groups.get((*named, tolerance), asked.clear()) for named in listed for tolerance in TOLERANCES]
    first = frames[0]

    def share(name: str) -> Floats:
        return np.stack([(f[f"{part}{name}"] / f[f"{part}asked"]).cast(pl.Float64).to_numpy() for f in frames])

    totals = {
        "stays": first.height,
        "patients": first["subject_id"].n_unique(),
        "hours": int(first["hours"].sum()),
        "event_hours": int(first["event_hours"].sum()),
        "measured_event_hours": int(first["measured_event_hours"].sum()),
        "asked": int(first[f"{part}asked"].sum()),
    }
    floats = np.stack([frame["floats"].to_numpy() for frame in frames])
    patients = first["subject_id"].to_numpy().astype(np.int64)
    return _Cell(share("recalled"), share("ghosts"), share("kept"), floats, patients, totals)


def _intervals(cell: _Cell, draws: int, seed: int) -> dict[str, list[Interval]]:
    """Intervals of recalled, ghost and net, all from the same draws."""
    stacked = np.concatenate([cell.recalled, cell.ghost, cell.recalled - cell.ghost])
    found, size = mean_bootstrap(stacked, cell.patients, draws, seed), len(cell.recalled)
    return {name: found[i * size : (i + 1) * size] for i, name in enumerate(("recalled", "ghost", "net"))}


def _figures(named: Named, cell: _Cell, at: int, found: dict[str, list[Interval]]) -> Row:
    recalled, ghost, net = (found[name][at] for name in ("recalled", "ghost", "net"))
    some = len(cell.patients) > 0
    kept = float(cell.kept[at].mean()) if some and np.isfinite(cell.kept[at]).all() else None
    floats = float(cell.floats[at].mean()) if some else None
    return {
        "memory": named[0],
        "size": named[1],
        "recalled": recalled.mean,
        "recalled_low": recalled.low,
        "recalled_high": recalled.high,
        "ghost": ghost.mean,
        "ghost_low": ghost.low,
        "ghost_high": ghost.high,
        "net": net.mean,
        "low": net.low,
        "high": net.high,
        "kept": kept,
        "state_bytes": None if floats is None else BYTES_A_FLOAT * floats,
        "matched_hours": None if floats is None else floats / TOKEN_FLOATS,
    }


def _reason(channel: str, unmeasured: tuple[str, ...], net: Interval) -> str | None:
    if net.mean is not None:
        return net.reason
    return "channel never measured" if channel in unmeasured else "no stay lasts so long after such an event hour"
