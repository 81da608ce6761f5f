"""How far a match can be trusted: what noise and aliasing explain is no error, the rest is."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

from burstmamba.correspondence.bands import bands
from burstmamba.correspondence.homography import axes
from burstmamba.correspondence.luma import smooth
from burstmamba.correspondence.noise import WINDOW, Noise, Structure

# An aligned, aliased edge may differ by its slope times this many pixels.
SLACK = 0.5
# Noise is given room for its own fluctuation within a window.
ROOM = 1.5
# The confidence is ½ where the squared residual is this many times the expected one.
HALF_TRUST = 1.5
# A way there and back that misses by this many pixels halves the confidence.
HALF_TRIP = 0.6
# How much of the noise's variance is left in fine details of a plane interpolated between its pixels, averaged over all
# places between them.
LEFT = 0.68
# Frames of the keyframe's sharpness have slopes above 0.84, blurred ones up to 0.76; coarse details of the same scene
# correlate by more than 0.9, also in strong noise, those of other scenes by up to 0.75.
LEAST_SLOPE, SAME_SCENE = 0.8, 0.8


def disagreement(keyframe: Structure, warped: Structure, noise: Noise) -> Tensor:
    """Squared residual over the one expected from noise and aliasing, averaged over a small window.

    Args:
        keyframe: of the keyframe's plane (h, w).
        warped: of a frame's plane in the keyframe's view.
        noise: by how much aligned planes differ.

    Returns:
        (h, w), about 1 or less where the match is right.
    """
    slope = keyframe.slope + warped.slope
    expected = noise.expected(keyframe.base).mul_(ROOM).add_(slope, alpha=SLACK**2 / 2).add_(1e-5)
    return smooth((warped.base - keyframe.base).square_(), WINDOW).div_(smooth(expected, WINDOW))


def trust(disagreement: Tensor, trip: Tensor | None = None) -> Tensor:
    """Confidence (h, w) in [0, 1] from the disagreement and, where both ways were estimated, from the round trip."""
    confidence = (disagreement / HALF_TRUST).pow_(3).add_(1).reciprocal_()
    if trip is not None:
        confidence = confidence / (1 + (trip / HALF_TRIP) ** 4)
    return confidence


def in_view(to_frame: Tensor, step: int = 1) -> Tensor:
    """Whether the keyframe's pixel lies inside the frame, for δ⁰→ˡ (2, h, w): bool, of the pixels of `thin`."""
    h, w = to_frame.shape[-2:]
    column, row = (axis.to(to_frame.device) for axis in axes((h, w)))
    column, row, flow = column[:, step // 2 :: step], row[step // 2 :: step], thin(to_frame, step)
    view = torch.empty(flow.shape[1:], dtype=torch.bool, device=to_frame.device)
    for rows in bands(*view.shape):
        x, y = column + flow[0, rows], row[rows] + flow[1, rows]
        view[rows] = (x >= -0.5) & (x <= w - 0.5) & (y >= -0.5) & (y <= h - 0.5)
    return view


def thin(values: Tensor, step: int) -> Tensor:
    """Every n-th row and column of (..., h, w), as far from either border."""
    return values[..., step // 2 :: step, step // 2 :: step]


@dataclass(frozen=True)
class Likeness:
    """How a whole frame compares with the keyframe, apart from noise."""

    correlation: float
    """Of the details in view, in [−1, 1]; 1 when there are none to compare."""
    sharpness: float
    """Contrast of the frame's fine details relative to the keyframe's: 1 = as sharp."""


SAME = Likeness(1.0, 1.0)


def compare(keyframe: Structure, warped: Structure, view: Tensor, noise: Noise) -> Likeness:
    """Likeness of a frame in the keyframe's view with the keyframe, where `view` (h, w) is True.

    Noise differs between frames, so it adds nothing to the covariance of their details; what it adds to the variances
    is known and taken off. Where noise is uneven it is known too low; the rest passes for details that the frame lacks.
    The slope of the line that allows for noise in both does not mind, but is too high where the frame has more noise
    than the keyframe or shows something else. So a frame of the same scene is blurred if both say so.
    """
    if min(view.shape) < 16:
        return SAME
    inside = torch.from_numpy(cv2.erode(view.byte().numpy(), np.ones((7, 7), np.uint8), borderValue=0)).bool()
    if int(inside.sum()) < 64:
        return SAME
    first, shared, second = _moments(keyframe.coarse, warped.coarse, inside)
    first, second = _above(first, noise.coarse), _above(second, noise.coarse)
    comparable = min(first, second) > 0
    correlation = shared / (first * second) ** 0.5 if comparable else 1.0
    first, shared, second = _moments(keyframe.fine, warped.fine, inside)
    sharpness = 1.0
    if _above(first, noise.fine) > 0:
        noises = 2 * noise.fine / (1 + LEFT), 2 * noise.fine * LEFT / (1 + LEFT)  # their mean is what was measured
        slope = _slope(max(first - noises[0], 0.0), shared, max(second - noises[1], 0.0), LEFT)
        sure = slope > LEAST_SLOPE and comparable and correlation > SAME_SCENE
        sharpness = slope if sure else min(slope, shared / (first - noise.fine))
    return Likeness(float(np.clip(correlation, -1, 1)), sharpness)


def _slope(first: float, shared: float, second: float, left: float) -> float:
    """Slope of the line through pairs of values with noise in both, the second's variance `left` times the first's."""
    if shared <= 0:
        return 0.0
    excess = second - left * first
    return (excess + (excess**2 + 4 * left * shared**2) ** 0.5) / (2 * shared)


def _above(variance: float, noise: float) -> float:
    """The variance without the noise; 0 where it does not stand out."""
    return variance - noise if variance > 1.5 * noise + 1e-7 else 0.0


def _moments(keyframe: Tensor, warped: Tensor, inside: Tensor) -> tuple[float, float, float]:
    """Variance of the keyframe's details (h, w) of one size, covariance, variance of the frame's."""
    step = max(1, int((inside.numel() / 250_000) ** 0.5))  # of a large plane every n-th row and column say enough
    chosen = inside[::step, ::step]
    a, b = (details[::step, ::step][chosen].double() for details in (keyframe, warped))
    return a.square().mean().item(), (a * b).mean().item(), b.square().mean().item()
