"""The options that every command shares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")]
SettingsFile = Annotated[Path | None, typer.Option("--settings", metavar="FILE", help="A TOML file of settings.")]
SourceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[SOURCE]",
        help="A MIMIC-IV directory (its parent or icu/ will do), or `simulated`; else $MIMICIV_PATH, $MIMIC_DATA_DIR.",
        show_default=False,
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", metavar="DIR", help="The site's state directory; else $ICU_MEMORY_STATE.", show_default=False
    ),
]
RunOption = Annotated[Path, typer.Option("--out", metavar="RUN", help="The run directory, made where absent.")]
