"""Hot and dead pixels: outliers that stay at one place of the sensor while the scene moves."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

SIGMAS, LEAST = 8.0, 0.03
"""An outlier leaves the range of its neighbours by this many times the noise, and by this much of the white level."""
ALONE = 0.3
"""Pixels beside a defect leave their own surroundings by less than this share of what it does."""
PERSISTENCE = 0.8
"""Share of the frames in which a pixel must be an outlier of the same sign."""
SURE_SIGMAS, SURE_LEAST = 16.0, 0.3
"""With one or two frames nothing tells a defect from a glint, so that only glaring outliers are mended."""


def mend_hot_pixels(frames: Tensor) -> int:
    """Replace defective pixels of a mosaic burst by the median of their neighbours of the same colour, in place.

    A defect has to stand out from the eight neighbours of its colour, alone (the lens spreads a point of light over
    the pixels beside it), and in most frames.

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
    for frame in frames:
        for vote, outliers in zip(votes, _outliers(frame[0].float(), sigmas, least), strict=True):
            vote += outliers
    defects = (votes >= max(1, PERSISTENCE * count)).any(dim=0)
    found = int(defects.sum())
    if found:
        for frame in frames:
            around = torch.stack([neighbour[defects] for neighbour in _neighbours(frame[0].float(), step=2)])
            frame[0][defects] = around.sort(dim=0).values[3:5].mean(dim=0).to(frame.dtype)
    return found


def _outliers(frame: Tensor, sigmas: float, least: float) -> tuple[Tensor, Tensor]:
    """Masks (h, w) of pixels above and below everything around them."""
    highest, lowest, mean = frame.new_full(frame.shape, -1), frame.new_full(frame.shape, 2), torch.zeros_like(frame)
    for neighbour in _neighbours(frame, step=2):  # one at a time: eight copies of a large frame are a lot
        torch.maximum(highest, neighbour, out=highest)
        torch.minimum(lowest, neighbour, out=lowest)
        mean += neighbour / 8
    deviations = (frame - mean).abs()
    # Shot noise: the spread grows with the root of the level.
    level = mean.mean().clamp(min=1e-4)
    spread = deviations[::3, ::3].median() * 1.4826
    threshold = (sigmas * spread * (mean.clamp(min=0.1 * level) / level).sqrt()).clamp(min=least)
    above, left, right, below = (
        neighbour for i, neighbour in enumerate(_neighbours(deviations, 1)) if i in (1, 3, 4, 6)
    )
    alone = torch.maximum(torch.maximum(above, below), torch.maximum(left, right)) < ALONE * deviations
    return alone & (frame > highest + threshold), alone & (frame < lowest - threshold)


def _neighbours(frame: Tensor, step: int) -> Iterator[Tensor]:
    """The eight views (h, w) of the neighbours at distance `step`, row by row; mirrored borders keep the colour."""
    height, width = frame.shape
    padded = F.pad(frame[None, None], (step,) * 4, mode="reflect")[0, 0]
    for y in (0, step, 2 * step):
        for x in (0, step, 2 * step):
            if (y, x) != (step, step):
                yield padded[y : y + height, x : x + width]
