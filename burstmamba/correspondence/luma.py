"""The grey planes on which motion is estimated: bounded in size, of even noise, with known coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.correspondence.light import brighten

# A 12-megapixel frame is halved: its residual error stays in the hundredths of a pixel, for a quarter of the time.
LONGEST_SIDE = 2048


@dataclass(frozen=True)
class Luma:
    """One grey plane a frame; plane pixel k lies at the burst's pixel `pitch`·k + `origin`, in x and in y."""

    planes: Tensor
    """(l, h, w) in [0, 1], encoded so that shot noise is about the same in light and shade."""
    pitch: float
    origin: float
    noise: float
    """Standard deviation of the noise of one plane pixel."""

    def matrix_in_burst_pixels(self, matrix: np.ndarray) -> np.ndarray:
        """A 3×3 homography between planes, as one between the burst's frames."""
        place = np.array([[self.pitch, 0, self.origin], [0, self.pitch, self.origin], [0, 0, 1.0]])
        return place @ matrix @ np.linalg.inv(place)

    def map_in_burst_pixels(self, maps: Tensor, size: tuple[int, int]) -> Tensor:
        """Displacements (n, 2, h, w) of the planes, as displacements on the burst's pixels (n, 2, *size)."""
        return self.pitch * self.on_burst_pixels(maps, size)

    def on_burst_pixels(self, values: Tensor, size: tuple[int, int]) -> Tensor:
        """Interpolate (n, c, h, w) of the planes at the burst's pixels: (n, c, *size); borders replicate."""
        if self.pitch == 1 and self.origin == 0:
            return values
        h, w = values.shape[-2:]
        y = ((torch.arange(size[0]) - self.origin) / self.pitch).clamp(0, h - 1) * (2 / max(h - 1, 1)) - 1
        x = ((torch.arange(size[1]) - self.origin) / self.pitch).clamp(0, w - 1) * (2 / max(w - 1, 1)) - 1
        grid = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], -1).expand(len(values), -1, -1, -1)
        return F.grid_sample(values, grid, "bilinear", "border", align_corners=True)


def luma(burst: Burst, gains: Tensor | None = None, longest_side: int = LONGEST_SIDE) -> Luma:
    """The grey planes of a burst, its frames' light multiplied by `gains` (l, 3).

    A mosaic is averaged over every 2×2 window: each holds one red, two green and one blue pixel, so that the plane
    shows no pattern of the mosaic; its centre lies half a pixel right and down of the window's first pixel.
    """
    factor = max(1, -(-max(burst.size) // longest_side))
    factor = min(factor, max(min(burst.size) - 1, 1))
    mosaic = burst.camera.cfa is not None
    gains = torch.ones(len(burst), 3) if gains is None else gains
    lit = (brighten(frame, gain, burst.camera) for frame, gain in zip(burst.frames, gains, strict=True))
    planes = torch.stack([_plane(frame, mosaic, burst.camera.linear, factor) for frame in lit])
    origin = (0.5 if mosaic else 0.0) + (factor - 1) / 2
    sigmas = [noise_level(plane, averaged=mosaic and factor == 1) for plane in planes]
    return Luma(planes, float(factor), origin, float(np.median(sigmas)))


def _plane(frame: Tensor, mosaic: bool, linear: bool, factor: int) -> Tensor:
    """One frame (c, h, w) as a grey plane (h', w')."""
    if mosaic:
        h, w = frame.shape[-2:]
        frame = F.pad(frame[None].float(), (0, int(w == 1), 0, int(h == 1)), mode="replicate")
        plane = F.avg_pool2d(frame, 2, stride=1)
    else:
        red, green, blue = frame.float()
        plane = (0.25 * red + 0.5 * green + 0.25 * blue)[None, None]
    if factor > 1:
        plane = F.avg_pool2d(plane, factor)
    plane = plane[0, 0].clamp(min=0)
    return plane.sqrt() if linear else plane


def noise_level(plane: Tensor, averaged: bool = False) -> float:
    """Standard deviation of a plane's noise (h, w), from its quietest tenth of 8×8 blocks.

    Args:
        plane: (h, w).
        averaged: whether neighbouring pixels share noise because the plane is a 2×2 mean at every pixel.
    """
    if min(plane.shape) < 12:
        return 1e-3
    second = torch.tensor([1.0, -2.0, 1.0])
    mask = torch.outer(second, second)  # annihilates slopes and edges along either axis
    if averaged:
        box = torch.full((1, 1, 2, 2), 0.25)
        response = F.conv_transpose2d(mask[None, None], box).square().sum().sqrt() * 2  # the mean halves the noise
    else:
        response = mask.square().sum().sqrt()
    energy = F.avg_pool2d(F.conv2d(plane[None, None], mask[None, None]).square(), 8)
    quiet = float(torch.quantile(energy.flatten()[:1_000_000], 0.1))
    return max((quiet / _QUIET_TENTH) ** 0.5 / float(response), 1e-3)


# The lowest tenth of such block means of white noise lies at this fraction of their mean (measured).
_QUIET_TENTH = 0.63


def smooth(plane: Tensor, sigma: float) -> Tensor:
    """Gaussian smoothing of (h, w), borders replicated; OpenCV's is ten times faster than a torch convolution."""
    return torch.from_numpy(cv2.GaussianBlur(plane.numpy(), (0, 0), sigma, borderType=cv2.BORDER_REPLICATE))


def gradients(plane: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences of (..., h, w) along x and y, one-sided at the borders."""
    gx, gy = torch.zeros_like(plane), torch.zeros_like(plane)
    if plane.shape[-1] > 1:
        gx = torch.gradient(plane, dim=-1)[0]
    if plane.shape[-2] > 1:
        gy = torch.gradient(plane, dim=-2)[0]
    return gx, gy
