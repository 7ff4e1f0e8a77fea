"""The rows of a campaign: one claim each, ours beside the published value, with a verdict from a target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from evaluation.published import PublishedFigure

Status = Literal["reproduced", "not reproduced", "refuted", "not attempted"]
Size = Literal["ci", "evidence"]
Value = float | int | str | None
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Row:
    """One claim; `target` says in words what `status` was decided by, `published` is None where no source has it."""

    quantity: str
    conditions: str
    ours: Value
    published: Value
    source: str | None
    target: str | None
    status: Status
    reason: str | None = None


@dataclass(frozen=True)
class Target:
    """What a measured number must satisfy, in words and as a test."""

    words: str
    met: Callable[[float], bool]


@dataclass(frozen=True)
class Findings:
    """What one part of a campaign found: rows of claims, and raw rows behind them."""

    rows: list[Row]
    raw: list[dict[str, Any]]

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.rows + other.rows, self.raw + other.raw)

    def records(self) -> list[dict[str, Any]]:
        """The rows as flat records."""
        return [asdict(row) for row in self.rows]


def at_most(limit: float) -> Target:
    """ours <= limit."""
    return Target(f"at most {limit:.12g}", lambda ours: ours <= limit)


def at_least(limit: float) -> Target:
    """ours >= limit."""
    return Target(f"at least {limit:.12g}", lambda ours: ours >= limit)


def equals(value: float, tolerance: float = 0.0) -> Target:
    """|ours - value| <= tolerance."""
    words = f"{value:.12g}" + (f" within {tolerance:.2g}" if tolerance else "")
    return Target(words, lambda ours: abs(ours - value) <= tolerance)


def between(low: float, high: float) -> Target:
    """low <= ours <= high."""
    return Target(f"from {low:.12g} to {high:.12g}", lambda ours: low <= ours <= high)


def judged(
    quantity: str,
    conditions: str,
    ours: float,
    target: Target,
    published: PublishedFigure | None = None,
    reason: str | None = None,
) -> Row:
    """A claim that is reproduced where the target is met; a number that is not finite never is."""
    met = math.isfinite(ours) and target.met(ours)
    value, source = (None, None) if published is None else (published.value, published.source)
    return Row(
        quantity, conditions, ours, value, source, target.words, "reproduced" if met else "not reproduced", reason
    )


def claimed(quantity: str, conditions: str, ours: float, claim: Target, published: PublishedFigure, reason: str) -> Row:
    """A general statement of a source: refuted by one measurement that breaks it."""
    status: Status = "reproduced" if claim.met(ours) else "refuted"
    return Row(quantity, conditions, ours, published.value, published.source, claim.words, status, reason)


def not_attempted(quantity: str, published: PublishedFigure, reason: str) -> Row:
    """A published figure that nothing here measures."""
    return Row(quantity, published.conditions, None, published.value, published.source, None, "not attempted", reason)
