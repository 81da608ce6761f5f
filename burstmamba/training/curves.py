"""Loss and validation curves of runs, drawn from their logbooks."""

from __future__ import annotations

import io
import math
from pathlib import Path

from burstmamba.checkpoint import write_atomically
from burstmamba.errors import InputError
from burstmamba.training.logbook import Value, read_logbook

SERIES = {"burst": "-", "single": "--", "copies": ":"}  # line styles of the three validation scores


def draw_curves(runs: list[Path], path: Path, *, over: str = "steps") -> None:
    """Draw the loss and the validation PSNR of one or several runs side by side.

    Args:
        runs: folders of runs, or their logbooks.
        path: PNG to write.
        over: `steps` or `minutes`.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("drawing needs matplotlib; pip install 'burstmamba[plot]'.") from error
    if over not in ("steps", "minutes"):
        raise InputError(f"curves can be drawn over steps or minutes, got {over!r}.")
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    losses, scores = figure.subplots(1, 2)
    for index, run in enumerate(runs):
        lines = last_of_each_step(read_logbook(run))
        if not any(line["kind"] in ("train", "validation") for line in lines):
            raise InputError(f"{run} has trained nothing yet; wait for its first steps, or leave it out.")
        folder = run if run.is_dir() else run.parent
        colour, name = f"C{index % 10}", folder.name or folder.resolve().name  # "." has no name of its own
        x, loss = _series(lines, "train", "loss", over)
        losses.plot(x, loss, color=colour, alpha=0.25)
        losses.plot(x, smooth(loss), color=colour, label=name)
        for key, style in SERIES.items():
            x, value = _series(lines, "validation", key, over)
            scores.plot(x, value, style, color=colour, label=f"{name}: {key}")
    losses.set(xlabel=over, ylabel="loss", yscale="log", title="training loss")
    scores.set(xlabel=over, ylabel="PSNR (dB)", title="validation, averaged weights")
    for axes in (losses, scores):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    write_atomically(path, content.getvalue())


def last_of_each_step(lines: list[dict[str, Value]]) -> list[dict[str, Value]]:
    """One line for each kind and step, in order: a resumed run writes the steps after its checkpoint twice."""
    found = {(line["kind"], line["step"]): line for line in lines}
    return sorted(found.values(), key=lambda line: float(line["step"] or 0))


def smooth(values: list[float], weight: float = 0.1) -> list[float]:
    """A running average that begins at the first value."""
    average, found = None, []
    for value in values:
        average = value if average is None else average + weight * (value - average)
        found.append(average)
    return found


def _series(lines: list[dict[str, Value]], kind: str, key: str, over: str) -> tuple[list[float], list[float]]:
    chosen = [line for line in lines if line["kind"] == kind and _is_number(line.get(key))]
    x = [line["step"] if over == "steps" else line["seconds"] / 60 for line in chosen]  # pyright: ignore (numbers)
    return x, [line[key] for line in chosen]  # pyright: ignore[reportReturnType] (numbers)


def _is_number(value: Value) -> bool:
    """Whether there is something to draw: the loss of steps that were all skipped is None, in old logbooks NaN."""
    return isinstance(value, (int, float)) and math.isfinite(value)
