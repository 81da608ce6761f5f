"""The grey planes on which motion is estimated: bounded in size, of even noise, with known coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence.bands import bands

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
    """Standard deviation of the noise of one pixel of the keyframe's plane."""

    def matrix_in_burst_pixels(self, matrix: np.ndarray) -> np.ndarray:
        """A 3×3 homography between planes, as one between the burst's frames."""
        place = np.array([[self.pitch, 0, self.origin], [0, self.pitch, self.origin], [0, 0, 1.0]])
        return place @ matrix @ np.linalg.inv(place)

    def bands_on_burst_pixels(self, values: Tensor, size: tuple[int, int]) -> Iterator[tuple[slice, Tensor]]:
        """Interpolate (n, c, h, w) of the planes at the burst's pixels, by bands of rows; borders replicate.

        Yields which rows, and (n, c, rows, w).
        """
        if self.pitch > 1:
            yield from enlarge(values, round(self.pitch), size)
            return
        if self.origin:  # the 2×2 means of a mosaic: its pixels lie in the middle of four of them
            padded = F.pad(values, (1, 1, 1, 1), mode="replicate")
            values = F.avg_pool2d(padded, 2, stride=1)[..., : size[0], : size[1]]
        yield slice(0, size[0]), values


def luma(burst: Burst, longest_side: int = LONGEST_SIDE) -> Luma:
    """The grey planes of a burst.

    A mosaic is averaged over every 2×2 window: each holds one red, two green and one blue pixel, so that the plane
    shows no pattern of the mosaic; its centre lies half a pixel right and down of the window's first pixel. A large
    mosaic is averaged over windows of even size that do not overlap.
    """
    return luma_of(burst.frames, burst.camera, longest_side)


def luma_of(frames: Tensor, camera: Camera, longest_side: int = LONGEST_SIDE) -> Luma:
    """`luma` of frames (l, c, h, w)."""
    size, mosaic = frames.shape[-2:], camera.cfa is not None
    factor = max(1, -(-max(size) // longest_side))
    if mosaic and factor > 1:
        factor += factor % 2
    if factor > min(size):
        factor = 1
    planes = torch.stack([grey(reduce_frame(frame, camera, factor), camera, factor) for frame in frames])
    overlapping = mosaic and factor == 1
    origin = 0.5 if overlapping else (factor - 1) / 2
    return Luma(planes, float(factor), origin, noise_level(planes[0], averaged=overlapping))


def reduce_frame(frame: Tensor, camera: Camera, factor: int) -> Tensor:
    """A frame (c, h, w) in float32, averaged over factor×factor pixels; a mosaic as it is."""
    frame = frame.detach().cpu()
    return frame.float() if camera.cfa else torch.stack([reduce_plane(channel, factor) for channel in frame])


def grey(small: Tensor, camera: Camera, factor: int) -> Tensor:
    """What `reduce_frame` gave, as a grey plane (h', w')."""
    if not camera.cfa:
        plane = 0.25 * small[0] + 0.5 * small[1] + 0.25 * small[2]
    elif factor > 1:
        plane = reduce_plane(small[0], factor)
    else:
        h, w = small.shape[-2:]
        padded = F.pad(small[None], (0, int(w == 1), 0, int(h == 1)), mode="replicate")
        plane = F.avg_pool2d(padded, 2, stride=1)[0, 0]
    plane = plane.clamp_(min=0)
    return plane.sqrt_() if camera.linear else plane


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


def enlarge(values: Tensor, factor: int, size: tuple[int, int]) -> Iterator[tuple[slice, Tensor]]:
    """Interpolate (n, c, h, w), reduced by `factor`, at every pixel of the original `size`; borders replicate.

    Yields bands of rows: which rows, and (n, c, rows, w); the first row of each is a multiple of `factor`.
    """
    n, c, h, w = values.shape
    planes = values.flatten(0, 1).numpy()
    for rows in bands(factor * h, factor * w, factor):
        first, last = rows.start // factor, rows.stop // factor
        top, bottom = max(first - 1, 0), min(last + 1, h)  # a row on either side takes part
        inner = slice((first - top) * factor, (last - top) * factor)
        stop = size[0] if last == h else rows.stop
        band = torch.empty(n * c, stop - rows.start, size[1])
        for plane, target in zip(planes, band, strict=True):
            large = cv2.resize(plane[top:bottom], (factor * w, factor * (bottom - top)))[inner]
            target[: len(large), : factor * w] = torch.from_numpy(large)
        band[:, rows.stop - rows.start :, : factor * w] = band[:, None, rows.stop - rows.start - 1, : factor * w]
        band[..., factor * w :] = band[..., factor * w - 1, None]
        yield slice(rows.start, stop), band.unflatten(0, (n, c))


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
