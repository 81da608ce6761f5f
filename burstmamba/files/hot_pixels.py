"""Hot and dead pixels: outliers that stay at one place of the sensor while the scene moves."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SIGMAS, LEAST = 8.0, 0.03
"""An outlier leaves the range of its neighbours by this many times the noise, and by this much of the white level."""
PERSISTENCE = 0.8
"""Share of the frames in which a pixel must be an outlier of the same sign."""
SURE_SIGMAS, SURE_LEAST = 16.0, 0.3
"""With one or two frames nothing tells a defect from a glint, so that only glaring outliers are mended."""


def mend_hot_pixels(frames: Tensor) -> int:
    """Replace defective pixels of a mosaic burst by the median of their neighbours of the same colour, in place.

    A defect has to stand out from the eight neighbours of its colour and from the four of the other colours (the
    lens spreads a point of light over them, a defect stays alone), and to do so in most frames.

    Args:
        frames: (l, 1, h, w) mosaic in [0, 1].

    Returns:
        How many pixels of the sensor were mended.
    """
    count, _, height, width = frames.shape
    if height < 6 or width < 6:
        return 0
    sigmas, least = (SIGMAS, LEAST) if count > 2 else (SURE_SIGMAS, SURE_LEAST)
    votes = torch.zeros(2, height, width, dtype=torch.int16)
    for frame in frames:  # one frame at a time: the neighbours take nine times its memory
        votes += torch.stack(_outliers(frame[0].float(), sigmas, least))
    defects = (votes >= max(1, PERSISTENCE * count)).any(dim=0)
    found = int(defects.sum())
    if found:
        for frame in frames:
            neighbours = _neighbours(frame[0].float(), step=2)[:, defects]
            frame[0][defects] = neighbours.median(dim=0).values.to(frame.dtype)
    return found


def _outliers(frame: Tensor, sigmas: float, least: float) -> tuple[Tensor, Tensor]:
    """Masks (h, w) of pixels above and below everything around them."""
    same = _neighbours(frame, step=2)
    middle = same.median(dim=0).values
    deviation = (frame - middle).abs()[::3, ::3].median() * 1.4826
    # Shot noise: the spread grows with the root of the level.
    level = middle.mean().clamp(min=1e-4)
    threshold = (sigmas * deviation * (middle.clamp(min=0.1 * level) / level).sqrt()).clamp(min=least)
    highest, lowest = same.max(dim=0).values, same.min(dim=0).values
    del same
    beside = _neighbours(frame, step=1)[[1, 3, 4, 6]]  # above, left, right, below
    hot = (frame > highest + threshold) & (frame > 2 * beside.max(dim=0).values)
    dead = (frame < lowest - threshold) & (2 * frame < beside.min(dim=0).values)
    return hot, dead


def _neighbours(frame: Tensor, step: int) -> Tensor:
    """(8, h, w): the neighbours at distance `step`, row by row; borders are mirrored, which keeps the colour."""
    height, width = frame.shape
    padded = F.pad(frame[None, None], (step,) * 4, mode="reflect")[0, 0]
    shifts = [(y, x) for y in (0, step, 2 * step) for x in (0, step, 2 * step) if (y, x) != (step, step)]
    return torch.stack([padded[y : y + height, x : x + width] for y, x in shifts])
