"""`icu-memory request new`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import command_group
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile

request = command_group("request", "Deletion requests.")


@request
def new(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The request file to write, mode 0600.")],
    request_id: Annotated[str, typer.Option(metavar="ID", help="8 to 64 of a-z, 0-9 and -; holds no patient's id.")],
    basis: Annotated[str, typer.Option(help="The ground of the request, such as: consent withdrawn.")],
    scope: Annotated[str, typer.Option(help="patient, stay or 'release retraction'.")],
    requester_role: Annotated[str, typer.Option(help="Who asks, as a role: patient, guardian, data provider.")],
    approver: Annotated[str, typer.Option(help="Who approves; not the requester.")],
    received_at: Annotated[str | None, typer.Option(metavar="TIME", help="RFC 3339 with Z; now by default.")] = None,
    due_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="RFC 3339 with Z; 30 days later by default.")
    ] = None,
    ids_from: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of ids: subject ids, stay ids for the scope stay.")
    ] = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write a deletion request; ids come from a file, a pipe or a prompt, never from the command line."""
    from flows.run.requests import ids_from_text, new_request, write_request
    from flows.settings import load_settings

    load_settings(settings)
    text, where = _text_of_ids(ids_from, scope)
    ids = ids_from_text(text, where)
    made = new_request(request_id, basis, scope, ids, requester_role, approver, received_at, due_at)
    write_request(out, made)
    console = Console(quiet, as_json)
    console.say(f"next: icu-memory delete RUN --request {out}")
    console.data({"request": str(out), **made.without_ids()}, str(out))


def _text_of_ids(file: Path | None, scope: str) -> tuple[str, str]:
    """The text that holds the ids, and how a refusal calls where it came from."""
    from flows.errors import FlowError

    if file is None:
        kind = "Stay" if scope == "stay" else "Subject"
        asked = typer.prompt(f"{kind} ids, by comma", err=True) if sys.stdin.isatty() else sys.stdin.read()
        return asked, "ids"
    try:
        return file.read_text(encoding="utf-8"), f"ids file {file}"
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "is not UTF-8 text"
        raise FlowError(f"ids file {file}: cannot be read ({reason}); check the path") from None
