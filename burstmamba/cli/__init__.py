"""The command line: parse and delegate. A user's mistake gives one line and exit code 2."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from burstmamba.errors import InputError

# Command name -> module of burstmamba.cli holding a function of the same name (dashes become underscores).
COMMANDS = {
    "restore": "restore",
    "align": "align",
    "app": "app",
    "train": "train",
    "plot": "plot",
    "evaluate": "evaluate",
    "ablate": "ablate",
    "figures": "figures",
    "synthesize": "synthesize",
    "openburst": "openburst",
    "complexity": "complexity",
    "doctor": "doctor",
}

INTERRUPTED = 130


def build_app() -> typer.Typer:
    """The typer application; command modules import what is heavy inside their functions."""
    app = typer.Typer(
        name="burstmamba",
        help="Turn a handheld burst of frames into one sharp ×4 photograph.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(whole_command)
    for name, module in COMMANDS.items():
        function = getattr(importlib.import_module(f"burstmamba.cli.{module}"), name.replace("-", "_"))
        app.command(name)(function)
    return app


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        from burstmamba import __version__

        typer.echo(__version__)
        raise typer.Exit


def whole_command(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=show_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Entry point of the `burstmamba` command."""
    # Read when torch is imported: threads that wait sleep, and leave the cores to other programs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every screen has the letters of every file's name
    try:
        build_app()()
    except InputError as error:  # a sentence for the user, not a traceback
        Console(stderr=True, soft_wrap=True, emoji=False).print(f"error: {error}", markup=False, highlight=False)
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as end:  # typer turns Ctrl-C into an exit with code 130
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        Console(stderr=True).print("interrupted", markup=False)
        sys.exit(INTERRUPTED)
