"""Sub-pixel refinement of a global motion by enhanced correlation, coarse to fine and robust to what moves.

Gauss–Newton on the correlation of two planes (Evangelidis & Psarakis 2008), in the inverse compositional form, so that
the keyframe's gradients are prepared once for the whole burst. Differs from OpenCV's `findTransformECC`: pixels that
disagree (moving objects, occlusions) lose their weight, and the expected deviation of the result is returned.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.correspondence.luma import reduce_plane, smooth

# What each motion model may do with the parameters of a homography (x: ξ η 1, y: ξ η 1, perspective ξ η): (8, k).
MODELS = {
    "homography": np.eye(8),
    "affine": np.eye(8)[:, :6],
    "similarity": np.array([[1, 0, 0, 0, 1, 0, 0, 0], [0, -1, 0, 1, 0, 0, 0, 0], *np.eye(8)[[2, 5]]]).T,
    "translation": np.eye(8)[:, [2, 5]],
}
POINTS = 60_000  # more pixels of a large frame add time, not accuracy
SMALLEST_LEVEL = 48
# Aliasing moves an edge by about this many pixels between frames that are perfectly aligned.
ALIASING = 0.15


@dataclass(frozen=True)
class Level:
    """The keyframe at one resolution: points, values and the derivatives of the values by the motion."""

    factor: int
    sigma: float
    points: Tensor
    """(n, 2) pixels of this level."""
    values: Tensor
    """(n)."""
    slope: Tensor
    """(n): gradient magnitude per pixel."""
    texture: Tensor
    """(n) in [0, 1]: share of the slope's energy that is not noise."""
    jacobian: Tensor
    """(n, 8)."""
    frame: np.ndarray
    """3×3: pixels of this level → centred coordinates of about ±1."""


@dataclass(frozen=True)
class Refined:
    """A refined motion."""

    matrix: np.ndarray
    """3×3, keyframe pixels → frame pixels."""
    deviation: float
    """Expected standard deviation in pixels, where it is worst (at the corners)."""


