"""`burstmamba synthesize`: photographs → bursts on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def synthesize(
    photos: Annotated[Path, typer.Argument(help="A photograph, or a folder of them (AVIF, JPEG, PNG, TIFF).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the bursts; must be empty or new.")],
    preset: Annotated[str, typer.Option(help="handheld-rgb, handheld-raw or synburst.")] = "handheld-rgb",
    layout: Annotated[
        str, typer.Option(help="folders, or synburst (SyntheticBurst's own; synburst preset only).")
    ] = "folders",
    count: Annotated[int, typer.Option(min=1, help="Bursts of each photograph.")] = 1,
    frames: Annotated[int, typer.Option(help="Frames of a burst.")] = 14,
    size: Annotated[int, typer.Option(help="Largest side of a frame in pixels.")] = 160,
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    nuisance: Annotated[bool, typer.Option(help="With moving objects, bad frames and the like.")] = True,
    maps: Annotated[bool, typer.Option(help="Also write the exact maps.")] = True,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting unlike the preset's: key=value.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out photographs that cannot be used.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
) -> None:
    """Make bursts with exact ground truth and exact maps of photographs."""
    from rich.console import Console
    from rich.progress import track

    from burstmamba.data.photographs import check_distinct, find_photographs
    from burstmamba.data.writing import BurstWriter, prepare_folder
    from burstmamba.errors import InputError

    paths = find_photographs(photos)
    writer = BurstWriter.prepare(
        out,
        preset=preset,
        layout=layout,
        frames=frames,
        size=size,
        seed=seed,
        nuisance=nuisance,
        maps=maps,
        settings=set_ or (),
    )
    check_distinct((writer.name(path, repetition), path) for path in paths for repetition in range(count))
    prepare_folder(out, force=force)
    progress = Console(stderr=True)
    written = 0
    for path in track(paths, "synthesising", console=progress):
        try:
            for repetition in range(count):
                writer.write(path, repetition, written)
                written += 1
        except InputError as error:
            if not skip_bad:
                raise
            progress.print(f"left out: {error}", markup=False, highlight=False)
    if not written:
        raise InputError(f"none of the {len(paths)} photographs could be used.")
    Console(soft_wrap=True).print(f"{written} burst(s) of {frames} frames in {out}", highlight=False)
