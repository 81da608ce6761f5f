"""Cost against burst length and against area, as one picture."""

from __future__ import annotations

from pathlib import Path

from burstmamba.errors import InputError
from burstmamba.evaluation.complexity import measure_complexity
from burstmamba.model.config import ModelConfig


def plot_complexity(config: ModelConfig, height: int, width: int, path: Path) -> None:
    """Write a PNG with two panels: GFLOPs by burst length at this size, and by area for L = 1 and L = 14."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install 'burstmamba[plot]'.") from error
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    by_length, by_area = figure.subplots(1, 2)
    lengths = range(1, 31)
    for convention in ("paper", "executed"):
        costs = [measure_complexity(config, height, width, l).total(convention) / 1e9 for l in lengths]
        by_length.plot(lengths, costs, label=convention)
    by_length.set(xlabel="burst length L", ylabel="GFLOPs", title=f"{height}×{width} LR pixels")
    by_length.legend()
    sides = range(32, 513, 32)
    for l in (1, 14):
        costs = [measure_complexity(config, side, side, l).total("paper") / 1e9 for side in sides]
        by_area.plot([side**2 / 1e6 for side in sides], costs, label=f"L = {l}")
    by_area.set(xlabel="LR megapixels", ylabel="GFLOPs", title="cost grows linearly with area")
    by_area.legend()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:  # a place that cannot be written, an ending that matplotlib does not know
        raise InputError(f"cannot write {path} ({error}); name another PNG.") from error
