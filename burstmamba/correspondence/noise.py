"""By how much aligned frames differ anyway, measured on the burst itself, whatever the camera did to its noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from burstmamba.correspondence.luma import gradients, smooth

BLUR = 1.2
"""Gaussian width of the smoothing before planes are compared, in pixels: it takes away what is aliased most."""
WINDOW = 2.0
"""Gaussian width of the windows over which squared differences are averaged, in pixels."""
FINE, COARSE = 0.8, 1.6
"""Widths of the Gaussians that single out details of two sizes: details are G(s) − G(2s)."""
BINS = 8
# Three of ten windows differ by noise alone, also in a picture full of texture or motion. Of pure noise they would
# average a little below the mean.
QUIET_SHARE, QUIET_MEAN = 0.3, 0.75


@dataclass(frozen=True)
class Noise:
    """Variance of the difference between two aligned planes."""

    light: np.ndarray
    """(k) increasing: brightness of the plane."""
    variance: np.ndarray
    """(k): variance of the smoothed difference at that brightness."""
    fine: float
    """Variance of one plane's fine details that is noise."""
    coarse: float

    def expected(self, plane: Tensor) -> Tensor:
        """Variance of the difference at every pixel of a smoothed plane (h, w)."""
        return torch.from_numpy(np.interp(plane.numpy(), self.light, self.variance).astype(np.float32))


NO_NOISE = Noise(np.array([0.0, 1.0]), np.zeros(2), 0.0, 0.0)


def details(plane: Tensor, sigma: float) -> Tensor:
    """Structures about `sigma` pixels wide of (h, w)."""
    return smooth(plane, sigma) - smooth(plane, 2 * sigma)


@dataclass(frozen=True)
class Structure:
    """A plane as it is compared with others, all (h, w); the keyframe's is computed once for the whole burst."""

    plane: Tensor
    base: Tensor
    """Smoothed by BLUR."""
    slope: Tensor
    """Squared slope of `base`."""
    fine: Tensor
    coarse: Tensor

    @classmethod
    def of(cls, plane: Tensor) -> Structure:
        """The structure of a plane (h, w)."""
        base = smooth(plane, BLUR)
        gx, gy = gradients(base)
        slope = gx.square_().add_(gy.square_())
        return cls(plane, base, slope, details(plane, FINE), details(plane, COARSE))


def measure_noise(keyframe: Structure, warped: Structure, view: Tensor) -> Noise:
    """Noise of one pair of planes.

    Args:
        keyframe: of the keyframe's plane.
        warped: of the frame's plane in the keyframe's view.
        view: (h, w) bool, what the frame sees.
    """
    energy = smooth((warped.base - keyframe.base).square_(), WINDOW)
    step = max(1, int((view.sum().item() / 100_000) ** 0.5))
    chosen = view[::step, ::step]
    light, energy = keyframe.base[::step, ::step][chosen].numpy(), energy[::step, ::step][chosen].numpy()
    if len(light) < 4 * BINS:
        return NO_NOISE
    groups = np.array_split(np.argsort(light, kind="stable"), BINS)
    centres = np.array([np.median(light[g]) for g in groups])
    variance = np.array([np.quantile(energy[g], QUIET_SHARE) for g in groups]) / QUIET_MEAN
    floors = []
    for size, one, other in ((FINE, warped.fine, keyframe.fine), (COARSE, warped.coarse, keyframe.coarse)):
        quiet = smooth((one - other).square_(), 2 * size)[::step, ::step][chosen]
        floors.append(float(np.quantile(quiet.numpy(), QUIET_SHARE)) / QUIET_MEAN / 2)
    return Noise(centres, variance, *floors)


def common_noise(pairs: list[Noise]) -> Noise:
    """Noise of the burst: the lower median over its pairs, so that frames that show something else do not count.

    Encoded brightness has nearly even noise; a brightness that differs much more than the others is a moving object.
    """
    usable = [p for p in pairs if len(p.light) == BINS]
    if not usable:
        return NO_NOISE
    light = np.maximum.accumulate(_low_median([p.light for p in usable]))
    variance = _low_median([p.variance for p in usable])
    variance = np.minimum(variance, 4 * np.median(variance))
    fine, coarse = _low_median([np.array([p.fine, p.coarse]) for p in usable])
    return Noise(light, variance, float(fine), float(coarse))


def _low_median(values: list[np.ndarray]) -> np.ndarray:
    return np.sort(np.stack(values), axis=0)[(len(values) - 1) // 2]
