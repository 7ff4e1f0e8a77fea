"""`icu-memory verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.app import command
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile, StateOption

if TYPE_CHECKING:
    from flows.steps.verify import Verified


@command
def verify(
    target: Annotated[Path, typer.Argument(metavar="RUN_OR_RECEIPT", help="A run, or one of its receipts.")],
    public_key: Annotated[
        Path | None, typer.Option("--public-key", metavar="FILE", help="The operator's public key or key directory.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="CHECKPOINT", help="A checkpoint line that was kept, or a file that holds it.")
    ] = None,
    subject_key: Annotated[
        Path | None, typer.Option("--subject-key", metavar="FILE", help="An annex or key file: is it about this id?")
    ] = None,
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Check receipts, and with a RUN every file of it; exit 1 names the first mismatch, 3 says what is missing."""
    from flows.settings import load_settings
    from flows.steps.verify import settled_where_registered, trust
    from flows.steps.verify import verify as check

    chosen = settled_where_registered(load_settings(settings, {"state": state_dir}))
    relied_on = trust(public_key, chosen.state, since)
    verified = check(target, relied_on, chosen.state)
    if subject_key is not None:
        _about_the_holder(verified, subject_key)
    _tell(verified, bool(relied_on.keys), Console(quiet, as_json))


def _tell(verified: Verified, decided: bool, console: Console) -> None:
    from reports.receipts.keys import fingerprint

    last = verified.last
    prints = {row.role: fingerprint(row.key_id) for row in last.facts.signers}
    document = {"receipts": len(verified.bundles), "checkpoint": last.checkpoint.line, "fingerprints": prints}
    signed = "\n".join(f"key of the {role}: {text}" for role, text in prints.items())
    told = f"verified: {len(verified.bundles)} receipt{'s' * (len(verified.bundles) != 1)}"
    if not decided:
        told = "consistent, but signed by keys that nobody vouched for; compare them and give --public-key"
    console.data({"verified": decided, **document}, f"{told}\n{signed}\n{last.checkpoint.line}")
    if not decided:
        raise typer.Exit(3)


def _about_the_holder(verified: Verified, file: Path) -> None:
    """Check the commitment with ids from the key file, a pipe or a prompt, never from the command line."""
    from flows.errors import CannotDecide, FlowError
    from flows.run.requests import ids_from_text
    from flows.steps.verify import verify_subject, with_ids
    from reports.receipts.annex import read_subject_key

    try:
        held = read_subject_key(file.read_bytes(), "subject key")
    except FileNotFoundError:
        raise CannotDecide(f"subject key {file}: is not there; check the path") from None
    except OSError as failure:
        raise FlowError(f"subject key {file}: cannot be read ({failure.strerror}); check the path") from None
    matching = [bundle for bundle in verified.bundles if bundle.facts.request.request_id == held.request_id]
    if not matching:
        raise FlowError("subject key: is of another request; give the one of this receipt")
    bundle = matching[-1]
    if not held.subject_ids and not held.stay_ids:
        asked = "stay ids" if bundle.facts.request.scope == "stay" else "subject ids"
        piped = not sys.stdin.isatty()
        text = sys.stdin.read() if piped else typer.prompt(asked, hide_input=True, err=True)
        held = with_ids(held, tuple(ids_from_text(text, asked)), bundle.facts.request.scope)
    verify_subject(bundle, held)
