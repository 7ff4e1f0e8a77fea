"""The two presets: which stays and readings each uses, as SQL run in order, up to one row per measured stay-hour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cohort_sql.engine import Engine

if TYPE_CHECKING:
    from cohort_sql.source import Source

MIN_DAYS = 2.0
MIN_HOURS = 48
ADULT_YEARS = 18
ALL_STAYS = 2**62
# The ingested readings lie in parts by stay (charted.sql).
PARTS = 16
PASS_ROWS = 2_000_000


class Readings(NamedTuple):
    """How many readings each reason left out (None: used), and how many of them each kind of repair changed."""

    by_reason: dict[str | None, int]
    repaired: dict[str | None, int]


def select_paper(engine: Engine, source: Source, stays: int | None, seed: int) -> Readings:
    """Make the tables outcome and measured_hour by the published rules; return what became of the readings."""
    engine.table("vital_item", paper_only=True)
    engine.table("icustay", reading=source.icustays)
    engine.positions("drawn_stay", published_draw(published_places(engine), stays, seed))
    engine.table("paper/stay", min_days=MIN_DAYS)
    engine.table("paper/reading_hour")
    engine.table("paper/grid", min_hours=MIN_HOURS)
    engine.table("paper/measured_hour")
    engine.table("paper/outcome")
    engine.table("paper/reading_outcome")
    return Readings(_readings_by(engine, "reason", "reading_outcome"), {})


def select_causal(engine: Engine, source: Source, stays: int | None, seed: int) -> Readings:
    """Make the tables outcome and measured_hour without looking ahead; return what became of the readings."""
    engine.table("vital_item", paper_only=False)
    engine.table("icustay", reading=source.icustays)
    causal_stays(engine, source, stays, seed)
    engine.table_view("causal/judged")
    for number, (first, last) in enumerate(passes(engine.count("charted"))):
        for name in ("usable", "reading", "copied", "inverted", "signal_hour"):
            engine.table(f"causal/{name}", first_part=first, last_part=last)
        for name in ("measured_hour", "reading_fate"):
            engine.table(f"causal/{name}", append=number > 0)
    for name in ("verdict", "outcome", "reading_outcome", "repaired"):
        engine.table(f"causal/{name}")
    return Readings(_readings_by(engine, "reason", "reading_outcome"), _readings_by(engine, "repair", "repaired"))


def passes(rows: int) -> Iterator[tuple[int, int]]:
    """Split the parts of `rows` ingested readings into runs (first, last) of about PASS_ROWS: memory stays bounded."""
    step = max(1, PARTS // max(1, math.ceil(rows / PASS_ROWS)))
    for first in range(0, PARTS, step):
        yield first, min(first + step, PARTS) - 1


def causal_stays(engine: Engine, source: Source, stays: int | None, seed: int) -> None:
    """Make the table stay of the causal preset from icustay and the hospital tables."""
    engine.table(
        "causal/stay",
        adult_years=ADULT_YEARS,
        ages_known=source.patients is not None,
        seed=str(seed),
        stays=ALL_STAYS if stays is None else stays,
    )


def published_places(engine: Engine) -> list[int]:
    """Return the places in icustay of the stays that the published draw chooses from."""
    engine.table("paper/eligible_stay", min_days=MIN_DAYS)
    return [row["position"] for row in engine.rows("select position from eligible_stay order by position")]


def published_draw(eligible: Sequence[int], stays: int | None, seed: int) -> list[int]:
    """Draw `stays` of the eligible places by the published generator, in file order; None draws all."""
    order = np.random.RandomState(seed).permutation(len(eligible))[:stays]
    return [eligible[place] for place in sorted(order)]


def _readings_by(engine: Engine, column: str, table: str) -> dict[str | None, int]:
    return {row[column]: row["readings"] for row in engine.rows(f"select * from {table}")}
