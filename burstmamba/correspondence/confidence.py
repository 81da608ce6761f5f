"""How far a match can be trusted: what noise and aliasing explain is no error, the rest is."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

from burstmamba.correspondence.field import pixel_grid
from burstmamba.correspondence.luma import gradients, smooth

# An aligned, aliased edge may differ by its slope times this many pixels.
SLACK = 0.3
# Residuals up to this many expected ones are trusted; the confidence is ½ there.
HALF_TRUST = 2.0
WINDOW = 2.0
# A way there and back that misses by this many pixels halves the confidence.
HALF_TRIP = 0.6


def disagreement(keyframe: Tensor, warped: Tensor, noise: float, sigma: float) -> Tensor:
    """Squared residual over the one expected from noise and aliasing, averaged over a small window.

    Args:
        keyframe: (h, w).
        warped: (h, w), a frame in the keyframe's view.
        noise: standard deviation of a pixel's noise.
        sigma: Gaussian width of the smoothing before the comparison, in pixels.

    Returns:
        (h, w), about 1 or less where the match is right.
    """
    a, b = smooth(keyframe, sigma), smooth(warped, sigma)
    slope = sum(g.square() for plane in (a, b) for g in gradients(plane)) / 2
    expected = 2 * noise**2 / max(1.0, 4 * np.pi * sigma**2) + SLACK**2 * slope + 1e-5
    return smooth((b - a).square(), WINDOW) / smooth(expected, WINDOW)


def trust(disagreement: Tensor, trip: Tensor | None = None) -> Tensor:
    """Confidence (h, w) in [0, 1] from the disagreement and, where both ways were estimated, from the round trip."""
    confidence = 1 / (1 + (disagreement / HALF_TRUST).square())
    if trip is not None:
        confidence = confidence / (1 + (trip / HALF_TRIP) ** 4)
    return confidence


def in_view(to_frame: Tensor) -> Tensor:
    """(h, w) bool: whether the keyframe's pixel lies inside the frame, for δ⁰→ˡ (2, h, w)."""
    h, w = to_frame.shape[-2:]
    x, y = pixel_grid(to_frame)[0] + to_frame
    return (x >= -0.5) & (x <= w - 0.5) & (y >= -0.5) & (y <= h - 0.5)


@dataclass(frozen=True)
class Likeness:
    """How a whole frame compares with the keyframe, apart from noise."""

    correlation: float
    """Of the details in view, in [−1, 1]; 1 when there are none to compare."""
    sharpness: float
    """Contrast of the frame's fine details relative to the keyframe's: 1 = as sharp."""
    overlap: float
    """Share of the keyframe that the frame sees."""


def compare(keyframe: Tensor, warped: Tensor, view: Tensor, noise: float) -> Likeness:
    """Likeness of a frame in the keyframe's view (h, w) with the keyframe, where `view` is True.

    Noise differs between frames, so it adds nothing to the covariance of their details; what it adds to the variances
    is known and taken off.
    """
    overlap = float(view.float().mean())
    if overlap < 0.01 or min(keyframe.shape) < 16:
        return Likeness(1.0, 1.0, overlap)
    inside = torch.from_numpy(cv2.erode(view.byte().numpy(), np.ones((7, 7), np.uint8), borderValue=0)).bool()
    if int(inside.sum()) < 64:
        return Likeness(1.0, 1.0, overlap)
    fine, coarse = _bands(keyframe, warped, inside, noise, 0.8), _bands(keyframe, warped, inside, noise, 1.6)
    correlation = coarse[1] / (coarse[0] * coarse[2]) ** 0.5 if min(coarse[0], coarse[2]) > 0 else 1.0
    sharpness = fine[1] / fine[0] if fine[0] > 0 else 1.0
    return Likeness(float(np.clip(correlation, -1, 1)), float(sharpness), overlap)


def detail_energy(plane: Tensor, inside: Tensor, noise: float) -> float:
    """Variance of a plane's fine details where `inside` is True, with what noise adds taken off; at least 0."""
    return _bands(plane, plane, inside, noise, 0.8)[0]


def _bands(keyframe: Tensor, warped: Tensor, inside: Tensor, noise: float, sigma: float) -> tuple[float, float, float]:
    """Variance of the keyframe's details of one size, covariance, variance of the frame's; noise taken off.

    A variance that does not stand out from the noise is returned as 0.
    """
    a, b = ((smooth(p, sigma) - smooth(p, 2 * sigma))[inside].double() for p in (keyframe, warped))
    # White noise behind the difference of Gaussians of widths s and 2s: 1/4πs² + 1/16πs² − 2/(2π·5s²).
    floor = noise**2 * (1 / 4 + 1 / 16 - 1 / 5) / (np.pi * sigma**2)
    raw = a.square().mean().item(), (a * b).mean().item(), b.square().mean().item()
    first, last = (v - floor if v > 1.5 * floor + 1e-7 else 0.0 for v in (raw[0], raw[2]))
    return first, raw[1], last
