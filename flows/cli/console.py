"""Data on stdout, talk on stderr; one line for every refusal."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import typer


@dataclass(frozen=True)
class Console:
    """How one command talks: quiet keeps stderr empty but for errors, ``as_json`` makes stdout one JSON document."""

    quiet: bool = False
    as_json: bool = False

    def say(self, text: str) -> None:
        """Talk: one line on stderr unless quiet."""
        if not self.quiet:
            typer.echo(text, err=True)

    def data(self, document: Any, text: str) -> None:
        """The result on stdout: ``document`` as JSON, or ``text`` for people."""
        typer.echo(json.dumps(document, indent=1, sort_keys=True, allow_nan=False) if self.as_json else text)


def error(text: str) -> None:
    """The one line of a refusal on stderr, red where a terminal takes colour and NO_COLOR is not set."""
    line = " ".join(text.split())
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    typer.echo((typer.style("error:", fg="red", bold=True) if coloured else "error:") + f" {line}", err=True)
