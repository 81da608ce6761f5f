"""`burstmamba train`: run a recipe."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

STARTED = time.monotonic()


def program_start() -> float:
    """`time.monotonic()` at the start of this process: importing torch is part of a budget in minutes."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        age = float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):  # a system without /proc
        return STARTED
    return time.monotonic() - age if 0 <= age < 600 else STARTED  # some containers count from another start


def train(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (see --list) or a .py file with RECIPE.")] = "",
    data: Annotated[list[str] | None, typer.Option(help="Folder or pattern of training data; may be repeated.")] = None,
    val: Annotated[str | None, typer.Option(help="Folder of validation photographs.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run (default: runs/RECIPE).")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Lay the schedule over this much wall time and end inside it.")
    ] = None,
    pause_after: Annotated[
        float | None, typer.Option(help="Stop after so many minutes; go on later with --resume.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")] = False,
    warm_start: Annotated[
        Path | None,
        typer.Option(help="Begin with these weights: a .safetensors file, an export folder or a shipped model."),
    ] = None,
    start_at: Annotated[float, typer.Option(help="Share of the schedule that counts as done.")] = 0.0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: key=value, such as phases.batch=8.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    graphs: Annotated[bool | None, typer.Option(help="Capture the step as CUDA graphs (default: on a GPU).")] = None,
    tensorboard: Annotated[bool | None, typer.Option(help="Log for TensorBoard (default: if installed).")] = None,
    shard_mib: Annotated[float, typer.Option(help="Largest file of the compact export, in MiB.")] = 15.0,
    list_: Annotated[bool, typer.Option("--list", help="List the recipes and exit.")] = False,
) -> None:
    """Train a network by a recipe; Ctrl-C writes a checkpoint first, --resume goes on."""
    from burstmamba.errors import InputError
    from burstmamba.training.overrides import load_recipe, override, recipe_names
    from burstmamba.training.run import RunOptions

    if list_:
        typer.echo("\n".join(recipe_names()))
        return
    if not recipe:
        raise InputError(f"which recipe? Known: {', '.join(recipe_names())}.")
    chosen = override(load_recipe(recipe), set_ or [])
    options = RunOptions(
        out=out or Path("runs") / Path(recipe).stem,
        minutes=minutes,
        pause_after=pause_after,
        resume=resume,
        warm_start=warm_start,
        start_at=start_at,
        graphs=graphs,
        tensorboard=tensorboard,
        shard_mib=shard_mib,
    )
    from burstmamba.cli.train_display import TrainDisplay
    from burstmamba.training.preparation import run_recipe

    with TrainDisplay() as display:
        summary = run_recipe(chosen, options, data or [], val, device, started=program_start(), listener=display.show)
    display.conclude(summary, options.out)
    if summary.signal is not None:
        raise typer.Exit(128 + summary.signal)
