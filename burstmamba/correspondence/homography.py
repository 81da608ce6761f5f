"""Global motion of each frame: SIFT + FLANN + RANSAC as in the paper (§3), refined to sub-pixel by ECC."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

from burstmamba.correspondence import ecc
from burstmamba.correspondence.bands import bands
from burstmamba.correspondence.field import pixel_grid
from burstmamba.correspondence.luma import Luma, gradients, reduce_plane, smooth

log = logging.getLogger(__name__)

SIFT_SIDE = 800  # features are looked for on planes of at most this size; ECC does the rest
JUDGING_SIDE = 200  # first motions are compared on planes of at most this size
ENOUGH_MATCHES = {"homography": 16, "affine": 8}
# A model whose expected error at the corners is above this gives way to a simpler one.
WORST_DEVIATION = {"homography": 0.3, "affine": 0.3, "similarity": 0.5, "translation": 1.0}


@dataclass(frozen=True)
class GlobalMotion:
    """One motion for the whole frame."""

    matrix: np.ndarray
    """3×3 float64: a keyframe pixel (x, y, 1) is seen at matrix·(x, y, 1) of the frame."""
    model: str
    """"homography", "affine", "similarity" or "translation"; "identity" where there is nothing to hold on to."""

    def displacement(self, size: tuple[int, ...], out: Tensor | None = None) -> Tensor:
        """(2, h, w) pixels, keyframe → frame; written to `out` when that is given."""
        return _project_all(self.matrix, size, out)

    def inverse_displacement(self, size: tuple[int, ...], out: Tensor | None = None) -> Tensor:
        """(2, h, w) pixels, frame → keyframe; written to `out` when that is given."""
        return _project_all(np.linalg.inv(self.matrix), size, out)


STILL = GlobalMotion(np.eye(3), "identity")


def _project_all(matrix: np.ndarray, size: tuple[int, ...], out: Tensor | None) -> Tensor:
    """`project` for every pixel."""
    out = torch.empty(2, *size) if out is None else out
    if (matrix == np.eye(3)).all():
        return out.zero_()
    x, y = axes(size)
    for rows in bands(*size):
        out[:, rows] = project(matrix, x, y[rows])
    return out


def project(matrix: np.ndarray, x: Tensor, y: Tensor) -> Tensor:
    """Displacement (2, h, w) in pixels that a 3×3 homography gives to the points (x, y), which broadcast to (h, w)."""
    # Only what differs from the identity is multiplied out: float32 then keeps 1e-4 px on the largest frames.
    rest = (matrix / matrix[2, 2] - np.eye(3)).tolist()
    bend = rest[2][0] * x + rest[2][1] * y  # (h, w)
    dx = (rest[0][0] * x + rest[0][2]) + rest[0][1] * y
    dy = rest[1][0] * x + (rest[1][1] * y + rest[1][2])
    if rest[2][0] or rest[2][1]:
        dx.sub_(x * bend)
        dy.sub_(y * bend)
        bend.add_(1).reciprocal_()
        return torch.stack((dx.mul_(bend), dy.mul_(bend)))
    return torch.stack((dx, dy))


def axes(size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """x (1, w) and y (h, 1) of the pixels of an image of `size`."""
    return torch.arange(size[1], dtype=torch.float32)[None], torch.arange(size[0], dtype=torch.float32)[:, None]


def estimate_global_motion(planes: Luma) -> list[GlobalMotion]:
    """The motion of every plane against plane 0, in plane pixels; plane 0 itself does not move."""
    if len(planes.planes) == 1:
        return [STILL]
    target = prepare(planes.planes[0], planes.noise)
    return [STILL, *(find_motion(target, plane, index) for index, plane in enumerate(planes.planes[1:], start=1))]


@dataclass(frozen=True)
class Target:
    """What every frame's motion is measured against: the keyframe, prepared once."""

    noise: float
    sigma: float
    """Smoothing of the finest level, in pixels."""
    levels: list[ecc.Level]
    features: tuple[np.ndarray, np.ndarray]
    evened: Tensor
    blurred: np.ndarray
    """(h', w'), for phase correlation."""


