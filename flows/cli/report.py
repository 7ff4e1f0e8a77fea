"""`icu-memory report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile, StateOption


@command
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished study.")],
    show_records: Annotated[bool, typer.Option("--show-records", help="Show small counts, for local viewing.")] = False,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show the deletion audit that `icu-memory audit` wrote.")
    ] = None,
    campaign: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Show a campaign that `icu-memory campaign` wrote; may be repeated."),
    ] = None,
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Render RUN/report.html again from the run's figures, and print its path."""
    from flows.settings import load_settings
    from flows.steps.report import render_again
    from flows.steps.site import settled

    chosen = settled(load_settings(settings, {"show_records": show_records or None, "state": state_dir}))
    path = render_again(
        run.absolute(),
        show_records=chosen.show_records,
        audit=audit,
        campaigns=campaign or (),
        state=chosen.state,
    )
    Console(quiet, as_json).data({"report": str(path)}, str(path))
