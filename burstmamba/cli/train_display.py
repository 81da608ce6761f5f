"""What `burstmamba train` shows: a progress bar on stderr, a line for each validation, the end of the run."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from burstmamba.training.run import Report, Validated
from burstmamba.training.trainer import Summary


class TrainDisplay:
    """The first process's view of a run; the others show warnings only."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.first = os.environ.get("RANK", "0") == "0"
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:5.1f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.first,
        )
        self.task = self.progress.add_task("preparing", total=1.0)

    def __enter__(self) -> TrainDisplay:
        level = logging.INFO if self.first else logging.WARNING
        handler = RichHandler(console=self.console, show_path=False, show_time=False)
        logger = logging.getLogger("burstmamba")
        logger.setLevel(level)
        logger.addHandler(handler)
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def show(self, event: Report | Validated) -> None:
        """Update the bar, or print a validation."""
        if isinstance(event, Report):
            text = f"{event.phase.name} step {event.step} · loss {event.progress.loss:.4f} · {event.pace:.1f} steps/s"
            self.progress.update(self.task, completed=event.position, description=text)
            return
        scores = event.scores
        self.progress.console.print(
            f"step {event.step}: PSNR L=1 {scores.single:.2f} · burst {scores.burst:.2f} · "
            f"copies {scores.copies:.2f} · interpolated {scores.base:.2f} dB",
            highlight=False,
        )

    def conclude(self, summary: Summary, out: Path) -> None:
        """Say how it ended and where the weights are."""
        if not self.first:
            return
        console = Console(soft_wrap=True, highlight=False)
        if summary.finished:
            console.print(f"finished: {out / 'weights.safetensors'}", markup=False)
        else:
            why = "paused" if summary.signal is None else "stopped"
            console.print(f"{why}; go on with the same command and --resume", markup=False)
