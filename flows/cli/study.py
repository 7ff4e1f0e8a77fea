"""`icu-memory study`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, RunOption, SettingsFile, SourceArgument, StateOption
from flows.progress import shown_progress


@command
def study(
    source: SourceArgument = None,
    out: RunOption = Path("run"),
    preset: Annotated[str | None, typer.Option(help="Cohort rules: causal (careful, the default) or paper.")] = None,
    held_out: Annotated[
        str | None, typer.Option(help="Report one held-out channel only: hr, sbp, rr, spo2 or temp.")
    ] = None,
    stays: Annotated[int | None, typer.Option(help="Draw at most this many eligible stays.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draw and the split.")] = None,
    memories: Annotated[
        str | None, typer.Option(help="Online memories, by comma: svdd, vla, nc01 (all three by default).")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    runner: Annotated[str | None, typer.Option(help="threads or dask.")] = None,
    workers: Annotated[int | None, typer.Option(help="Buckets at a time.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The one-minute version.")] = False,
    show_records: Annotated[bool, typer.Option("--show-records", help="Show small counts, for local viewing.")] = False,
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Build the cohort, measure what each policy keeps, write RUN/report.html and print its path.

    Run the same command again after an interruption: what is finished is kept and the result has the same bytes.
    """
    from flows.settings import load_settings
    from flows.steps.preflight import named_source
    from flows.study import run_study

    flags: dict[str, Any] = {
        "state": state_dir,
        "preset": preset,
        "held_out": held_out,
        "stays": stays,
        "seed": seed,
        "memories": memories,
    }
    flags |= {"device": device, "runner": runner, "workers": workers, "show_records": show_records or None}
    chosen = load_settings(settings, flags, quick=quick)
    console = Console(quiet, as_json)
    with shown_progress(quiet=quiet):
        outcome = run_study(named_source(source), out, chosen)
    console.say("study finished" if outcome.fresh else "study was finished already; nothing to do")
    console.data({"report": str(outcome.report), "run": str(outcome.run), "fresh": outcome.fresh}, str(outcome.report))
