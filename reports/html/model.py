"""What a report is made from: frozen records built from one plain, JSON-like mapping.

Every record keeps only the fields named here. A field that is not named is dropped on entry, so an identifier that
travels along with a result row cannot reach the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError


class ReportError(ValueError):
    """The study handed to the report cannot be shown; the message is one line without any data value."""


class Hidden(Enum):
    """Stands where a number was withheld, so that nothing downstream can print it."""

    HIDDEN = "hidden"


HIDDEN = Hidden.HIDDEN
Count = int | Hidden
OptionalCount = int | Hidden | None
Value = float | Hidden | None
LevelName = Literal["rows", "stays", "patients"]
Setting = Any  # text, a number, a truth value, nothing, or a list or mapping of these


@dataclass(frozen=True)
class SourceFacts:
    """What was read: the release recognised by its header, and how many chart rows it should and does hold."""

    release: str
    observed_rows: OptionalCount = None
    expected_rows: int | None = None


@dataclass(frozen=True)
class Level:
    """One level of the attrition (rows, stays or patients): source = used + the sum of left_out."""

    source: Count
    used: Count
    left_out: Mapping[str, Count]


@dataclass(frozen=True)
class CoverageRow:
    """How much of one vital was charted and how much was filled in, in stay-hours."""

    channel: str
    hours: Count
    measured_hours: Count
    measured_share: Value = None
    event_hours: OptionalCount = None
    measured_event_hours: OptionalCount = None
    stays_without: OptionalCount = None


@dataclass(frozen=True)
class RetentionRow:
    """What one policy kept of one kind of event hour; fractions of 1, `budget` is hours kept over hours."""

    protocol: str
    channel: str
    policy: str
    retention: Value
    retrieval: Value
    budget: Value
    stays: Count
    patients: Count
    events: Literal["all", "measured"]
    measured_share: Value = None
    low: Value = None
    high: Value = None
    reason: str | None = None


@dataclass(frozen=True)
class ContrastRow:
    """A paired difference in retention, left minus right, resampled by stay or by patient."""

    protocol: str
    channel: str
    left: str
    right: str
    unit: Literal["stay", "patient"]
    mean: Value
    low: Value
    high: Value
    groups: Count
    events: Literal["all", "measured"] = "all"
    reason: str | None = None


@dataclass(frozen=True)
class PublishedRow:
    """One published figure; with `right` it is policy minus right, resampled over `groups` of `unit`."""

    source: str
    cohort: str
    protocol: str
    channel: str
    policy: str
    value: float
    right: str | None = None
    unit: Literal["stay", "patient"] | None = None
    measure: Literal["retention", "retrieval"] = "retention"
    low: float | None = None
    high: float | None = None
    stays: int | None = None
    groups: int | None = None
    budget: float | None = None


@dataclass(frozen=True)
class AuditRow:
    """One regime of the deletion audit, with the published row of the same regime where there is one.

    Errors are of the gate score: `absolute_*` as published, `error_*` relative to the range of the score where that is
    below 1. Counts are synthetic trials, never patients, and are not suppressed.
    """

    regime: str
    attempted: int
    completed: int
    title: str = ""
    built: str = ""
    target: float | None = None
    within_target: int | None = None
    error_worst: float | None = None
    absolute_median: float | None = None
    absolute_mean: float | None = None
    absolute_worst: float | None = None
    partition_agreement: float | None = None
    decay_median: float | None = None
    covered: int | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    path_reserve: int = 0
    path_walk: int = 0
    path_repaired: int = 0
    path_resolved: int = 0
    published_attempted: int | None = None
    published_completed: int | None = None
    published_error_median: float | None = None
    published_error_mean: float | None = None
    published_error_worst: float | None = None
    published_partition_agreement: float | None = None
    published_decay_median: float | None = None


@dataclass(frozen=True)
class CampaignRow:
    """One claim of a campaign: ours beside the published value, and whether the target in words was met.

    All numbers come from generated streams, never from patients, and are not suppressed.
    """

    campaign: str
    size: str
    quantity: str
    conditions: str
    status: Literal["reproduced", "not reproduced", "refuted", "not attempted"]
    ours: int | float | str | None = None
    published: int | float | str | None = None
    source: str | None = None
    target: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class DeletionRow:
    """One receipt: days from request to completion, passes over kinds of memories, what was not reached."""

    request: str
    outcome: Literal["deleted", "not held"]
    days: int
    attempted: int
    completed: int
    certificate: str | None = None
    not_covered: Sequence[str] = ()


@dataclass(frozen=True)
class Streaming:
    """What the streamed memories did: tokens admitted by path, tokens held at the end, worst certified score bound."""

    stays: Count
    patients: Count
    tokens: Count
    retained: Count
    paths: Mapping[str, Count] = field(default_factory=dict)
    score_bound: float | None = None
    capacity: str | None = None


@dataclass(frozen=True)
class MemoryRow:
    """What memories of one kind other than the gate did over all stays, and what a deletion from one may claim."""

    name: str
    deletion: str
    stays: Count
    patients: Count
    tokens: Count
    counts: Mapping[str, Count] = field(default_factory=dict)
    worst: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CurveRow:
    """What one policy kept at one of several target budgets; fractions of 1, `budget` is hours kept over hours."""

    protocol: str
    channel: str
    policy: str
    target_share: float
    retention: Value
    stays: Count
    patients: Count
    events: Literal["all", "measured"] = "all"
    budget: Value = None
    retrieval: Value = None
    low: Value = None
    high: Value = None
    event_hours: OptionalCount = None
    measured_event_hours: OptionalCount = None
    reason: str | None = None


@dataclass(frozen=True)
class RecallRow:
    """What one memory read back of the same event hours, written (recalled) and never written (ghost).

    Shares of 1; `delay` in hours, `tolerance` in SD of the vital; net = recalled - ghost, bounded by low and high.
    `budget_bytes` is None for the budget in hours; `kept` is what a cache held, None for a matrix.
    """

    channel: str
    memory: str
    size: str
    budget: str
    delay: int
    tolerance: float
    events: Literal["all", "measured"]
    recalled: Value
    ghost: Value
    net: Value
    low: Value
    high: Value
    stays: Count
    patients: Count
    hours: Count
    event_hours: Count
    measured_event_hours: Count
    asked: Count
    budget_bytes: int | None = None
    recalled_low: Value = None
    recalled_high: Value = None
    ghost_low: Value = None
    ghost_high: Value = None
    kept: Value = None
    state_bytes: Value = None
    matched_hours: Value = None
    reason: str | None = None


@dataclass(frozen=True)
class TaskRow:
    """One policy on one synthetic task, over `trials` draws, beside the published value; no patient is in it."""

    task: str
    policy: str
    value: float
    trials: int
    published: float
    tolerance: float
    status: str
    source: str
    conditions: str
    low: float | None = None
    high: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Study:
    """The whole input of `render_report`; see the records above for the rows."""

    title: str
    simulated: bool
    source: SourceFacts
    settings: Mapping[str, Setting]
    versions: Mapping[str, str]
    queries: Mapping[str, str]
    attrition: Mapping[LevelName, Level]
    coverage: Sequence[CoverageRow]
    retention: Sequence[RetentionRow]
    contrasts: Sequence[ContrastRow]
    published: Sequence[PublishedRow] = ()
    audit: Sequence[AuditRow] = ()
    campaigns: Sequence[CampaignRow] = ()
    deletions: Sequence[DeletionRow] = ()
    curves: Sequence[CurveRow] = ()
    recall: Sequence[RecallRow] = ()
    tasks: Sequence[TaskRow] = ()
    streaming: Streaming | None = None
    memories: Sequence[MemoryRow] = ()
    events: Mapping[str, str] = field(default_factory=dict)
    not_claimed: Sequence[str] = ()
    show_records: bool = False


_STUDY = TypeAdapter(Study)


def read_study(study: Mapping[str, Any]) -> Study:
    """Build the records from a plain mapping; unknown fields are dropped.

    Raises ReportError naming the first field that is missing or has the wrong type, and never its content. A count that
    does not add up (source other than used plus everything left out) is refused: a report must not hide a lost row.
    """
    try:
        record = _STUDY.validate_python(dict(study))
    except ValidationError as error:
        first, more = error.errors(include_input=False, include_url=False)[0], error.error_count() - 1
        place = ".".join(str(part) for part in first["loc"] if not _is_type_name(part))
        raise ReportError(
            f"report input: field {place or 'study'}: {_reason(first['type'])} ({more} more); "
            "render the report from the results of a finished study"
        ) from None
    if not {"rows", "stays"} <= set(record.attrition):
        raise ReportError("report input: attrition: rows or stays missing; build the cohort again")
    for name, level in record.attrition.items():
        _check_total(name, level)
    return record


def _reason(kind: str) -> str:
    return "missing" if kind == "missing" else f"not of the expected type ({kind})"


def _is_type_name(part: object) -> bool:
    """Pydantic names the tried member of a union in the location; readers look for the field."""
    return isinstance(part, str) and (part in {"int", "float"} or part.startswith(("enum", "is-instance", "lax-or")))


def _check_total(name: str, level: Level) -> None:
    counts = [level.source, level.used, *level.left_out.values()]
    if any(count is HIDDEN for count in counts):
        return
    source, *parts = (int(count) for count in counts if not isinstance(count, Hidden))
    if source != sum(parts):
        raise ReportError(
            f"report input: attrition.{name}: used plus left out differs from source by {abs(source - sum(parts)):,}; "
            "build the cohort again"
        )
