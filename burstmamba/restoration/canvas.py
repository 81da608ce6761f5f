"""Where the result is collected: in memory, or in a temporary file when it is large."""

from __future__ import annotations

import tempfile
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from burstmamba.restoration.restore import Restoration

IN_MEMORY = 1 << 30
"""Bytes up to which the picture is kept in memory."""


class Canvas:
    """Runs a restoration band by band and holds its picture, shrunk to the scale asked for."""

    def __init__(self, restoration: Restoration, scale: int, folder: Path) -> None:
        full = restoration.config.scale
        h, w = (side * scale // full for side in restoration.size)
        self.file = None
        if 12 * h * w > IN_MEMORY:
            self.file = tempfile.NamedTemporaryFile(dir=folder, prefix=".burstmamba-", suffix=".part")  # noqa: SIM115
            self.file.truncate(12 * h * w)
        pixels, row = self._open(h, w), 0
        for band in restoration.bands():
            rows = band.shape[1] * scale // full
            pixels[:, row : row + rows] = shrink(band, rows, w)
            row += rows
            if self.file is not None:  # a new mapping forgets the pages that are already on the disk
                pixels = self._open(h, w)
        self.image = torch.from_numpy(pixels)
        """(3, h, w) float32 in [0, 1]."""

    def _open(self, h: int, w: int) -> np.ndarray:
        if self.file is None:
            return np.empty((3, h, w), np.float32)
        return np.memmap(self.file.name, np.float32, "r+", shape=(3, h, w))


def shrink(band: Tensor, rows: int, columns: int) -> np.ndarray:
    """Area-average (3, h, w) to (3, rows, columns)."""
    if tuple(band.shape[1:]) == (rows, columns):
        return band.numpy()
    return np.stack([cv2.resize(plane, (columns, rows), interpolation=cv2.INTER_AREA) for plane in band.numpy()])
