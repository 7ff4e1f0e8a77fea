"""How a number becomes text: fixed decimals, a true minus sign, and a kind that decides how it looks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from reports.html.model import Hidden, OptionalCount, Value

HIDDEN_NOTE = "hidden: a count of 1 to 10, or a number from which one would follow exactly"
_LONG_NUMBER = re.compile(r"\d{7,}")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PATH = re.compile(r"(?<![\w.:/])(?:~|file:/|[A-Za-z]:)?[/\\]{1,2}[^\s,;\"'<>]+")


class Kind(Enum):
    """What a number is; each kind has its own look."""

    MEASURED = "measured"
    PUBLISHED = "published"
    SIMULATED = "simulated"
    HIDDEN = "hidden"
    UNDEFINED = "undefined"


@dataclass(frozen=True)
class Cell:
    """One printed number: its text, its kind, the reason where it is hidden or not defined, and blanks after it."""

    text: str
    kind: Kind
    note: str = ""
    pad: str = ""


def count(value: OptionalCount, kind: Kind, reason: str = "not reported by the run") -> Cell:
    """Print a count with thousands separators."""
    return _cell(value, kind, reason, "{:,}")


def fraction(value: Value, kind: Kind, reason: str = "not reported by the run", *, signed: bool = False) -> Cell:
    """Print a fraction with three decimals, with its sign where it is a difference."""
    return _cell(value, kind, reason, "{:+.3f}" if signed else "{:.3f}")


def as_published(value: float | None, reason: str, *, signed: bool = False) -> Cell:
    """Print a published figure with two to four decimals, padded with figure spaces so that points align."""
    whole = _cell(value, Kind.PUBLISHED, reason, "{:+.4f}" if signed else "{:.4f}")
    if whole.kind is Kind.UNDEFINED:
        return whole
    digits = whole.text.rstrip("0").ljust(whole.text.index(".") + 3, "0")
    return replace(whole, text=digits, pad="\u2007" * (len(whole.text) - len(digits)))


def percent(value: Value, kind: Kind, reason: str = "not reported by the run") -> Cell:
    """Print a fraction as a percentage with one decimal."""
    return _cell(
        None if value is None else value if isinstance(value, Hidden) else 100 * value, kind, reason, "{:.1f}\u00a0%"
    )


def percent_span(values: Iterable[Value]) -> str:
    """Print the smallest and the largest of several percentages, once where they print alike, without hidden ones."""
    shown = [value for value in values if isinstance(value, float | int)]
    ends = [percent(end, Kind.MEASURED).text for end in (min(shown), max(shown))] if shown else ["hidden"]
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def scientific(value: Value, kind: Kind, reason: str = "not reported by the run") -> Cell:
    """Print an error with two significant digits and a power of ten; zero is exact."""
    cell = _cell(value, kind, reason, "{:.1e}")
    if cell.kind is not kind:
        return cell
    digits, power = cell.text.replace("−", "-").split("e")
    raised = str(int(power)).translate(_SUPERSCRIPTS)
    return replace(cell, text=f"{digits} × 10{raised}".replace(" ", "\u2009") if float(digits) else "0")


def interval(low: Value, high: Value, kind: Kind, reason: str, *, signed: bool = False) -> Cell:
    """Print both ends of an interval; one missing end leaves the whole interval not defined."""
    ends = (fraction(low, kind, reason, signed=signed), fraction(high, kind, reason, signed=signed))
    for end in ends:
        if end.kind in {Kind.HIDDEN, Kind.UNDEFINED}:
            return end
    return Cell(f"{ends[0].text} to {ends[1].text}", kind)


def plain(text: object) -> str:
    """Return free text without absolute paths and without runs of seven or more digits, which may be identifiers."""
    return _LONG_NUMBER.sub("[number not shown]", _PATH.sub("[path not shown]", str(text)))


def _cell(value: int | float | Hidden | None, kind: Kind, reason: str, pattern: str) -> Cell:
    if isinstance(value, Hidden):
        return Cell("hidden", Kind.HIDDEN, HIDDEN_NOTE)
    if value is None or not math.isfinite(value):
        return Cell("not defined", Kind.UNDEFINED, reason)
    text = pattern.format(value)
    if not re.search("[1-9]", text):
        text = text.lstrip("+-")
    return Cell(text.replace("-", "−"), kind)
