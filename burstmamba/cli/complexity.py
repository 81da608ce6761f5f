"""`burstmamba complexity`: what a network costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def complexity(
    preset: Annotated[str, typer.Option(help="Which network.")] = "light",
    burst_length: Annotated[int, typer.Option(min=1, help="Frames in the burst.")] = 14,
    size: Annotated[str, typer.Option(help="LR size: 48 or HEIGHTxWIDTH.")] = "48",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw cost against burst length and area to this PNG.")] = None,
) -> None:
    """Print parameters and GFLOPs by part, in the conventions that papers use, side by side."""
    from burstmamba.evaluation.complexity import CONVENTIONS, cost_of_further_frame, measure_complexity, sum_operations
    from burstmamba.model.config import preset as find_preset

    config = find_preset(preset)
    height, width = parse_size(size)
    result = measure_complexity(config, height, width, burst_length)
    keyframe, burst = sum_operations(result.keyframe.values()), sum_operations(result.burst.values())
    rows = {
        convention: {
            "keyframe": keyframe.total(convention) / 1e9,
            "burst": burst.total(convention) / 1e9,
            "total": result.total(convention) / 1e9,
            "each further frame": cost_of_further_frame(config, height, width, convention) / 1e9,
        }
        for convention in CONVENTIONS
    }
    if plot is not None:
        from burstmamba.evaluation.complexity_plot import plot_complexity

        plot_complexity(config, height, width, plot)
    if as_json:
        report = {
            "preset": preset,
            "burst_length": burst_length,
            "size": [height, width],
            "parameters": {"keyframe": result.keyframe_parameters, "burst": result.burst_parameters},
            "gflops": rows,
            "conventions": CONVENTIONS,
            "parts": {
                stream: {part: operations.total("paper") / 1e9 for part, operations in parts.items()}
                for stream, parts in (("keyframe", result.keyframe), ("burst", result.burst))
            },
        }
        typer.echo(json.dumps(report, indent=2))
        return
    console = Console()
    console.print(
        f"{preset}: {result.keyframe_parameters:,} + {result.burst_parameters:,} parameters (keyframe + burst stream)"
    )
    table = Table(title=f"GFLOPs, {burst_length} frame(s) of {height}×{width}", title_justify="left")
    for heading in ("convention", "keyframe", "burst", "total", "each further frame"):
        table.add_column(heading, justify="left" if heading == "convention" else "right")
    for convention, row in rows.items():
        table.add_row(convention, *(f"{value:.3f}" for value in row.values()))
    console.print(table)
    for convention, meaning in CONVENTIONS.items():
        console.print(f"  {convention}: {meaning}", highlight=False)
    if plot is not None:
        console.print(f"plot: {plot}")


def parse_size(text: str) -> tuple[int, int]:
    """`48` → (48, 48); `120x160` → (120, 160)."""
    from burstmamba.errors import InputError

    numbers = text.lower().replace("×", "x").split("x")
    if not 1 <= len(numbers) <= 2 or not all(number.isdigit() and int(number) > 0 for number in numbers):
        raise InputError(f"--size must be a number or HEIGHTxWIDTH in pixels, got {text!r}.")
    return int(numbers[0]), int(numbers[-1])
