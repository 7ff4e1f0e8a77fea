"""`icu-memory receipt show` and `icu-memory receipt export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import command_group
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile, StateOption

receipt = command_group("receipt", "Receipts of completed deletions.")

ReceiptFile = Annotated[Path, typer.Argument(metavar="FILE", help="A receipt, such as RUN/receipts/REQUEST.json.")]


@receipt
def show(
    file: ReceiptFile,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Print a receipt in plain words, after a look at its own consistency; `icu-memory verify` judges the keys."""
    from flows.settings import load_settings
    from flows.steps.receipts import shown
    from flows.steps.verify import settled_where_registered

    settled_where_registered(load_settings(settings))
    document, text = shown(file)
    Console(quiet, as_json).data(document, text)


@receipt
def export(
    file: ReceiptFile,
    out: Annotated[Path, typer.Option("--out", metavar="HTML", help="The page to write.")],
    public_key: Annotated[
        Path | None, typer.Option("--public-key", metavar="FILE", help="The operator's public key, to check it with.")
    ] = None,
    subject_key: Annotated[
        Path | None,
        typer.Option("--subject-key", metavar="FILE", help="Write the requester's key here too."),
    ] = None,
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write a receipt as a page for the requester, and print its path."""
    from flows.settings import load_settings
    from flows.steps.receipts import export as written
    from flows.steps.receipts import hand_over
    from flows.steps.verify import settled_where_registered

    chosen = settled_where_registered(load_settings(settings, {"state": state_dir}))
    checked = written(file, out, public_key, chosen.state)
    if subject_key is not None:
        hand_over(file, subject_key, chosen.state)
    console = Console(quiet, as_json)
    if not checked:
        console.say("the signatures were checked against no known key; give --public-key or --state-dir")
    console.data({"page": str(out), "checked": checked}, str(out))
