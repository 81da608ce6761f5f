"""`burstmamba plot`: draw the curves of training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, as given to train --out.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="PNG to write.")] = Path("curves.png"),
    over: Annotated[str, typer.Option(help="What runs along: steps or minutes.")] = "steps",
) -> None:
    """Draw loss and validation PSNR of one or several training runs."""
    from rich.console import Console

    from burstmamba.training.curves import draw_curves

    draw_curves(runs, out, over=over)
    Console(soft_wrap=True).print(str(out), markup=False, highlight=False)
