"""The run's diary: one JSON object a line, and the same numbers for TensorBoard."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from burstmamba.errors import InputError

logger = logging.getLogger(__name__)

Value = float | int | str | bool | None


class Logbook:
    """Appends to `log.jsonl`; only the first process keeps one."""

    def __init__(self, folder: Path, *, active: bool = True, tensorboard: bool | None = None) -> None:
        """Open the diary of a run.

        Args:
            folder: the run's folder.
            active: False makes every call do nothing.
            tensorboard: True insists on it, None uses it when it is installed, False does without.
        """
        self.path, self.active = folder / "log.jsonl", active
        self.board = _open_board(folder / "tensorboard", tensorboard) if active else None

    def write(self, kind: str, step: int, values: dict[str, Value]) -> None:
        """Add a line. A full disk costs the line, not the run."""
        if not self.active:
            return
        values = {name: None if not_finite(value) else value for name, value in values.items()}  # JSON knows no NaN
        line = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:  # a full disk costs a line, not the run
            logger.warning("cannot write to %s: %s", self.path, error)
        for name, value in values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._show(lambda board, name=name, value=value: board.add_scalar(f"{kind}/{name}", value, step))

    def picture(self, name: str, image: Tensor, step: int) -> None:
        """Show (3, h, w) in [0, 1] in TensorBoard."""
        self._show(lambda board: board.add_image(name, image, step))

    def close(self) -> None:
        """Flush what TensorBoard still holds."""
        self._show(lambda board: board.close())

    def _show(self, show: Callable[[Any], None]) -> None:
        """Give TensorBoard something; when its file cannot be written, go on without it."""
        if self.board is None:
            return
        try:
            show(self.board)
        except OSError as error:  # a full disk costs the board, not the run
            logger.warning("TensorBoard gets nothing from now on: %s", error)
            self.board = None


def not_finite(value: Value) -> bool:
    """Whether a value is not finite."""
    return isinstance(value, float) and not math.isfinite(value)


def read_logbook(path: Path) -> list[dict[str, Value]]:
    """The lines of a run's diary; one that a crash cut off is left out."""
    path = path / "log.jsonl" if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"no logbook at {path}; give the folder of a run, as passed to train --out.")
    texts = path.read_text(errors="replace").splitlines()
    lines = [line for line in map(_read_line, texts) if line is not None]
    if len(lines) < len(texts):
        logger.warning("%s: skipped %d damaged lines", path, len(texts) - len(lines))
    return lines


def _read_line(text: str) -> dict[str, Value] | None:
    """One line of a diary, None if it is none."""
    try:
        line = json.loads(text)
    except json.JSONDecodeError:  # cut off by a kill
        return None
    return line if isinstance(line, dict) and {"kind", "step"} <= line.keys() else None


def _open_board(folder: Path, wanted: bool | None):
    if wanted is False:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        if wanted:
            raise InputError("TensorBoard is not installed; pip install 'burstmamba[train]'.") from error
        return None
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        raise InputError(f"TensorBoard cannot write to {folder}: {error.strerror}.") from error
