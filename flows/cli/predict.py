"""`icu-memory predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile, SourceArgument, StateOption
from flows.progress import shown_progress


@command
def predict(
    source: SourceArgument = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The JSON table.")] = Path("prediction.json"),
    seeds: Annotated[int, typer.Option(help="Trainings of each sequence model.")] = 5,
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Train models to predict an event in the next six hours and compare them on test patients."""
    from flows.settings import load_settings
    from flows.steps.predict import predict as run
    from flows.steps.preflight import SIMULATED, source_or_none
    from flows.steps.site import settled

    chosen = settled(load_settings(settings, {"state": state_dir}))
    console = Console(quiet, as_json)
    with shown_progress(quiet=quiet):
        found = run(source_or_none(source) or SIMULATED, out, seeds, chosen)
    console.data(found, "\n".join(_line(row) for row in found["rows"]))


def _line(row: dict[str, Any]) -> str:
    """One model for people: AUROC with its interval over patients."""
    low, high = row["auroc_interval"]
    interval = "interval not defined" if low is None else f"{low:.3f} to {high:.3f} over patients"
    auroc = "not defined" if row["auroc"] is None else f"{row['auroc']:.3f}"
    return f"{row['model']}: AUROC {auroc} ({interval})"
