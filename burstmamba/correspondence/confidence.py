"""How far a match can be trusted: what noise and aliasing explain is no error, the rest is."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

from burstmamba.correspondence.bands import bands
from burstmamba.correspondence.homography import axes
from burstmamba.correspondence.luma import gradients, smooth
from burstmamba.correspondence.noise import BLUR, COARSE, FINE, WINDOW, Noise, details

# An aligned, aliased edge may differ by its slope times this many pixels.
SLACK = 0.5
# Noise is given room for its own fluctuation within a window.
ROOM = 1.5
# The confidence is ½ where the squared residual is this many times the expected one.
HALF_TRUST = 1.5
# A way there and back that misses by this many pixels halves the confidence.
HALF_TRIP = 0.6


def disagreement(keyframe: Tensor, warped: Tensor, noise: Noise) -> Tensor:
    """Squared residual over the one expected from noise and aliasing, averaged over a small window.

    Args:
        keyframe: (h, w).
        warped: (h, w), a frame in the keyframe's view.
        noise: by how much aligned planes differ.

    Returns:
        (h, w), about 1 or less where the match is right.
    """
    a, b = smooth(keyframe, BLUR), smooth(warped, BLUR)
    slope = sum(g.square() for plane in (a, b) for g in gradients(plane)) / 2
    expected = ROOM * noise.expected(a) + SLACK**2 * slope + 1e-5
    return smooth((b - a).square(), WINDOW) / smooth(expected, WINDOW)


def trust(disagreement: Tensor, trip: Tensor | None = None) -> Tensor:
    """Confidence (h, w) in [0, 1] from the disagreement and, where both ways were estimated, from the round trip."""
    confidence = 1 / (1 + (disagreement / HALF_TRUST) ** 3)
    if trip is not None:
        confidence = confidence / (1 + (trip / HALF_TRIP) ** 4)
    return confidence


def in_view(to_frame: Tensor) -> Tensor:
    """(h, w) bool: whether the keyframe's pixel lies inside the frame, for δ⁰→ˡ (2, h, w)."""
    h, w = to_frame.shape[-2:]
    view = torch.empty(h, w, dtype=torch.bool, device=to_frame.device)
    column, row = axes((h, w))
    for rows in bands(h, w):
        x, y = column + to_frame[0, rows], row[rows] + to_frame[1, rows]
        view[rows] = (x >= -0.5) & (x <= w - 0.5) & (y >= -0.5) & (y <= h - 0.5)
    return view


@dataclass(frozen=True)
class Likeness:
    """How a whole frame compares with the keyframe, apart from noise."""

    correlation: float
    """Of the details in view, in [−1, 1]; 1 when there are none to compare."""
    sharpness: float
    """Contrast of the frame's fine details relative to the keyframe's: 1 = as sharp."""
    overlap: float
    """Share of the keyframe that the frame sees."""


SAME = Likeness(1.0, 1.0, 1.0)


def compare(keyframe: Tensor, warped: Tensor, view: Tensor, noise: Noise) -> Likeness:
    """Likeness of a frame in the keyframe's view (h, w) with the keyframe, where `view` is True.

    Noise differs between frames, so it adds nothing to the covariance of their details; what it adds to the variances
    is known and taken off.
    """
    overlap = float(view.float().mean())
    if min(keyframe.shape) < 16:
        return Likeness(1.0, 1.0, overlap)
    inside = torch.from_numpy(cv2.erode(view.byte().numpy(), np.ones((7, 7), np.uint8), borderValue=0)).bool()
    if int(inside.sum()) < 64:
        return Likeness(1.0, 1.0, overlap)
    first, shared, second = _moments(keyframe, warped, inside, noise.coarse, COARSE)
    correlation = shared / (first * second) ** 0.5 if min(first, second) > 0 else 1.0
    first, shared, _ = _moments(keyframe, warped, inside, noise.fine, FINE)
    sharpness = shared / first if first > 0 else 1.0
    return Likeness(float(np.clip(correlation, -1, 1)), float(sharpness), overlap)


def _moments(keyframe: Tensor, warped: Tensor, inside: Tensor, noise: float, size: float) -> tuple[float, float, float]:
    """Variance of the keyframe's details of one size, covariance, variance of the frame's; noise taken off.

    A variance that does not stand out from the noise is returned as 0.
    """
    step = max(1, int((inside.numel() / 250_000) ** 0.5))  # of a large plane every n-th row and column say enough
    chosen = inside[::step, ::step]
    a, b = (details(plane, size)[::step, ::step][chosen].double() for plane in (keyframe, warped))
    first, second = (
        v - noise if v > 1.5 * noise + 1e-7 else 0.0 for v in (a.square().mean().item(), b.square().mean().item())
    )
    return first, (a * b).mean().item(), second
