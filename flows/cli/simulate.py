"""`icu-memory simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile
from flows.progress import shown_progress


@command
def simulate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")],
    patients: Annotated[int | None, typer.Option(help="Invented patients.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed; the same seed gives the same bytes.")] = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write invented patients in the MIMIC-IV v3.1 layout, with the truth beside them."""
    from cohort_sql.simulate import simulate as write_source
    from flows.settings import load_settings

    chosen = load_settings(settings, {"simulated_patients": patients, "seed": seed})
    with shown_progress(quiet=quiet) as progress:
        write_source(
            directory,
            patients=chosen.simulated_patients,
            seed=chosen.seed,
            progress=progress.counter("simulate", "patients"),
        )
    Console(quiet, as_json).data({"source": str(directory), "patients": chosen.simulated_patients}, str(directory))
