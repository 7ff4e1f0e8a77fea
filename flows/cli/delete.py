"""`icu-memory delete`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile, StateOption


@command
def delete(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished study.")],
    request: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A request; may be repeated. All received ones otherwise.")
    ] = None,
    all_runs: Annotated[bool, typer.Option("--all-runs", help="Treat every registered run of the site.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    suppressed: Annotated[
        bool, typer.Option("--suppressed", help="Remove patients that the site deleted before, from a restored run.")
    ] = False,
    restandardise: Annotated[
        bool, typer.Option("--restandardise", help="Compute everything again from the source, statistics included.")
    ] = False,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train prediction models again; refused where the run has none.")
    ] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Measure the wards against a fresh refit.")] = False,
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Carry out deletion requests on a run, and print where their receipts are."""
    from flows.settings import load_settings
    from flows.steps.forget.plan import plan_lines, refuse_retraining
    from flows.steps.forget.work import Options, delete_suppressed, preview
    from flows.steps.forget.work import delete as deleted

    chosen = load_settings(settings, {"state": state_dir})
    console = Console(quiet, as_json)
    options = Options(all_runs, audit, restandardise)
    refuse_retraining(run, wanted=retrain)
    if dry_run:
        plan = preview(run, request or (), chosen, options)
        console.data({"actions": plan.actions}, "\n".join(plan_lines(plan)))
        return
    done = delete_suppressed(run, chosen) if suppressed else deleted(run, request or (), chosen, options)
    console.say(
        "done; keep this checkpoint line elsewhere:" if done.fresh else "was carried out already; nothing to do"
    )
    if done.checkpoint:
        console.say(done.checkpoint)
    for lost in done.lost:
        console.say(f"registered run {lost}: not found and not treated; its copies may still hold the patient")
    listed = [str(file) for file in done.receipts]
    console.data({"receipts": listed, "checkpoint": done.checkpoint, "fresh": done.fresh}, "\n".join(listed))
