"""`icu-memory doctor`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, RunOption, SettingsFile, SourceArgument


@command
def doctor(
    source: SourceArgument = None,
    out: RunOption = Path("run"),
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Tell what is ready and what is missing; exit 1 when something is missing."""
    from flows.doctor import examine
    from flows.settings import load_settings
    from flows.steps.preflight import source_or_none

    findings = examine(source_or_none(source), load_settings(settings), out.absolute().parent)
    width = max(len(finding.name) for finding in findings)
    lines = (f"{finding.state:8}{finding.name:{width}}  {finding.text}" for finding in findings)
    Console(quiet, as_json).data([asdict(finding) for finding in findings], "\n".join(lines))
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)
