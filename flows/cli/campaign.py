"""`icu-memory campaign`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile
from flows.progress import shown_progress


@command
def campaign(
    name: Annotated[Literal["nc01", "vla", "spectral", "recall"], typer.Argument(help="The source of the claims.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The JSON file to write.")] = Path("campaign.json"),
    size: Annotated[
        Literal["ci", "evidence"], typer.Option(help="ci takes seconds, evidence the published sizes and minutes.")
    ] = "ci",
    seed: Annotated[int | None, typer.Option(help="Seed of the generators.")] = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Measure a source's published claims again: ours beside the published value, and whether it was reproduced."""
    from flows.settings import load_settings
    from flows.steps.campaign import campaign as run

    chosen = load_settings(settings, {"seed": seed})
    with shown_progress(quiet=quiet):
        document = run(name, out, size, chosen)
    counts = Counter(row["status"] for row in document["rows"])
    lines = [_line(row) for row in document["rows"]]
    lines.append(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    Console(quiet, as_json).data(document, "\n".join(lines))


def _line(row: dict[str, Any]) -> str:
    """One claim for people."""
    ours, published = (_number(row[side]) for side in ("ours", "published"))
    beside = f", published {published}" if row["published"] is not None else ""
    return f"{row['status']}: {row['quantity']}: {ours}{beside}"


def _number(value: Any) -> str:
    return "none" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)
