"""What a reader should know of the intervals: where they rest on few patients, and what resampling stays hides."""

from __future__ import annotations

from reports.html.model import Hidden, Study
from reports.html.words import CHANNEL_ORDER, order, short_name

FEW_PATIENTS = 30  # with an event; in simulations intervals of rare, skewed rates below it cover far less than 95 %


def few_patients(study: Study) -> str:
    """Sentences that name the kinds of event hours with fewer than FEW_PATIENTS patients, empty without one.

    Only counts that are shown are judged, since a verdict on a hidden one could give it away.
    """
    found: dict[str, set[str]] = {"all": set(), "measured": set()}
    hidden = False
    for row in study.retention:
        if isinstance(row.patients, Hidden):
            hidden = hidden or not isinstance(row.retention, Hidden)
        elif 0 < row.patients < FEW_PATIENTS:
            found[row.events].add(row.channel)
    found["measured"] -= found["all"]
    parts = [
        f"{', '.join(short_name(name) for name in order(channels, CHANNEL_ORDER))}{words}"
        for channels, words in ((found["all"], ""), (found["measured"], " (measured event hours)"))
        if channels
    ]
    unknown = " Where the number of patients is hidden the same may hold." if hidden else ""
    if not parts:
        return ""
    return (
        f"Intervals of {'; '.join(parts)} rest on fewer than {FEW_PATIENTS} patients with an event: in simulations of "
        f"rare, skewed rates such intervals hold the truth clearly less often than 95 %.{unknown}"
    )


def few_recalled(study: Study) -> str:
    """One sentence that names the delays of net recall with fewer than FEW_PATIENTS patients, of the counts shown."""
    few = {
        row.delay
        for row in study.recall
        if row.events == "all" and not isinstance(row.patients, Hidden) and 0 < row.patients < FEW_PATIENTS
    }
    if not few:
        return ""
    listed = ", ".join(f"{delay} h" for delay in sorted(few))
    return f"Intervals at {listed} rest on fewer than {FEW_PATIENTS} patients and hold the truth less often than 95 %."


def stay_shortfall(study: Study) -> str:
    """One sentence on how much narrower the intervals by stay are than those by patient, empty without pairs."""
    ends = {
        (row.protocol, row.channel, row.left, row.right, row.events, row.unit): (row.low, row.high)
        for row in study.contrasts
    }
    ratios = [
        ratio
        for place in ends
        if place[-1] == "stay" and (ratio := _ratio(ends[place], ends.get((*place[:-1], "patient")))) is not None
    ]
    if not ratios:
        return ""
    mean, short = sum(ratios) / len(ratios), sum(ratio < 1 for ratio in ratios)
    why = (
        "stays of one patient are counted as if they were independent"
        if mean < 1
        else "with so few stays a patient the two hardly differ"
    )
    return (
        f"Intervals by stay are on average {100 * mean:.0f} % as wide as those by patient, and narrower in {short} of "
        f"{len(ratios)} comparisons: {why}."
    )


def _ratio(stay: tuple[object, object], patient: tuple[object, object] | None) -> float | None:
    if patient is None or not all(isinstance(end, float | int) for end in (*stay, *patient)):
        return None
    widths = [float(high) - float(low) for low, high in (stay, patient)]  # type: ignore[arg-type]
    return widths[0] / widths[1] if widths[1] > 0 else None
