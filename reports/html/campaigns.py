"""The campaigns as tables: the claims of the other memories' sources, ours beside the published value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from reports.html.model import CampaignRow, Study
from reports.html.numbers import Cell, Kind, count, plain
from reports.html.shared import NOT_GIVEN, Table, notes

NAMES = {
    "nc01": "NC01, protected reads",
    "vla": "VLA, variational linear attention",
    "spectral": "Spectral retention",
    "recall": "Recall against load, all memories",
}
NOT_MEASURED = "not attempted here"
_DECIMALS = re.compile(r"(?<=\d\.)\d{5,}")
STATUSES = ("reproduced", "not reproduced", "refuted", "not attempted")


def campaigns_table(study: Study) -> Table:
    """A group a campaign: its name, its verdicts counted, and a line a claim with our cell and the published one."""
    groups = []
    for name in dict.fromkeys(row.campaign for row in study.campaigns):
        rows = [row for row in study.campaigns if row.campaign == name]
        groups.append((NAMES.get(name, plain(name)), _about(rows), [_line(row) for row in rows]))
    return Table(groups, notes(cell for *_, lines in groups for line in lines for cell in line[2:4]))


def _about(rows: Sequence[CampaignRow]) -> str:
    """Size and how many claims came to which verdict."""
    counts: Counter[str] = Counter(row.status for row in rows)
    told = ", ".join(f"{status} {counts[status]:,}" for status in STATUSES if counts[status])
    return f"size {plain(rows[0].size)}; {told}"


def _line(row: CampaignRow) -> tuple[str, str, Cell, Cell, str, str]:
    """Quantity, what it was measured on, ours, published, target and verdict."""
    about = "; ".join(_told(part) for part in (row.conditions, row.reason) if part)
    ours = _value(row.ours, Kind.MEASURED, NOT_MEASURED)
    published = _value(row.published, Kind.PUBLISHED, NOT_GIVEN)
    return _told(row.quantity), about, ours, published, _told(row.target or ""), row.status


def _value(value: float | str | None, kind: Kind, absent: str) -> Cell:
    """A number with up to nine significant digits, or a word."""
    if value is None or isinstance(value, int):
        return count(value, kind, absent)
    return Cell(_told(value if isinstance(value, str) else f"{value:.9g}"), kind)


def _told(text: str) -> str:
    """Text for the page; long decimals in groups of three, as a run of digits is withheld as a possible identifier."""
    return plain(_DECIMALS.sub(lambda found: "\u202f".join(re.findall(r"\d{1,3}", found.group())), text))
