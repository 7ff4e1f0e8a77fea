"""`icu-memory export meds`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import command_group
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile, StateOption

export = command_group("export", "The cohort in other layouts.")


@export
def meds(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a study whose cohort is finished.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The new directory to write, mode 0700.")],
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write the measured hours of the cohort in the MEDS layout; a deletion names the directory as not covered."""
    from flows.settings import load_settings
    from flows.steps.meds import export_meds
    from flows.steps.site import settled

    report = export_meds(run, out, settled(load_settings(settings, {"state": state_dir})))
    console = Console(quiet, as_json)
    console.say(
        f"{report['events']:,} measured events of {report['stays']:,} stays; {report['filled_left_out']:,} filled "
        "values left out; records of patients: keep the directory protected, no deletion reaches it"
    )
    console.data(report, str(report["directory"]))
