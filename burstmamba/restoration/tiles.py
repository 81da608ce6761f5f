"""Overlapping windows over a picture, their feather, and what every frame shows of a window.

A window is cut from the keyframe at one place and from frame l at that place moved by the frame's mean displacement
there, a whole even number of pixels, so that large motion does not run out of the window; the maps are corrected by
the same number. Origins are even, so that a mosaic keeps its phase and the wavelet its 2×2 quads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from burstmamba.correspondence.field import Correspondence

OVERLAP = 24
"""LR pixels shared by neighbouring windows: a third thrown away on either side, a third blended."""
SMALLEST_TILE = 2 * OVERLAP


def even(value: float) -> int:
    """The even number nearest to `value`."""
    return 2 * round(value / 2)


@dataclass(frozen=True)
class Windows:
    """Equal overlapping windows along one axis, in LR pixels, with even starts and sizes as odd or even as the axis."""

    length: int
    size: int
    starts: tuple[int, ...]

    @classmethod
    def cover(cls, length: int, tile: int, overlap: int = OVERLAP) -> Windows:
        """The fewest windows of at most `tile` pixels that cover `length`, evenly spread."""
        tile -= (length - tile) % 2
        if length <= tile:
            return cls(length, length, (0,))
        count = ceil((length - overlap) / (tile - overlap))
        size = ceil((length + (count - 1) * overlap) / count)
        size += (length - size) % 2
        last = length - size
        return cls(length, size, tuple(2 * (last * i // (2 * (count - 1))) for i in range(count)))

    def weights(self, scale: int) -> Tensor:
        """(n, size·scale): each window's raised-cosine feather; at every pixel the windows sum to 1."""
        weights = torch.ones(len(self.starts), self.size * scale)
        for i in range(1, len(self.starts)):
            shared = self._shared(i) * scale
            margin = self._shared(i) // 3 * scale  # pixels whose surroundings the window does not know well
            blend = shared - 2 * margin
            position = (torch.arange(blend) + 0.5) / blend
            rise = torch.cat((torch.zeros(margin), 0.5 - 0.5 * torch.cos(torch.pi * position), torch.ones(margin)))
            weights[i, :shared] = rise
            weights[i - 1, -shared:] *= 1 - rise
        return weights

    def core(self, index: int, wanted: int, count: int) -> slice:
        """The LR pixels of one window whose result is used, where only `count` from its pixel `wanted` on are shown."""
        first = self._shared(index) // 3 if index > 0 else 0
        last = self.size - (self._shared(index + 1) // 3 if index + 1 < len(self.starts) else 0)
        first, last = max(first, wanted), min(last, wanted + count)
        return slice(first, last) if first < last else slice(0, self.size)

    def _shared(self, index: int) -> int:
        """LR pixels that a window has in common with the one before."""
        return self.starts[index - 1] + self.size - self.starts[index]

    def settled(self, index: int) -> int:
        """The LR row before which nothing changes any more once windows 0…index are done."""
        return self.starts[index + 1] if index + 1 < len(self.starts) else self.length


def border_index(start: int, count: int, length: int, *, mirror: bool) -> Tensor:
    """(count,) indices of start, start + 1, …: replicated past the ends, or mirrored, which keeps a mosaic's phase."""
    index = torch.arange(start, start + count)
    if not mirror:
        return index.clamp(0, length - 1)
    period = max(2 * (length - 1), 1)
    index = index.remainder(period)
    return torch.minimum(index, period - index)


def cut(picture: Tensor, top: int, left: int, height: int, width: int, *, mirror: bool = False) -> Tensor:
    """The window (..., height, width) of `picture` (..., h, w); it may reach past the borders."""
    h, w = picture.shape[-2:]
    if top >= 0 and left >= 0 and top + height <= h and left + width <= w:
        return picture[..., top : top + height, left : left + width]
    rows = border_index(top, height, h, mirror=mirror).to(picture.device)
    columns = border_index(left, width, w, mirror=mirror).to(picture.device)
    return picture[..., rows[:, None], columns]


@dataclass(frozen=True)
class Box:
    """A window of the keyframe in LR pixels; it may reach a pixel past the borders."""

    top: int
    left: int
    height: int
    width: int
    core: tuple[slice, slice] = (slice(None), slice(None))
    """The rows and columns of the window whose result is used."""

    def cut(self, picture: Tensor, dy: int = 0, dx: int = 0, *, mirror: bool = False) -> Tensor:
        """This window, moved by (dy, dx), of a picture (..., h, w)."""
        return cut(picture, self.top + dy, self.left + dx, self.height, self.width, mirror=mirror)


def follow(start: int, size: int, core: slice, length: int, motion: float) -> int:
    """How far a frame's window moves along one axis so that what the core needs lies in its middle.

    It never leaves the frame by more than a pixel: what lies beyond is replicated by the sampling anyway.
    """
    first, last, _ = core.indices(size)
    lowest = -start - start % 2
    highest = 2 * ((length + 1 - size - start) // 2)
    return min(max(even(motion + (first + last - size) / 2), lowest), max(highest, lowest))


def cut_burst(
    frames: Tensor, maps: Correspondence | None, box: Box, *, mirror: bool = False
) -> tuple[Tensor, Correspondence | None]:
    """One window of every frame, following its motion, with maps in the window's coordinates.

    Args:
        frames: (l, c, h, w).
        maps: for a batch of 1 and the same l; None means that nothing moves.
        box: the window in the keyframe.
        mirror: mirror frames past their borders instead of replicating: what a mosaic needs.

    Returns:
        Frames (1, l, c, height, width) and their maps, in float32.
    """
    if maps is None:
        return box.cut(frames, mirror=mirror)[None].float(), None
    h, w = frames.shape[-2:]
    seen = box.cut(maps.to_frame[0]).float()  # (l, 2, height, width)
    offsets = [(0, 0)]
    for dx, dy in seen[1:, :, *box.core].mean((-2, -1)).tolist():
        right = follow(box.left, box.width, box.core[1], w, dx)
        offsets.append((right, follow(box.top, box.height, box.core[0], h, dy)))
    moved = torch.tensor(offsets, dtype=torch.float32, device=seen.device).view(-1, 2, 1, 1)
    windows, back = [], []
    for frame, to_keyframe, (dx, dy) in zip(frames, maps.to_keyframe[0], offsets, strict=True):
        windows.append(box.cut(frame, dy, dx, mirror=mirror).float())
        back.append(box.cut(to_keyframe, dy, dx).float())
    confidence = None if maps.confidence is None else box.cut(maps.confidence).float()
    return torch.stack(windows)[None], Correspondence(
        (seen - moved)[None], (torch.stack(back) + moved)[None], confidence
    )
