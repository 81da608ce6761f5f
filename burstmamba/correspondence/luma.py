"""The grey planes on which motion is estimated: bounded in size, of even noise, with known coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence.bands import bands
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
        if self.pitch == 1:  # the 2×2 means of a mosaic: its pixels lie in the middle of four of them
            return F.avg_pool2d(F.pad(values, (1, 1, 1, 1), mode="replicate"), 2, stride=1)[..., : size[0], : size[1]]
        return enlarge(values, round(self.pitch), size)


def luma(
    burst: Burst, gains: Tensor | None = None, longest_side: int = LONGEST_SIDE, plain: Luma | None = None
) -> Luma:
    """The grey planes of a burst, its frames' light multiplied by `gains` (l, 3); `plain` are those without gains.

    A mosaic is averaged over every 2×2 window: each holds one red, two green and one blue pixel, so that the plane
    shows no pattern of the mosaic; its centre lies half a pixel right and down of the window's first pixel. A large
    mosaic is averaged over windows of even size that do not overlap.
    """
    factor = max(1, -(-max(burst.size) // longest_side))
    mosaic = burst.camera.cfa is not None
    if mosaic and factor > 1:
        factor += factor % 2
    if factor > min(burst.size):
        factor = 1
    gains = torch.ones(len(burst), 3) if gains is None else gains
    planes = torch.stack(
        [
            plain.planes[i] if plain and bool((gain == 1).all()) else _plane(frame, gain, burst.camera, factor)
            for i, (frame, gain) in enumerate(zip(burst.frames, gains, strict=True))
        ]
    )
    overlapping = mosaic and factor == 1
    origin = 0.5 if overlapping else (factor - 1) / 2
    sigmas = [noise_level(plane, averaged=overlapping) for plane in planes]
    return Luma(planes, float(factor), origin, float(np.median(sigmas)))


def _plane(frame: Tensor, gain: Tensor, camera: Camera, factor: int) -> Tensor:
    """One frame (c, h, w) as a grey plane (h', w')."""
    frame = frame.detach().cpu()
    if camera.cfa:
        mosaic = brighten(frame.float(), gain, camera)[0]
        if factor > 1:
            plane = reduce_plane(mosaic, factor)
        else:
            h, w = mosaic.shape
            padded = F.pad(mosaic[None, None], (0, int(w == 1), 0, int(h == 1)), mode="replicate")
            plane = F.avg_pool2d(padded, 2, stride=1)[0, 0]
    else:
        small = torch.stack([reduce_plane(channel, factor) for channel in frame])
        red, green, blue = brighten(small, gain, camera)
        plane = 0.25 * red + 0.5 * green + 0.25 * blue
    plane = plane.clamp(min=0)
    return plane.sqrt() if camera.linear else plane


def reduce_plane(plane: Tensor, factor: int) -> Tensor:
    """Average (h, w) over factor×factor pixels, in float32; OpenCV is several times faster than a pooling layer."""
    if factor == 1:
        return plane.float()
    h, w = (side // factor for side in plane.shape)
    small = np.empty((h, w), np.float32)
    for rows in bands(h * factor, w * factor, factor):
        some = plane[rows, : w * factor].float().numpy()
        target = small[rows.start // factor : rows.stop // factor]
        cv2.resize(some, (w, len(target)), dst=target, interpolation=cv2.INTER_AREA)
    return torch.from_numpy(small)


def enlarge(values: Tensor, factor: int, size: tuple[int, int]) -> Tensor:
    """Interpolate (n, c, h, w), reduced by `factor`, at every pixel of the original `size`; borders replicate."""
    h, w = (factor * side for side in values.shape[-2:])
    planes = (cv2.resize(v.numpy(), (w, h)) for v in values.flatten(0, 1))
    whole = torch.stack([torch.from_numpy(plane) for plane in planes]).unflatten(0, values.shape[:2])
    return F.pad(whole, (0, size[1] - w, 0, size[0] - h), mode="replicate")


def noise_level(plane: Tensor, averaged: bool = False) -> float:
    """Standard deviation of a plane's noise (h, w), from its quietest tenth of 8×8 blocks.

    Args:
        plane: (h, w).
        averaged: whether neighbouring pixels share noise because the plane is a 2×2 mean at every pixel.
    """
    if min(plane.shape) < 12:
        return 1e-3
    second = np.array([1, -2, 1], np.float32)  # applied along both axes: annihilates slopes and edges along either
    mask = torch.from_numpy(np.outer(second, second))
    if averaged:
        box = torch.full((1, 1, 2, 2), 0.25)
        response = F.conv_transpose2d(mask[None, None], box).square().sum().sqrt() * 2  # the mean halves the noise
    else:
        response = mask.square().sum().sqrt()
    curved = torch.from_numpy(cv2.sepFilter2D(plane.numpy(), -1, second, second)[1:-1, 1:-1])
    energy = reduce_plane(curved.square(), 8)
    quiet = float(np.quantile(energy.numpy(), 0.1))
    return max((quiet / _QUIET_TENTH) ** 0.5 / float(response), 1e-3)


# The lowest tenth of such block means of white noise lies at this fraction of their mean (measured).
_QUIET_TENTH = 0.63


def smooth(plane: Tensor, sigma: float) -> Tensor:
    """Gaussian smoothing of (h, w), borders replicated; OpenCV's is ten times faster than a torch convolution."""
    return torch.from_numpy(cv2.GaussianBlur(plane.numpy(), (0, 0), sigma, borderType=cv2.BORDER_REPLICATE))


def gradients(plane: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences of (h, w) along x and y, one-sided at the borders."""
    taps = np.array([[-0.5, 0, 0.5]], np.float32)
    gx, gy = (cv2.filter2D(plane.numpy(), -1, t, borderType=cv2.BORDER_REPLICATE) for t in (taps, taps.T))
    gx[:, [0, -1]] *= 2
    gy[[0, -1]] *= 2
    return torch.from_numpy(gx), torch.from_numpy(gy)
