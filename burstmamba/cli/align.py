"""`burstmamba align`: how the frames of a burst fit together, as a table, pictures and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from burstmamba.correspondence import Alignment


def align(
    burst: Annotated[list[str], typer.Argument(help="A folder, a pattern, a clip or the frames themselves.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for pictures and report.json.")] = None,
    method: Annotated[
        str, typer.Option(help="auto, homography, dense, raft-small, raft-large, identity or a .safetensors of maps.")
    ] = "auto",
    keyframe: Annotated[str, typer.Option(help="first, sharpest, a position from 0, or a file name.")] = "first",
    limit: Annotated[int | None, typer.Option(min=1, help="Use at most this many frames.")] = None,
    raft_weights: Annotated[Path | None, typer.Option(help="File with RAFT's weights.")] = None,
    save_maps: Annotated[Path | None, typer.Option(help="Also write the maps to this .safetensors file.")] = None,
) -> None:
    """Align a burst and report motion, confidence and the frames that would be left out."""
    from burstmamba.correspondence import align_burst
    from burstmamba.correspondence import save_maps as write_maps
    from burstmamba.correspondence.maps import check_maps_file
    from burstmamba.correspondence.report import write_report
    from burstmamba.files import read_burst
    from burstmamba.folders import make_folder

    if save_maps is not None:
        check_maps_file(save_maps)
    if out is not None:
        make_folder(out)

    shots = burst[0] if len(burst) == 1 else burst
    chosen: int | str = int(keyframe) if keyframe.isdecimal() else keyframe
    messages = Console(stderr=True, soft_wrap=True, emoji=False)
    with messages.status("reading"):
        loaded = read_burst(shots, keyframe=chosen, limit=limit)
    with messages.status(f"aligning {len(loaded.burst)} frames"):
        alignment = align_burst(loaded.burst, method, raft_weights=raft_weights)
    console = Console(soft_wrap=True, emoji=False)
    console.print(table(alignment))
    for note in (*loaded.notes, *alignment.notes):
        console.print(note, markup=False, highlight=False)
    if save_maps is not None:
        write_maps(save_maps, alignment.maps_of_all_frames(), loaded.burst.names)
        console.print(f"maps: {save_maps}", markup=False, highlight=False)
    if out is not None:
        write_report(alignment, out)
        console.print(f"report: {out}", markup=False, highlight=False)


def table(alignment: Alignment) -> Table:
    """One row a frame."""
    rows = Table("frame", "", "confidence", "x px", "y px", "sharpness", "overlap", "motion")
    for column in rows.columns[2:7]:
        column.justify = "right"
    rows.columns[0].overflow = "fold"
    for i, frame in enumerate(alignment.frames):
        rows.add_row(
            escape(frame.name),
            "keyframe" if i == 0 else "kept" if frame.kept else "left out",
            f"{frame.confidence:.2f}",
            f"{frame.motion[0]:+.2f}",
            f"{frame.motion[1]:+.2f}",
            f"{frame.sharpness:.2f}",
            f"{frame.overlap:.0%}",
            "" if i == 0 else frame.model,
        )
    return rows
