"""The Typer application, and the place where every refusal becomes one line and an exit code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any, ParamSpec

import typer
from typer.core import TyperGroup

from flows.cli.console import error
from flows.errors import data_free

P = ParamSpec("P")

_SHARED_FLAGS = {"--json", "--quiet", "-q"}
_SHARED_WITH_VALUE = {"--settings"}


class _Commands(TyperGroup):
    """Accepts the shared options before the command's name too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _behind_the_command(args))


app = typer.Typer(
    name="icu-memory",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Online memories for hourly ICU vitals: cohort, memories, retention, one report.",
)


def command(callback: Callable[P, None]) -> Callable[P, None]:
    """Register a command under its function's name; what it raises ends as one line on stderr and an exit code."""
    return app.command()(_ending_in_one_line(callback, callback.__name__))


def command_group(name: str, help_text: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A decorator as `command` for the commands below a name: `icu-memory NAME FUNCTION`."""
    group = typer.Typer(cls=_Commands, no_args_is_help=True, rich_markup_mode=None, help=help_text)
    app.add_typer(group, name=name)

    def register(callback: Callable[P, None]) -> Callable[P, None]:
        return group.command()(_ending_in_one_line(callback, f"{name} {callback.__name__}"))

    return register


def _ending_in_one_line(callback: Callable[P, None], name: str) -> Callable[P, None]:
    @functools.wraps(callback)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            return callback(*args, **kwargs)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            error("stopped by the user; what is finished is kept, run the same command to continue")
            raise typer.Exit(4) from None
        except Exception as failure:
            refusal = data_free(failure, name)
        error(str(refusal))
        raise typer.Exit(refusal.exit_code)

    return told


def _behind_the_command(args: list[str]) -> list[str]:
    moved: list[str] = []
    rest = list(args)
    while rest and (rest[0] in _SHARED_FLAGS or rest[0].split("=")[0] in _SHARED_WITH_VALUE):
        moved.append(rest.pop(0))
        if moved[-1] in _SHARED_WITH_VALUE and rest:
            moved.append(rest.pop(0))
    return rest[:1] + moved + rest[1:]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"icu-memory {version('icu-stream-memory')}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del show_version