def prepare(keyframe: Tensor, sigma: float, noise: float = 0.0) -> list[Level]:
    """The keyframe's pyramid, coarsest first.

    Args:
        keyframe: (h, w).
        sigma: smoothing of the finest level in pixels.
        noise: standard deviation of a pixel's noise; slopes that it explains are not taken for texture.
    """
    factors = [f for f in (16, 8, 4, 2) if min(keyframe.shape) // f >= SMALLEST_LEVEL]
    steps = [(f, 1.0) for f in factors] + [(1, 2 * sigma), (1, sigma)]
    return [_level(keyframe, factor, width, noise / factor) for factor, width in steps]


def _level(keyframe: Tensor, factor: int, sigma: float, noise: float) -> Level:
    plane = smooth(reduce_plane(keyframe, factor), sigma)
    gx, gy = slopes(plane)
    slope = (gx.square() + gy.square()).sqrt()
    noise_slope = noise**2 / (4 * np.pi * sigma**4)  # mean squared slope of white noise behind the Gaussian
    index = _steepest(slope, POINTS)
    h, w = plane.shape
    edge = margin(plane, sigma)
    index = index[(index // w - (h - 1) / 2).abs() <= (h - 1) / 2 - edge]
    index = index[(index % w - (w - 1) / 2).abs() <= (w - 1) / 2 - edge]
    y, x = (index // w).float(), (index % w).float()
    size = max(h, w) / 2
    xi, eta = (x - (w - 1) / 2) / size, (y - (h - 1) / 2) / size
    along_x, along_y = gx.flatten()[index] * size, gy.flatten()[index] * size
    radial = along_x * xi + along_y * eta
    columns = [along_x * xi, along_x * eta, along_x, along_y * xi, along_y * eta, along_y, -radial * xi, -radial * eta]
    frame = np.array([[1 / size, 0, -(w - 1) / 2 / size], [0, 1 / size, -(h - 1) / 2 / size], [0, 0, 1]])
    return Level(
        factor=factor,
        sigma=sigma,
        points=torch.stack((x, y), -1),
        values=plane.flatten()[index],
        slope=slope.flatten()[index],
        texture=(1 - 3 * noise_slope / slope.flatten()[index].square().clamp(min=1e-12)).clamp(min=0),
        jacobian=torch.stack(columns, -1),
        frame=frame,
    )


def slopes(plane: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of (h, w) along x and y over five pixels: close to exact for fine texture, where two are far off."""
    taps = np.array([[1, -8, 0, 8, -1]], np.float32) / 12
    filters = (taps, taps.T)
    gx, gy = (cv2.filter2D(plane.numpy(), -1, taps, borderType=cv2.BORDER_REPLICATE) for taps in filters)
    return torch.from_numpy(gx), torch.from_numpy(gy)


def margin(plane: Tensor, sigma: float) -> int:
    """Pixels at the border whose smoothed values depend on what lies outside."""
    return min(round(1.5 * sigma), min(plane.shape) // 8)


def _steepest(slope: Tensor, count: int) -> Tensor:
    """Flat indices of at most `count` pixels: the steepest one of every square block of (h, w)."""
    h, w = slope.shape
    block = int(np.ceil((h * w / count) ** 0.5))
    if block <= 1:
        return torch.arange(h * w)
    _, index = F.max_pool2d(slope[None, None], block, return_indices=True)
    return index.flatten()


def views(levels: list[Level], frame: Tensor) -> list[Tensor]:
    """The other plane (h, w) as it is compared with each level."""
    return [smooth(reduce_plane(frame, level.factor), level.sigma) for level in levels]


def refine(levels: list[Level], frame: list[Tensor], matrix: np.ndarray, model: str) -> Refined:
    """Refine `matrix` (keyframe pixels → frame pixels) until the planes correlate best.

    Args:
        levels: the keyframe, from `prepare`.
        frame: the other plane, from `views`.
        matrix: 3×3 start, within a few pixels of the truth.
        model: one of MODELS; what it does not allow is taken out of the start.
    """
    last = levels[-1]
    start = np.linalg.inv(last.frame) @ _nearest(last.frame @ matrix @ np.linalg.inv(last.frame), model) @ last.frame
    result = Refined(start, float("inf"))
    for level, plane in zip(levels, frame, strict=True):
        place = np.array(
            [[level.factor, 0, (level.factor - 1) / 2], [0, level.factor, (level.factor - 1) / 2], [0, 0, 1]]
        )
        within = np.linalg.inv(place) @ result.matrix @ place
        refined = _refine_level(level, plane, within, model, tolerance=0.002 if level is last else 0.02)
        if refined is None:
            return Refined(start, float("inf"))
        result = Refined(place @ refined.matrix @ np.linalg.inv(place), refined.deviation * level.factor)
    return result


def _refine_level(level: Level, plane: Tensor, matrix: np.ndarray, model: str, tolerance: float) -> Refined | None:
    """Gauss–Newton on one level; None when the frames no longer overlap or the texture does not fix the motion."""
    basis = MODELS[model]
    jacobian = level.jacobian @ torch.from_numpy(basis).float()  # (n, k)
    half_extent = 1 / level.frame[0, 0]
    scale = None
    deviation = float("inf")
    for _ in range(15):
        values, inside = sample_points(plane, level.points, matrix, margin(plane, level.sigma))
        if int(inside.sum()) < max(20, 0.2 * len(inside)):
            return None
        t, i, j = level.values[inside], values[inside], jacobian[inside]
        variance, scale = _variance(t, i, level.slope[inside], scale)
        system = torch.cat((j, -i[:, None], -torch.ones_like(i)[:, None]), 1)
        weighted = system * (level.texture[inside] / variance)[:, None]
        normal = (weighted.T @ system).double()
        covariance, singular = torch.linalg.inv_ex(normal + 1e-9 * normal.diagonal().mean() * torch.eye(len(normal)))
        if singular:
            return None
        step = basis @ (covariance @ -(weighted.T @ t).double()).numpy()[: basis.shape[1]]
        update = _motion(step)
        if not np.isfinite(update).all() or abs(np.linalg.det(update)) < 0.1:
            return None
        matrix = matrix @ np.linalg.inv(level.frame) @ np.linalg.inv(update) @ level.frame
        matrix = matrix / matrix[2, 2]
        spread = basis @ covariance[: basis.shape[1], : basis.shape[1]].numpy() @ basis.T  # (8, 8)
        deviation = _corner_deviation(spread, level.sigma) * half_extent
        moved = update @ CORNERS
        if np.abs(moved[:2] / moved[2] - CORNERS[:2]).max() * half_extent < tolerance:
            break
    return Refined(matrix, deviation)


def _motion(parameters: np.ndarray) -> np.ndarray:
    """3×3 motion in centred coordinates of the eight parameters."""
    return np.eye(3) + np.append(parameters, 0).reshape(3, 3)


# Centred corners (3, 4), and by how much each parameter moves them (4, 2, 8).
CORNERS = np.array([[-1, -1, 1], [1, -1, 1], [-1, 1, 1], [1, 1, 1.0]]).T
PULL = np.array(
    [[[x, y, 1, 0, 0, 0, -x * x, -x * y], [0, 0, 0, x, y, 1, -x * y, -y * y]] for x, y, _ in CORNERS.T.tolist()]
)


def _nearest(matrix: np.ndarray, model: str) -> np.ndarray:
    """The motion of a simpler model that moves the corners most like `matrix`, in centred coordinates."""
    if model == "homography":
        return matrix
    moved = matrix @ CORNERS
    shifts = (moved[:2] / moved[2] - CORNERS[:2]).T.flatten()
    basis = MODELS[model]
    return _motion(basis @ np.linalg.lstsq(PULL.reshape(8, 8) @ basis, shifts, rcond=None)[0])


def _variance(t: Tensor, i: Tensor, slope: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Expected squared residual of each pixel, larger where the residual says that it does not belong."""
    centred = i - i.mean()
    gain = (centred * (t - t.mean())).sum() / centred.square().sum().clamp(min=1e-12)
    residual = gain * centred - (t - t.mean())
    residual = residual - residual.median()
    spread = 1.4826 * residual.abs().median().clamp(min=1e-5)
    scale = spread if scale is None else torch.minimum(spread, scale)
    expected = scale.square() + (ALIASING * slope).square()
    return expected * (1 + residual.square() / (6 * expected)).square(), scale


def _corner_deviation(covariance: np.ndarray, sigma: float) -> float:
    """Largest standard deviation of the displacement of a corner, in centred coordinates."""
    worst = max(float(np.trace(pull @ covariance @ pull.T)) for pull in PULL)
    shared = max(1.0, 4 * np.pi * sigma**2)  # smoothing makes neighbours repeat each other
    return float(np.sqrt(max(worst, 0) * shared))


def sample_points(plane: Tensor, points: Tensor, matrix: np.ndarray, edge: int = 0) -> tuple[Tensor, Tensor]:
    """Values of (h, w) at the images of points (n, 2), bicubic, and which of them lie inside by `edge` pixels."""
    h, w = plane.shape
    m = torch.from_numpy(matrix).float()
    x, y = points.T
    depth = m[2, 0] * x + m[2, 1] * y + m[2, 2]
    u = (m[0, 0] * x + m[0, 1] * y + m[0, 2]) / depth
    v = (m[1, 0] * x + m[1, 1] * y + m[1, 2]) / depth
    inside = (u >= edge) & (u <= w - 1 - edge) & (v >= edge) & (v <= h - 1 - edge) & (depth > 0.1)
    grid = torch.stack((2 * u / max(w - 1, 1) - 1, 2 * v / max(h - 1, 1) - 1), -1)[None, None]
    return F.grid_sample(plane[None, None], grid, "bicubic", "border", align_corners=True)[0, 0, 0], inside
