"""Photographs to synthesise from: decoded once, kept as bytes on the device, cropped there."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Sequence

import numpy as np
import torch
from torch import Tensor

from burstmamba.errors import InputError

log = logging.getLogger(__name__)

BLOCK = 32
"""Side in pixels of the blocks whose detail is measured."""
SUFFIXES = (".avif", ".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")


def find_photographs(folder: Path | str) -> list[Path]:
    """Every photograph below `folder` (or the file itself), sorted by path."""
    folder = Path(folder)
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of photographs; check the path.")
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not found:
        raise InputError(f"no photographs ({', '.join(SUFFIXES)}) below {folder}; point to a folder that has some.")
    return found


def read_photograph(path: Path | str) -> np.ndarray:
    """An sRGB photograph, upright.

    Returns:
        (h, w, 3) uint8.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            if image.mode.startswith("I;16") or image.mode in ("I", "F"):  # 16-bit grey: PIL would clip it at 255
                grey = np.asarray(image, dtype=np.float32)
                values = np.clip(grey / 257.0 + 0.5, 0, 255).astype(np.uint8)
                return np.repeat(values[..., None], 3, axis=-1)
            return np.array(ImageOps.exif_transpose(image).convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(f"{path} cannot be read as a photograph ({error}); replace or remove it.") from error


def photograph_tensor(path: Path | str) -> Tensor:
    """(3, h, w) float sRGB in [0, 1]."""
    return torch.from_numpy(read_photograph(path)).permute(2, 0, 1).float() / 255


class PhotographBank:
    """All photographs of a folder tree as one array of bytes on the device.

    A crop is an index computation and one gather for the whole batch: no decoding, no host work, no waiting.
    """

    def __init__(
        self,
        folder: Path | str | Sequence[Path | str],
        device: torch.device | str = "cpu",
        *,
        smallest: int = 64,
        limit: int | None = None,
        skip_bad: bool = False,
        detail: float = 0.5,
    ) -> None:
        """Decode everything with one thread a core.

        Args:
            folder: one folder, or several.
            device: where the pixels are kept; 3 bytes a pixel.
            smallest: photographs with a side shorter than this are left out.
            limit: use only the first so many photographs.
            skip_bad: leave out what cannot be decoded (with a warning) instead of raising.
            detail: crops are centred on a place with a probability of its mean gradient to this power; 0: anywhere.
        """
        folders = [folder] if isinstance(folder, (str, Path)) else list(folder)
        paths = [path for f in folders for path in find_photographs(f)][:limit]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            decoded = list(pool.map(lambda path: _read_or_none(path, skip_bad), paths))
        kept = [(p, d) for p, d in zip(paths, decoded, strict=True) if d is not None and min(d.shape[:2]) >= smallest]
        if not kept:
            raise InputError(f"no usable photograph of at least {smallest}×{smallest} pixels in {folders}.")
        if len(kept) < len(paths):
            log.warning("%d of %d photographs left out: unreadable or too small", len(paths) - len(kept), len(paths))
        self.paths = tuple(p for p, _ in kept)
        self._sizes = np.array([d.shape[:2] for _, d in kept])
        self._smallest_side = int(self._sizes.min())
        areas = self._sizes.prod(axis=1)
        self.pixels = torch.from_numpy(np.concatenate([d.reshape(-1, 3) for _, d in kept])).to(device)
        self._starts = torch.from_numpy(np.concatenate([[0], areas.cumsum()[:-1]])).to(device)
        self._heights, self._widths = torch.from_numpy(self._sizes.T.copy()).to(device)
        places = [_places(d, detail) for _, d in kept]
        which = np.concatenate([np.full(len(p), i) for i, p in enumerate(places)])
        y, x, weight = np.concatenate(places).T
        self._share = torch.from_numpy(weight.cumsum() / weight.sum()).float().to(device)
        self._places = torch.from_numpy(np.stack((which, y, x)).astype(np.int64)).to(device)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def device(self) -> torch.device:
        """Where the pixels and the crops live."""
        return self.pixels.device

    def sample(self, batch: int, size: int, generator: torch.Generator | None = None, *, turn: bool = True) -> Tensor:
        """Random square crops, where there is something to see.

        Args:
            batch: how many.
            size: side in pixels.
            generator: on this device, or on the CPU for draws that are the same on every device.
            turn: also apply one of the eight flips and rotations.

        Returns:
            (batch, 3, size, size) sRGB in [0, 1].
        """
        if size > self._smallest_side:
            raise InputError(
                f"crops of {size}×{size} do not fit the smallest photograph ({self._smallest_side} px); "
                f"make the bank with smallest={size}."
            )
        where = generator.device if generator is not None else self.device
        draw = torch.rand(6, batch, generator=generator, device=where).to(self.device, non_blocking=True)
        which, y, x = self._places[:, torch.searchsorted(self._share, draw[0]).clamp_(max=len(self._share) - 1)]
        corner = (draw[1:3] * BLOCK).long() - size // 2
        top = torch.minimum((y + corner[0]).clamp_(min=0), self._heights[which] - size)
        left = torch.minimum((x + corner[1]).clamp_(min=0), self._widths[which] - size)
        ramp = torch.arange(size, device=self.device)
        i, j = ramp[:, None], ramp[None, :]
        if turn:
            flip = (draw[3:] < 0.5)[..., None, None]
            i = torch.where(flip[0], size - 1 - i, i)
            j = torch.where(flip[1], size - 1 - j, j)
            i, j = torch.where(flip[2], j, i), torch.where(flip[2], i, j)
        start = self._starts[which] + top * self._widths[which] + left
        index = start[:, None, None] + i * self._widths[which][:, None, None] + j  # (b, size, size)
        return self.pixels[index].permute(0, 3, 1, 2).contiguous().float().div_(255)

    def photograph(self, index: int) -> Tensor:
        """(3, h, w) sRGB in [0, 1]: one whole photograph."""
        h, w = self._sizes[index]
        start = int(self._sizes[:index].prod(axis=1).sum())
        return self.pixels[start : start + h * w].view(h, w, 3).permute(2, 0, 1).float() / 255


def _places(photograph: np.ndarray, detail: float) -> np.ndarray:
    """(n, 3): y and x of every block of a photograph, and how often it should be looked at."""
    h, w = (side // BLOCK * BLOCK for side in photograph.shape[:2])
    grey = photograph[:h, :w, 1].astype(np.float32) / 255
    gradient = np.abs(np.diff(grey, axis=0, append=grey[-1:])) + np.abs(np.diff(grey, axis=1, append=grey[:, -1:]))
    blocks = gradient.reshape(h // BLOCK, BLOCK, w // BLOCK, BLOCK).mean(axis=(1, 3))
    y, x = np.mgrid[0:h:BLOCK, 0:w:BLOCK]
    return np.stack((y.ravel(), x.ravel(), (blocks.ravel() + 0.004) ** detail), axis=1)


def _read_or_none(path: Path, skip_bad: bool) -> np.ndarray | None:
    try:
        return read_photograph(path)
    except InputError as error:
        if not skip_bad:
            raise
        log.warning("%s", error)
        return None
