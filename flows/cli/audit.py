"""`icu-memory audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile, SourceArgument, StateOption
from flows.progress import shown_progress


@command
def audit(
    source: SourceArgument = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The JSON table to write.")] = Path("audit.json"),
    regimes: Annotated[str, typer.Option(help="all, or names by comma.")] = "all",
    trials: Annotated[int | None, typer.Option(help="Trials of each regime.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the trials.")] = None,
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Delete keys from memories and compare what is left with proved solutions; exit 1 when a trial fails.

    Where no SOURCE is named in either way, the hourly-vitals regimes use invented stays.
    """
    from flows.settings import load_settings
    from flows.steps.audit import audit as run
    from flows.steps.preflight import SIMULATED, source_or_none
    from flows.steps.site import settled

    chosen = settled(load_settings(settings, {"audit_trials": trials, "seed": seed, "state": state_dir}))
    console = Console(quiet, as_json)
    with shown_progress(quiet=quiet):
        table = run(source_or_none(source) or SIMULATED, out, regimes.split(","), chosen)
    console.data(table, "\n".join(_line(row) for row in table["rows"]))
    if any(row["completed"] < row["attempted"] or row["within_target"] < row["completed"] for row in table["rows"]):
        raise typer.Exit(1)


def _line(row: dict[str, Any]) -> str:
    """One regime for people: completed of attempted, worst error, share of trials that the certificate covers."""
    worst = "no trial completed" if row["error_worst"] is None else f"worst error {row['error_worst']:.1e}"
    return (
        f"{row['regime']} ({row['built']}): {row['completed']} of {row['attempted']} completed, {worst}, "
        f"{row['within_target']} within {row['target']:.0e}, {row['covered']} covered by their certificate"
    )
