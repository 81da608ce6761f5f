"""One frame as it came from a file: integer or normalised pixels with what the file says about them."""

from __future__ import annotations

from dataclasses import dataclass, field

import cv2
import numpy as np
import torch
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.errors import InputError
from burstmamba.files.metadata import SourceMetadata

MAX_PIXELS = 150_000_000
"""Larger pictures are refused before they are decoded: a small file can claim any size."""


@dataclass(frozen=True)
class Frame:
    """One upright frame."""

    pixels: np.ndarray
    """(h, w, 3) uint8 or uint16, or a normalised RGGB mosaic (h, w) float32 in [0, 1]."""
    name: str
    metadata: SourceMetadata
    camera: Camera = field(default_factory=Camera)
    notes: tuple[str, ...] = ()
    """What was converted, as parts of a sentence ("grey turned into RGB")."""

    @property
    def size(self) -> tuple[int, int]:
        """(h, w) in pixels."""
        return self.pixels.shape[0], self.pixels.shape[1]

    def tensor(self) -> Tensor:
        """(c, h, w) float32 in [0, 1]."""
        if self.pixels.dtype == np.float32:
            return torch.from_numpy(self.pixels)[None]
        white = float(np.iinfo(self.pixels.dtype).max)
        return torch.from_numpy(self.pixels.astype(np.float32)).div_(white).permute(2, 0, 1)

    def copy_into(self, target: Tensor) -> None:
        """Write the frame into `target` (c, h, w), of whatever floating-point type."""
        if self.pixels.dtype == np.uint8:  # exact in half precision too, and three times as fast
            target.copy_(torch.from_numpy(self.pixels).permute(2, 0, 1)).div_(255)
        else:
            target.copy_(self.tensor())

    def grey(self, longest: int) -> np.ndarray:
        """(h', w') float32 in [0, 1], shrunk by averaging so that no side exceeds `longest`."""
        pixels = self.pixels
        if pixels.ndim == 2:  # the mean of each 2×2 tile holds every colour once
            pixels = cv2.resize(pixels, (pixels.shape[1] // 2, pixels.shape[0] // 2), interpolation=cv2.INTER_AREA)
        scale = min(1.0, longest / max(pixels.shape[:2]))
        size = max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale))
        small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
        if small.dtype != np.float32:
            small = small.astype(np.float32) / (255 if small.dtype == np.uint8 else 65535)
        return small if small.ndim == 2 else small @ np.array([0.299, 0.587, 0.114], np.float32)


def check_pixels(name: str, width: int, height: int, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse a picture whose header claims more pixels than `max_pixels`, or none."""
    if width < 1 or height < 1:
        raise InputError(
            f"{name} is damaged: its header claims {width}×{height} pixels; copy it again or leave it out."
        )
    if width * height > max_pixels:
        raise InputError(
            f"{name} claims {width}×{height} pixels, more than the {max_pixels / 1e6:.0f} megapixels that are read; "
            "shrink or crop it first."
        )
