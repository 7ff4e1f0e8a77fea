"""The words of the report: names of channels, policies and protocols, the glossary, what is not claimed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reports.html.model import LevelName
from reports.html.numbers import plain

CHANNELS = {
    "composite": "Any of the vitals (composite)",
    "hr": "Heart rate",
    "sbp": "Systolic pressure",
    "sbp+dbp": "Systolic pressure, both pressures held out",
    "dbp": "Diastolic pressure",
    "rr": "Respiratory rate",
    "spo2": "Oxygen saturation",
    "temp": "Temperature",
}

SHORT_CHANNELS = {
    "composite": "Composite",
    "hr": "Heart rate",
    "sbp": "Systolic",
    "sbp+dbp": "Systolic, both out",
    "dbp": "Diastolic",
    "rr": "Resp. rate",
    "spo2": "SpO₂",
    "temp": "Temperature",
}

POLICIES = {
    "svdd": "keeps the support set of a support-vector description of the stay",
    "least-dense": "keeps the hours least like all others; no optimisation, the first baseline a sceptic asks for",
    "density": "keeps the hours most like all others, the most redundant ones",
    "recency": "keeps the last hours",
    "random": "keeps hours drawn by chance",
}

OTHER_POLICIES = {
    "ensemble": "keeps what several measures of the unusual agree on; no label is used",
    "stride": "keeps hours spread evenly over the stay",
    "k-centre": "keeps hours far from each other",
    "herding": "keeps hours that together resemble the whole stay",
    "leverage": "keeps hours far out in value, change, spread and charting",
    "isolation-forest": "keeps hours that random cuts isolate soonest",
    "outlier-factor": "keeps hours less dense than their neighbours",
    "early-warning": "keeps hours with most NEWS2 points; shares thresholds with the events of any vital",
}

REASONS = {
    "age_unknown": "age unknown",
    "at_or_after_death": "charted after death",
    "at_or_after_outtime": "charted after the end of the stay",
    "before_intime": "charted before the stay",
    "death_not_after_intime": "death not after the start",
    "identical_copy": "identical copy of a reading",
    "intime_missing": "no start time",
    "los_missing": "length of stay missing",
    "los_under_2_days": "stay shorter than 2 days",
    "no_charttime": "no charting time",
    "no_number": "no number",
    "no_stay_id": "no stay",
    "no_vitals": "no vital charted",
    "not_drawn": "not drawn",
    "other_instrument_first": "another instrument goes first",
    "other_item": "not one of the vitals",
    "outtime_missing": "no end time",
    "outtime_not_after_intime": "end not after the start",
    "patient_minor": "patient not an adult",
    "stay_minor": "not an adult at the stay",
    "stay_unknown": "stay not in the source",
    "systolic_below_diastolic": "systolic below diastolic",
    "under_48_hours": "fewer than 48 hours",
}

CHANNEL_ORDER = tuple(SHORT_CHANNELS)
POLICY_ORDER = tuple(POLICIES)

PROTOCOLS = {
    "fixed-context": "each memory sees a whole stay at once and is solved once",
    "streamed": "each memory sees a stay hour by hour and is measured when the stay ends",
}

UNITS = {"stay": "by stay", "patient": "by patient"}

LEVELS: dict[LevelName, tuple[str, str, str]] = {
    "stays": ("ICU stays", "stays in the source", "stays used"),
    "patients": ("Patients", "patients in the source", "patients used"),
    "rows": ("Charted readings", "rows in the source", "rows used"),
}

NOT_CLAIMED = (
    (
        "No clinical benefit: nothing here was tested on care, outcomes or decisions, and no threshold is "
        "medical advice."
    ),
    (
        "No comparison across protocols: fixed-context and streamed memories have different budgets and "
        "are never ranked together."
    ),
    (
        "No replication of the published cohort: our figures come from other data; published figures are "
        "printed only to stand beside them."
    ),
    (
        "No claim about hours that nobody charted: filled hours are copies of a charted hour, so figures "
        "on measured event hours are given apart."
    ),
    "A held-out vital is not independent of the vitals a selector saw: correlated vitals stay in.",
    "The certificate speaks about the memory's own optimisation problem, not about how useful the kept hours are.",
    (
        "No anonymity: small counts are hidden, but this page was made from record-level data and its "
        "release is the reader's responsibility."
    ),
)

GLOSSARY = (
    ("Stay-hour (token)", "One hour of one ICU stay, with its six vital signs."),
    (
        "Event hour",
        "An hour in which a vital crosses a declared threshold. A measured event hour is one whose "
        "vital was charted in that hour.",
    ),
    (
        "Measured, filled",
        "A measured value was charted in its hour; a filled one was carried over from another hour of "
        "the stay, or is a median.",
    ),
    (
        "Retention",
        "The share of a stay's event hours that a policy kept, averaged over stays with at least one event hour.",
    ),
    (
        "Retrieval",
        "The share of event hours whose nearest kept hour is itself an event hour, averaged over the same stays.",
    ),
    (
        "Budget",
        "The share of a stay's hours that a policy may keep. All policies of one row group have the same budget.",
    ),
    ("Held-out vital", "The vital that defines the events and that no policy may see when it chooses."),
    (
        "95 % interval",
        "The middle 95 % of the bootstrap draws. By patient: all stays of a patient are drawn "
        "together. By stay: as published.",
    ),
    (
        "svdd loses, wins",
        "The interval of the paired difference, resampled by patient, lies wholly below or wholly above zero.",
    ),
    (
        "Hidden",
        "A count of 1 to 10, or a number from which such a count would follow exactly. Hidden numbers "
        "are in no part of this file.",
    ),
    ("Not defined", "The number does not exist for this data; the reason stands below the table."),
)


def channel_name(channel: str) -> str:
    """The full name of a channel; an unknown one keeps its own name."""
    return CHANNELS.get(channel, plain(channel))


def short_name(channel: str) -> str:
    """The name of a channel where room is short."""
    return SHORT_CHANNELS.get(channel, plain(channel))


def reason_name(code: str) -> str:
    """A reason for leaving something out, in words; codes that are not listed are spelled out."""
    if code in REASONS:
        return REASONS[code]
    if code.startswith("implausible_"):
        return f"implausible {channel_name(code.removeprefix('implausible_')).lower()}"
    if code.startswith("stay_"):
        return f"in a stay left out: {reason_name(code.removeprefix('stay_'))}"
    return plain(code).replace("_", " ")


def order(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Sort names in the known order, unknown ones last by name; duplicates count once."""
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))
