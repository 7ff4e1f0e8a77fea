"""`icu-memory keys new` and `icu-memory keys rotate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli.app import command_group
from flows.cli.console import Console
from flows.cli.options import JsonFlag, QuietFlag, SettingsFile, StateOption

keys = command_group("keys", "The keys that sign receipts.")

RoleOption = Annotated[str, typer.Option("--role", help="Who signs with it: operator or steward.")]


@keys
def new(
    role: RoleOption = "operator",
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Make the key of a role in the state directory and print its fingerprint."""
    _make("new", role, state_dir, settings, Console(quiet, as_json))


@keys
def rotate(
    role: RoleOption = "operator",
    state_dir: StateOption = None,
    settings: SettingsFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Replace the key of a role; what the old one signed stays verifiable."""
    _make("rotate", role, state_dir, settings, Console(quiet, as_json))


def _make(verb: Literal["new", "rotate"], role: str, state: Path | None, file: Path | None, console: Console) -> None:
    from flows.settings import load_settings
    from flows.steps.keys import make_key

    made = make_key(verb, role, load_settings(file, {"state": state}))
    console.say(f"hand out: {made.public_file}")
    console.data({"key_id": made.key_id, "public_key": str(made.public_file), "role": role}, made.fingerprint)
