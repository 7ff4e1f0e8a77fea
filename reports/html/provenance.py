"""Where the numbers come from: settings, versions and how much of the release was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.html.model import Setting, Study
from reports.html.numbers import Cell, Kind, count, plain
from reports.html.shared import kind_of


def flatten(settings: Mapping[str, Setting], prefix: str = "") -> list[tuple[str, str]]:
    """Settings as dotted names and printed values, sorted by name; paths and long numbers are left out of the page."""
    found: list[tuple[str, str]] = []
    for name in sorted(settings):
        value = settings[name]
        if isinstance(value, Mapping):
            found += flatten(value, f"{prefix}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            found.append((plain(prefix + name), plain(", ".join(map(str, value))) or "none"))
        else:
            found.append((plain(prefix + name), _setting(value)))
    return found


def _setting(value: object) -> str:
    """Seeds have up to ten digits; anything longer may be an identifier."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not set"}[value]
    if isinstance(value, int):
        return str(value) if abs(value) < 2**32 else "[number not shown]"
    return plain(value)


def row_counts(study: Study) -> tuple[Cell, Cell | None, str]:
    """The chart rows of the source, those of a complete copy of its release if known, and the end of the sentence."""
    observed, expected = study.source.observed_rows, study.source.expected_rows
    seen = count(observed, kind_of(study), "not counted")
    if expected is None:
        return seen, None, "no count of a complete copy is known for it."
    words = "all of it was read." if observed == expected else "the source differs from the complete release."
    return seen, count(expected, Kind.PUBLISHED), words
