"""The two presets: which stays and readings each uses, as SQL run in order, up to one row per measured stay-hour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cohort_sql.engine import Engine
from cohort_sql.source import Source

MIN_DAYS = 2.0
MIN_HOURS = 48


def select_paper(engine: Engine, source: Source, stays: int | None, seed: int) -> dict[str | None, int]:
    """Make the tables outcome and measured_hour by the published rules; return readings by reason (None: used)."""
    engine.table("vital_item", paper_only=True)
    engine.table("icustay", reading=source.icustays)
    engine.table("paper/eligible_stay", min_days=MIN_DAYS)
    places = [row["position"] for row in engine.rows("select position from eligible_stay order by position")]
    engine.positions("drawn_stay", published_draw(places, stays, seed))
    engine.table("paper/stay", min_days=MIN_DAYS)
    engine.table("paper/reading_hour")
    engine.table("paper/grid", min_hours=MIN_HOURS)
    engine.table("paper/measured_hour")
    engine.table("paper/outcome")
    engine.table("paper/reading_outcome")
    return readings_by_reason(engine)


def published_draw(eligible: Sequence[int], stays: int | None, seed: int) -> list[int]:
    """Draw `stays` of the eligible places by the published generator, in file order; None draws all."""
    order = np.random.RandomState(seed).permutation(len(eligible))[:stays]
    return [eligible[place] for place in sorted(order)]


def readings_by_reason(engine: Engine) -> dict[str | None, int]:
    """Return how many readings each reason left out; None counts those used."""
    return {row["reason"]: row["readings"] for row in engine.rows("select * from reading_outcome")}
