"""Photographs to synthesise from: decoded once, kept as bytes on the device, cropped there."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from burstmamba.data.decoding import BLOCK, Decoded, decode_all, read_pixels
from burstmamba.errors import InputError

log = logging.getLogger(__name__)

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


def check_distinct(bursts: Iterable[tuple[str, Path]]) -> None:
    """Refuse two photographs whose bursts would have one name: one would be written over the other."""
    seen: dict[str, Path] = {}
    for name, path in bursts:
        other = seen.setdefault(name, path)
        if other != path:
            raise InputError(f"{other} and {path} would both give a burst {name!r}; rename one of them.")


def read_photograph(path: Path | str) -> np.ndarray:
    """An sRGB photograph, upright.

    Returns:
        (h, w, 3) uint8.
    """
    try:
        return read_pixels(path)
    except (OSError, ValueError, SyntaxError) as error:
        raise unreadable(path, str(error)) from error


def unreadable(path: Path | str, reason: str) -> InputError:
    """What to say about a file that is no photograph."""
    return InputError(f"{path} cannot be read as a photograph ({reason}); replace or remove it.")


def photograph_tensor(path: Path | str) -> Tensor:
    """(3, h, w) float sRGB in [0, 1]."""
    return torch.from_numpy(read_photograph(path)).permute(2, 0, 1).float() / 255


@dataclass(frozen=True)
class Album:
    """Decoded photographs, still on the host."""

    paths: tuple[Path, ...]
    sizes: np.ndarray
    """(n, 2): heights and widths."""
    pixels: np.ndarray
    """(all pixels, 3) uint8: one photograph after the other, row by row."""
    detail: tuple[np.ndarray, ...]
    """As in `Decoded`."""

    @classmethod
    def read(
        cls,
        folder: Path | str | Sequence[Path | str],
        *,
        smallest: int = 64,
        limit: int | None = None,
        skip_bad: bool = False,
    ) -> Album:
        """Decode everything with one process a core; the arguments are those of `PhotographBank`."""
        folders = [folder] if isinstance(folder, (str, Path)) else list(folder)
        paths = [path for f in folders for path in find_photographs(f)][:limit]
        kept: list[tuple[Path, Decoded]] = []
        for path, decoded in zip(paths, decode_all(paths), strict=True):
            if isinstance(decoded, str):
                if not skip_bad:
                    raise unreadable(path, decoded)
                log.warning("%s", unreadable(path, decoded))
            elif min(decoded.pixels.shape[:2]) >= smallest:
                kept.append((path, decoded))
        if not kept:
            places = ", ".join(map(str, folders))
            raise InputError(f"no usable photograph of at least {smallest}×{smallest} pixels in {places}.")
        if len(kept) < len(paths):
            log.warning("%d of %d photographs left out: unreadable or too small", len(paths) - len(kept), len(paths))
        return cls(
            tuple(path for path, _ in kept),
            np.array([decoded.pixels.shape[:2] for _, decoded in kept]),
            np.concatenate([decoded.pixels.reshape(-1, 3) for _, decoded in kept]),
            tuple(decoded.detail for _, decoded in kept),
        )


class PhotographBank:
    """All photographs of a folder tree as one array of bytes on the device.

    A crop is an index computation and one gather for the whole batch: no decoding, no host work, no waiting.
    """

    def __init__(
        self,
        folder: Path | str | Sequence[Path | str] | Album,
        device: torch.device | str = "cpu",
        *,
        smallest: int = 64,
        limit: int | None = None,
        skip_bad: bool = False,
        detail: float = 0.5,
    ) -> None:
        """Decode everything with one process a core.

        Args:
            folder: one folder, or several; or photographs that are decoded already.
            device: where the pixels are kept; 3 bytes a pixel.
            smallest: photographs with a side shorter than this are left out.
            limit: use only the first so many photographs.
            skip_bad: leave out what cannot be decoded (with a warning) instead of raising.
            detail: crops are centred on a place with a probability of its mean gradient to this power; 0: anywhere.
        """
        read = not isinstance(folder, Album)
        album = Album.read(folder, smallest=smallest, limit=limit, skip_bad=skip_bad) if read else folder
        self.paths = album.paths
        self._sizes = album.sizes
        self._smallest_side = int(self._sizes.min())
        areas = self._sizes.prod(axis=1)
        self.pixels = torch.from_numpy(album.pixels).to(device)
        self._starts = torch.from_numpy(np.concatenate([[0], areas.cumsum()[:-1]])).to(device)
        self._heights, self._widths = torch.from_numpy(self._sizes.T.copy()).to(device)
        places = [_places(blocks, detail) for blocks in album.detail]
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


def _places(blocks: np.ndarray, detail: float) -> np.ndarray:
    """(n, 3): y and x of every block of a photograph, and how often it should be looked at."""
    y, x = BLOCK * np.mgrid[: blocks.shape[0], : blocks.shape[1]]
    return np.stack((y.ravel(), x.ravel(), (blocks.ravel() + 0.004) ** detail), axis=1)
