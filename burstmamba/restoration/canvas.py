"""Where the result is collected: in memory, or in a temporary file when it is large."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from burstmamba.files.saving import not_written
from burstmamba.restoration.restore import Restoration
from burstmamba.restoration.runner import free_memory

IN_MEMORY = 1 << 30
"""Bytes up to which the picture is always kept in memory."""
FREE_SHARE = 1 / 32
"""A larger picture is kept in memory as well where it takes no more than this share of what is free."""


class Canvas:
    """Runs a restoration band by band and holds its picture, shrunk to the scale asked for."""

    def __init__(self, restoration: Restoration, scale: int, output: Path) -> None:
        """A large picture is held in a file beside `output`."""
        full = restoration.config.scale
        h, w = (side * scale // full for side in restoration.size)
        self.file = None
        if 12 * h * w > max(IN_MEMORY, FREE_SHARE * free_memory(torch.device("cpu"))):
            self.file = reserve(output, 12 * h * w)
        self.image, row = self._open(h, w), 0
        """(3, h, w) float32 in [0, 1]."""
        for band in restoration.bands():
            rows = band.shape[1] * scale // full
            for plane, target in zip(band, self.image, strict=True):  # straight from a GPU to where it stays
                target[row : row + rows].copy_(shrink(plane, rows, w))
            row += rows
            if self.file is not None:  # a new mapping forgets the pages that are already on the disk
                self.image = self._open(h, w)

    def _open(self, h: int, w: int) -> Tensor:
        if self.file is None:
            return torch.empty(3, h, w)
        return torch.from_numpy(np.memmap(self.file, np.float32, "r+", shape=(3, h, w)))


def reserve(output: Path, size: int):
    """A temporary file beside `output` that has its room on the disk: a mapped one that runs out ends the program."""
    try:
        # Without a name where the system allows it: nothing is left if the program is killed.
        file = tempfile.TemporaryFile(dir=output.parent, prefix=".burstmamba-", suffix=".part")  # noqa: SIM115 (kept open)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    except OSError as error:
        raise not_written(output, error) from error
    return file


def shrink(plane: Tensor, rows: int, columns: int) -> Tensor:
    """Area-average (h, w) to (rows, columns)."""
    if tuple(plane.shape) == (rows, columns):
        return plane
    return torch.from_numpy(cv2.resize(plane.cpu().numpy(), (columns, rows), interpolation=cv2.INTER_AREA))
