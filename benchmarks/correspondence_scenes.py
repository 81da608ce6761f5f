"""Bursts with exact maps for judging the estimators: one photograph seen by a moving camera, box pixels, real noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Burst, Camera

SCALE = 4  # photograph pixels per frame pixel


@dataclass(frozen=True)
class Motion:
    """What the camera and the object do between the frames."""

    shift: float = 8.0
    """Largest camera shift in frame pixels."""
    degrees: float = 1.0
    """Largest camera rotation."""
    perspective: float = 0.0
    """Largest tilt: the displacement it causes at the frame's corners, in pixels."""
    object_shift: float = 0.0
    """Largest shift of an object of its own, in frame pixels; 0 = no object."""


HANDHELD = Motion()


@dataclass(frozen=True)
class Scene:
    """A rendered burst and the truth about it."""

    burst: Burst
    to_frame: Tensor
    """(l, 2, h, w) exact δ⁰→ˡ."""
    to_keyframe: Tensor
    """(l, 2, h, w) exact δˡ→⁰."""
    moving: Tensor
    """(h, w) bool: the object, in the keyframe's view."""
    visible: Tensor
    """(l, h, w) bool: the keyframe's pixel is in the frame and not covered there."""


def procedural_photo(size: int, seed: int) -> Tensor:
    """(3, size, size) sRGB in [0, 1]: discs, bars and grain at many scales, so that every region has texture."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size].astype(np.float32)
    image = np.full((3, size, size), 0.5, np.float32)
    for _ in range(size * size // 900):
        cx, cy, radius = rng.uniform(0, size), rng.uniform(0, size), size * 0.1 * rng.power(0.4) + 3
        x0, x1, y0, y1 = (
            int(np.clip(v, 0, size)) for v in (cx - radius, cx + radius + 1, cy - radius, cy + radius + 1)
        )
        window = np.s_[y0:y1, x0:x1]
        u, v = x[window] - cx, y[window] - cy
        inside = u * u + v * v < radius * radius
        if rng.random() < 0.4:
            angle, period = rng.uniform(0, np.pi), rng.uniform(6, 24)
            inside &= np.sin((u * np.cos(angle) + v * np.sin(angle)) * 2 * np.pi / period) > 0
        image[(slice(None), *window)] = np.where(
            inside, rng.uniform(0.05, 0.95, (3, 1, 1)), image[(slice(None), *window)]
        )
    image += rng.normal(0, 0.03, (1, size, size)).astype(np.float32)
    return torch.from_numpy(image.clip(0, 1))


def render(
    photo: Tensor,
    *,
    seed: int,
    frames: int = 14,
    size: int = 160,
    motion: Motion = HANDHELD,
    noise: tuple[float, float] = (1e-4, 1e-6),
    cfa: str | None = None,
    blurred: int | None = None,
) -> Scene:
    """Look at `photo` (3, H, W) through a handheld camera.

    Args:
        photo: (3, H, W) sRGB in [0, 1]; H and W about 4·(size + 2·shift), mirrored beyond.
        seed: of motion and noise.
        frames: how many, keyframe included.
        size: of the frames, in pixels.
        motion: of camera and object.
        noise: (shot, read) in linear light.
        cfa: a mosaic instead of RGB.
        blurred: this frame is badly blurred: the camera moves by 8 pixels while it is exposed.
    """
    rng = np.random.default_rng(seed)
    linear = _decode(photo.float())
    views = [np.eye(3)] + [_camera(rng, size, motion) for _ in range(frames - 1)]  # frame → keyframe, pixels
    drifts = [torch.zeros(2)] + [
        torch.from_numpy(rng.uniform(-1, 1, 2)) * motion.object_shift for _ in range(frames - 1)
    ]
    centre = rng.uniform(0.4, 0.6, 2) * size
    radius = 0.22 * size if motion.object_shift else 0.0
    origin = (torch.tensor([photo.shape[2], photo.shape[1]]) - SCALE * size) / 2
    fine = _grid(SCALE * size, (0.5 / SCALE) - 0.5, 1 / SCALE)  # frame pixels at the photograph's pitch
    coarse = _grid(size, 0.0, 1.0)
    images, to_frame, to_keyframe, visible = [], [], [], []
    moving = _disc(coarse, centre, radius)
    for view, drift in zip(views, drifts, strict=True):
        background = _apply(view, fine)
        colour = _look(linear, background, origin)
        # The object lives in the keyframe's coordinates: at time l it has moved there by `drift`.
        body_point = background - drift.view(2, 1, 1)
        if radius:
            texture = 1 - _look(linear, size - 1 - body_point, origin)  # the photograph upside down, as a negative
            colour = torch.where(_disc(body_point, centre, radius), texture, colour)
        images.append(F.avg_pool2d(colour[None], SCALE)[0])
        back = np.linalg.inv(view)
        forward_background = _apply(back, coarse)
        forward_object = _apply(back, coarse + drift.view(2, 1, 1))
        forward = torch.where(moving, forward_object, forward_background)
        native = _apply(view, coarse)
        on_object = _disc(native - drift.view(2, 1, 1), centre, radius)
        to_frame.append(forward - coarse)
        to_keyframe.append(torch.where(on_object, native - drift.view(2, 1, 1), native) - coarse)
        covered = ~moving & _disc(coarse - drift.view(2, 1, 1), centre, radius)
        inside_frame = ((forward >= 0) & (forward <= size - 1)).all(0)
        visible.append(inside_frame & ~covered)
    stack = torch.stack(images)
    if blurred is not None:
        stack[blurred] = _shake(stack[blurred], rng)
    if cfa:
        stack = _mosaic(stack, cfa)
    generator = torch.Generator().manual_seed(seed)
    deviation = (stack.clamp(min=0) * noise[0] + noise[1]).sqrt()
    stack = (stack + deviation * torch.randn(stack.shape, generator=generator, dtype=stack.dtype)).clamp(0, 1)
    camera = Camera(cfa=cfa, linear=True, noise=noise) if cfa else Camera()
    frames_ = stack.float() if cfa else _encode(stack).float()
    return Scene(
        Burst(frames_, camera),
        torch.stack(to_frame).float(),
        torch.stack(to_keyframe).float(),
        moving,
        torch.stack(visible),
    )


def end_point_error(estimate: Tensor, truth: Tensor) -> Tensor:
    """(..., h, w) pixels between two maps (..., 2, h, w)."""
    return (estimate - truth).norm(dim=-3)


def _camera(rng: np.random.Generator, size: int, motion: Motion) -> np.ndarray:
    angle = np.radians(rng.uniform(-1, 1) * motion.degrees)
    c, s = np.cos(angle), np.sin(angle)
    middle = np.array([[1, 0, (size - 1) / 2], [0, 1, (size - 1) / 2], [0, 0, 1]])
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    turn[:2, 2] = rng.uniform(-1, 1, 2) * motion.shift
    turn[2, :2] = rng.uniform(-1, 1, 2) * motion.perspective * 2 / size**2
    return middle @ turn @ np.linalg.inv(middle)


def _grid(n: int, start: float, step: float) -> Tensor:
    axis = start + step * torch.arange(n, dtype=torch.float64)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return torch.stack((x, y))


def _apply(matrix: np.ndarray, points: Tensor) -> Tensor:
    homogeneous = torch.tensordot(torch.from_numpy(matrix), torch.cat((points, torch.ones_like(points[:1]))), 1)
    return homogeneous[:2] / homogeneous[2]


def _look(photo: Tensor, points: Tensor, origin: Tensor) -> Tensor:
    """Light of the photograph at keyframe coordinates (2, h, w)."""
    position = SCALE * (points + 0.5) - 0.5 + origin.view(2, 1, 1)
    extent = torch.tensor([photo.shape[2] - 1, photo.shape[1] - 1]).view(2, 1, 1)
    grid = (2 * position / extent - 1).permute(1, 2, 0)[None].float()
    return F.grid_sample(photo[None], grid, "bicubic", "reflection", align_corners=True)[0].clamp(0, 1)


def _disc(points: Tensor, centre: np.ndarray, radius: float) -> Tensor:
    offset = points - torch.from_numpy(centre).view(2, 1, 1)
    return offset.square().sum(0) < radius * radius


def _shake(image: Tensor, rng: np.random.Generator, length: int = 8) -> Tensor:
    """A frame (3, h, w) exposed while the camera moves on a straight line of `length` pixels."""
    kernel = torch.zeros(1, 1, length + 1, length + 1, dtype=image.dtype)
    angle = rng.uniform(0, np.pi)
    for t in np.linspace(-length / 2, length / 2, 4 * length):
        kernel[0, 0, round(length / 2 + t * np.sin(angle)), round(length / 2 + t * np.cos(angle))] += 1 / (4 * length)
    padded = F.pad(image[:, None], (length // 2,) * 4, mode="replicate")
    return F.conv2d(padded, kernel)[:, 0]


def _mosaic(frames: Tensor, cfa: str) -> Tensor:
    out = torch.empty_like(frames[:, :1])
    for i, colour in enumerate(cfa):
        y, x = divmod(i, 2)
        out[:, 0, y::2, x::2] = frames[:, "RGB".index(colour), y::2, x::2]
    return out


def _decode(srgb: Tensor) -> Tensor:
    return torch.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _encode(linear: Tensor) -> Tensor:
    return torch.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear.clamp(min=1e-9) ** (1 / 2.4) - 0.055)