def prepare(plane: Tensor, noise: float) -> Target | None:
    """The keyframe's plane (h, w) as a target; None when it has no texture."""
    if not has_texture(plane, noise):
        log.info("the keyframe has no texture to align to: the frames are taken as they are")
        return None
    sigma = smoothing(noise)
    levels = ecc.prepare(plane, sigma, noise)
    return Target(noise, sigma, levels, _features(plane, sigma), _even(plane, noise), _blurred(plane))


def smoothing(noise: float) -> float:
    """Gaussian width in pixels that suits a noise level; ECC averages noise itself, so little more helps (measured)."""
    return float(np.clip(0.7 + 3 * noise, 0.7, 1.2))


def has_texture(plane: Tensor, noise: float) -> bool:
    """Whether anything but noise is seen: a hundredth of the plane has slopes far beyond what noise gives."""
    if min(plane.shape) < 8:
        return False
    sigma = 2.0
    gx, gy = gradients(smooth(plane, sigma))
    strength = (gx.square() + gy.square()).flatten()
    # Slope variance of white noise behind a Gaussian of this width, per axis.
    expected = noise**2 / (8 * np.pi * sigma**4) * 2
    top = np.quantile(strength[:: max(1, len(strength) // 200_000)].numpy(), 0.99)
    return bool(top > max(15 * expected, 1e-8))


def find_motion(keyframe: Target | None, plane: Tensor, index: int) -> GlobalMotion:
    """The motion of a plane (h, w) against the keyframe's; `index` is for messages."""
    if keyframe is None:
        return STILL
    if not has_texture(plane, 0.0):
        log.info("frame %d has no texture to align: it is taken as it is", index)
        return STILL
    start, model = _start(keyframe, plane)
    levels = keyframe.levels
    views = ecc.views(levels, plane)
    best = GlobalMotion(start, model)
    for simpler in list(ecc.MODELS)[list(ecc.MODELS).index(model) :]:
        refined = ecc.refine(levels, views, best.matrix, simpler)
        if not np.isfinite(refined.deviation) or not _plausible(refined.matrix, plane.shape):
            continue
        best = GlobalMotion(refined.matrix, simpler)
        if refined.deviation <= WORST_DEVIATION[simpler]:
            if simpler != "homography":
                log.info("frame %d: too little texture for a homography, aligned by %s", index, simpler)
            return best
    log.info("frame %d: the refinement found no motion that its texture supports", index)
    return best


def _start(keyframe: Target, plane: Tensor) -> tuple[np.ndarray, str]:
    """A first motion: by matched features, by the best whole-frame shift or none, whichever brings most into line."""
    candidates = [(np.eye(3), "homography")]
    found = _match(keyframe.features, _features(plane, keyframe.sigma))
    if found is not None:
        candidates.append(found)
    candidates.append((_shift(keyframe.blurred, plane), "homography" if found is None else found[1]))
    candidates = [c for c in candidates if _plausible(c[0], plane.shape)]
    evened, factor = _even(plane, keyframe.noise), _factor(plane, JUDGING_SIDE)
    return max(candidates, key=lambda candidate: _correlation(keyframe.evened, evened, candidate[0], factor))


def _plausible(matrix: np.ndarray, shape) -> bool:
    """Whether a frame of a burst can have moved like this: no mirror, no fold, sizes within a factor of 2."""
    h, w = shape
    corners = np.array([[0, 0, 1], [w - 1, 0, 1], [w - 1, h - 1, 1], [0, h - 1, 1.0]]).T
    moved = matrix @ corners
    if not np.isfinite(moved).all() or (moved[2] < 0.2).any():
        return False
    x, y = moved[:2] / moved[2]
    area = 0.5 * (x @ np.roll(y, -1) - y @ np.roll(x, -1)) / max((w - 1) * (h - 1), 1)
    return 0.25 < area < 4


def _factor(plane: Tensor, longest_side: int) -> int:
    """By how much a plane (h, w) is reduced to bring its longest side down to about this; 8 pixels remain."""
    return max(1, min(-(-max(plane.shape) // longest_side), min(plane.shape) // 8))


def _features(plane: Tensor, sigma: float):
    """SIFT keypoints (n, 2) in plane pixels and descriptors of a plane (h, w)."""
    factor = _factor(plane, SIFT_SIDE)
    small = smooth(reduce_plane(plane, factor), 0.5 * sigma)
    low, high = np.quantile(small.numpy(), (0.005, 0.995))
    eight = ((small - float(low)) * (255 / max(float(high - low), 1e-6))).clamp(0, 255).byte().numpy()
    detector = cv2.SIFT_create(nfeatures=1000, contrastThreshold=0.02)  # pyright: ignore[reportAttributeAccessIssue] (stubs)
    keypoints, descriptors = detector.detectAndCompute(eight, None)
    points = np.array([k.pt for k in keypoints], np.float64).reshape(-1, 2) * factor + (factor - 1) / 2
    return points, descriptors


def _match(keyframe, frame) -> tuple[np.ndarray, str] | None:
    """RANSAC over matched features: a homography, an affine map when they are few, None when they are too few."""
    (points, descriptors), (others, other_descriptors) = keyframe, frame
    if min(len(points), len(others)) < ENOUGH_MATCHES["affine"]:
        return None
    # FLANN's exhaustive index: exact and repeatable, and quick enough for a thousand features.
    matcher = cv2.FlannBasedMatcher({"algorithm": 0}, {})
    pairs = [m for m in matcher.knnMatch(descriptors, other_descriptors, k=2) if len(m) == 2]
    good = [best for best, second in pairs if best.distance < 0.8 * second.distance]
    a = points[[m.queryIdx for m in good]].reshape(-1, 1, 2)
    b = others[[m.trainIdx for m in good]].reshape(-1, 1, 2)
    cv2.setRNGSeed(0)
    if len(good) >= ENOUGH_MATCHES["homography"]:
        matrix, inliers = cv2.findHomography(a, b, cv2.RANSAC, 2.0)
        if matrix is not None and inliers.sum() >= ENOUGH_MATCHES["homography"]:
            return matrix, "homography"
    if len(good) >= ENOUGH_MATCHES["affine"]:
        matrix, inliers = cv2.estimateAffine2D(a, b, method=cv2.RANSAC, ransacReprojThreshold=2.0)
        if matrix is not None and inliers.sum() >= ENOUGH_MATCHES["affine"]:
            return np.vstack((matrix, [0, 0, 1])), "affine"
    return None


def _blurred(plane: Tensor) -> np.ndarray:
    """A small version of a plane without its mean, in float64, for phase correlation."""
    small = smooth(reduce_plane(plane, _factor(plane, SIFT_SIDE)), 1.0).numpy().astype(np.float64)
    return small - small.mean()


def _shift(a: np.ndarray, plane: Tensor) -> np.ndarray:
    """The whole-frame shift that phase correlation finds."""
    factor, b = _factor(plane, SIFT_SIDE), _blurred(plane)
    window = cv2.createHanningWindow(a.shape[::-1], cv2.CV_64F)
    (dx, dy), _ = cv2.phaseCorrelate(a.copy(), b, window)  # the window is multiplied into what is given
    matrix = np.eye(3)
    matrix[:2, 2] = np.clip((dx, dy), -max(a.shape), max(a.shape)) if np.isfinite((dx, dy)).all() else 0.0
    matrix[:2, 2] *= factor
    return matrix


def _even(plane: Tensor, noise: float) -> Tensor:
    """A small version of a plane in which every region has the same contrast: one bright object has one vote."""
    factor = _factor(plane, JUDGING_SIDE)
    small = smooth(reduce_plane(plane, factor), 1.0)
    small = small - smooth(small, 4.0)
    floor = (noise / factor) ** 2 / (4 * np.pi) + 1e-6  # white noise behind a Gaussian of 1 pixel
    return small / (smooth(small.square(), 4.0) + floor).sqrt()


def _correlation(keyframe: Tensor, plane: Tensor, matrix: np.ndarray, factor: int) -> float:
    """How well two evened planes, reduced by `factor`, agree under a motion of the planes they come from."""
    place = np.array([[factor, 0, (factor - 1) / 2], [0, factor, (factor - 1) / 2], [0, 0, 1]])
    small = np.linalg.inv(place) @ matrix @ place
    points = pixel_grid(keyframe)[0].flatten(1).T
    values, inside = ecc.sample_points(plane, points, small)
    if inside.sum() < 0.2 * inside.numel():
        return -1.0
    return float(torch.corrcoef(torch.stack((keyframe.flatten()[inside], values[inside])))[0, 1].nan_to_num(-1.0))
