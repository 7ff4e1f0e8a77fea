"""`icu-memory bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile
from flows.progress import shown_progress


@command
def bench(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The JSON file to write.")] = Path("bench.json"),
    rows: Annotated[int | None, typer.Option(help="Chart rows of the simulated file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A fortieth of the rows, short streams.")] = False,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Measure cohort build, streaming and memory as ratios within one run."""
    from flows.bench import run_bench
    from flows.settings import load_settings

    chosen = load_settings(settings, {"bench_rows": rows})
    with shown_progress(quiet=quiet):
        document = run_bench(out, chosen, quick=quick)
    Console(quiet, as_json).data(document, "\n".join(_line(row) for row in document["rows"]))


def _line(row: dict[str, Any]) -> str:
    """One benchmark for people: its name and its ratios."""
    what = " ".join(str(row[name]) for name in ("bench", "kind", "n") if row.get(name) is not None)
    ratios = {name: value for name, value in row.items() if "ratio" in name and isinstance(value, float)}
    return f"{what}: " + ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in ratios.items())
