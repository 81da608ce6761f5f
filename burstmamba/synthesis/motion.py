"""Where things move: the camera's path, one moving object, and the exact maps of both.

Coordinates here are LR pixels measured from the centre of the view, x then y. A homography takes a point of frame l
to the keyframe; on the HR grid the same matrix holds after scaling, because both grids share their centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from burstmamba.correspondence.field import Correspondence
from burstmamba.synthesis.config import SCALE, SynthesisConfig
from burstmamba.synthesis.constant import constant
from burstmamba.synthesis.dice import Dice


def centred_grid(h: int, w: int, device: torch.device, density: int = 1) -> Tensor:
    """(2, density·h, density·w): x and y in LR pixels from the centre, for a grid `density` times finer than LR."""
    y = (torch.arange(density * h, device=device) - (density * h - 1) / 2) / density
    x = (torch.arange(density * w, device=device) - (density * w - 1) / 2) / density
    return torch.stack((x.expand(len(y), -1), y[:, None].expand(-1, len(x))))


def camera_path(dice: Dice, batch: int, config: SynthesisConfig) -> Tensor:
    """Homographies of a handheld burst.

    Returns:
        (b, l, 3, 3) frame → keyframe, centred LR pixels; the identity for frame 0.
    """
    b, l = batch, config.frames
    later = (torch.arange(l, device=dice.device) > 0).float()[None, :, None]
    still = dice.chance(config.tripod, b, 1, 1)
    later = torch.where(still, 0.0, later)
    amplitude = dice.log_uniform(b, 1, 1, low=config.shift[0], high=config.shift[1])
    walk = dice.normal(b, l, 2).mul_(later).cumsum(1).div_(math.sqrt(max(l - 1, 1))).tanh()
    scattered = dice.uniform(b, l, 2, low=-1, high=1)
    shift = torch.where(dice.chance(0.5, b, 1, 1), walk, scattered) * amplitude * later
    angle, gx, gy, shear_x, shear_y = dice.uniform(b, l, 5, low=-1, high=1).mul_(later).unbind(-1)
    angle = angle * math.radians(config.rotation)
    perspective = torch.stack((gx, gy), -1) * (config.perspective * SCALE)
    shear = torch.stack((shear_x, shear_y), -1) * config.rolling_shutter
    return homography(shift, angle, perspective, shear)


def homography(shift: Tensor, angle: Tensor, perspective: Tensor, shear: Tensor | None = None) -> Tensor:
    """Homographies from their parameters.

    Args:
        shift: (..., 2) LR pixels.
        angle: (...) radians.
        perspective: (..., 2) per LR pixel.
        shear: (..., 2) LR pixels of x and y a row.

    Returns:
        (..., 3, 3) p ↦ (R·p + shear·p_y + shift) / (1 + perspective·p).
    """
    cos, sin = angle.cos(), angle.sin()
    down = torch.stack((-sin, cos), -1)
    affine = torch.stack((torch.stack((cos, sin), -1), down if shear is None else down + shear, shift), -1)
    bottom = torch.cat((perspective, torch.ones_like(perspective[..., :1])), -1)
    return torch.cat((affine, bottom[..., None, :]), -2)


def invert(matrices: Tensor) -> Tensor:
    """Inverses of (..., 3, 3) homographies, scaled so that the last entry is 1 (no call that waits for the GPU)."""
    a, b, c = matrices.unbind(-2)
    adjugate = torch.stack(
        (torch.linalg.cross(b, c, dim=-1), torch.linalg.cross(c, a, dim=-1), torch.linalg.cross(a, b, dim=-1)), -1
    )
    return adjugate / adjugate[..., 2:, 2:]


def project(matrices: Tensor, points: Tensor) -> Tensor:
    """Apply homographies to points; elementwise, because TF32 products would blur coordinates by 0.01 px.

    Args:
        matrices: (b, l, 3, 3).
        points: (2, h, w) or (b, l, 2, h, w).

    Returns:
        (b, l, 2, h, w).
    """
    m = matrices[..., None, None]  # (b, l, 3, 3, 1, 1)
    x, y = points[..., None, 0, :, :], points[..., None, 1, :, :]  # (..., 1, h, w)
    moved = torch.addcmul(torch.addcmul(m[:, :, :, 2], m[:, :, :, 0], x), m[:, :, :, 1], y)  # (b, l, 3, h, w)
    return moved[:, :, :2] / moved[:, :, 2:]


@dataclass(frozen=True)
class MovingObject:
    """A lobed blob with a texture of its own that crosses the scene, in front of everything."""

    centre: Tensor
    """(b, 2) in the keyframe, centred LR pixels."""
    radius: Tensor
    """(b,) LR pixels; far below zero where a burst has no object."""
    lobes: Tensor
    """(b, 2) depth and phase of a three-lobed edge."""
    offset: Tensor
    """(b, l, 2) how far it has moved in the scene, LR pixels; 0 in the keyframe."""

    @classmethod
    def draw(cls, dice: Dice, batch: int, size: tuple[int, int], config: SynthesisConfig) -> MovingObject:
        """Any place in the view, any direction, constant velocity."""
        b, (h, w) = batch, size
        present = dice.chance(config.moving_object, b)
        half = constant((w / 2, h / 2), dice.device)
        low, high = config.object_radius
        radius = dice.log_uniform(b, low=low, high=min(high, max(low, min(h, w) / 2)))
        speed = dice.log_uniform(b, low=config.object_speed[0], high=config.object_speed[1])
        direction, depth, phase = dice.uniform(b, 3).unbind(-1)
        direction = direction * (2 * math.pi)
        velocity = torch.stack((direction.cos(), direction.sin()), -1) * speed[:, None]
        time = torch.arange(config.frames, device=dice.device)
        return cls(
            centre=dice.uniform(b, 2, low=-1, high=1) * half,
            radius=torch.where(present, radius, -1e4),
            lobes=torch.stack((0.25 * depth, phase * (2 * math.pi)), -1),
            offset=(velocity * present[:, None])[:, None] * time[:, None],
        )

    def distance(self, points: Tensor) -> Tensor:
        """Signed distance to the edge, negative inside.

        Args:
            points: (b, l, 2, h, w) in the object's frame: where it is in the keyframe.

        Returns:
            (b, l, 1, h, w) LR pixels.
        """
        x, y = (points - self.centre[:, None, :, None, None]).unbind(2)
        depth, phase = self.lobes[:, :, None, None, None].unbind(1)
        edge = self.radius[:, None, None, None] * (1 + depth * torch.cos(3 * torch.atan2(y, x) + phase))
        return (torch.hypot(x, y) - edge).unsqueeze(2)

    def coverage(self, points: Tensor, softness: float = 1.0) -> Tensor:
        """Share of a pixel of this width (LR pixels) that the object covers, (b, l, 1, h, w) in [0, 1]."""
        return covered(self.distance(points), softness)


def covered(distance: Tensor, softness: float = 1.0) -> Tensor:
    """Share of a pixel of this width (LR pixels) that lies inside an edge at this distance."""
    return (0.5 - distance / softness).clamp(0, 1)


@dataclass(frozen=True)
class Scene:
    """The geometry of a batch of bursts, evaluated on the LR grid."""

    behind: Tensor
    """(b, l, 2, h, w): the background point of the keyframe that a frame's pixel sees."""
    ahead: Tensor
    """(b, l, 2, h, w): where the keyframe's background lies in each frame."""
    object_ahead: Tensor
    """(b, l, 2, h, w): where a point that moves with the object lies in each frame."""
    object_points: Tensor
    """(b, l, 2, h, w): a frame's pixels in the object's frame."""
    object: MovingObject
    from_edge: Tensor
    """(b, 1, 1, h, w): distance of the keyframe's pixels to the object's edge, negative inside."""
    frames_from_edge: Tensor
    """(b, l, 1, h, w): the same for each frame's pixels and the object where it then is."""
    grid: Tensor
    """(2, h, w)."""

    @classmethod
    def build(cls, path: Tensor, moving: MovingObject, size: tuple[int, int]) -> Scene:
        """Project the LR grid both ways, for background and object."""
        grid = centred_grid(*size, path.device)
        back = invert(path)
        behind = project(path, grid)
        offset = moving.offset[..., None, None]  # (b, l, 2, 1, 1)
        return cls(
            behind=behind,
            ahead=project(back, grid),
            object_ahead=project(back, grid + offset),
            object_points=behind - offset,
            object=moving,
            from_edge=moving.distance(grid.expand_as(behind[:, :1])),
            frames_from_edge=moving.distance(behind - offset),
            grid=grid,
        )

    def exact(self) -> Correspondence:
        """The true maps: the object's inside it, the background's elsewhere; confidence 0 where nothing is seen."""
        grid = self.grid
        cover = covered(self.from_edge)
        offset = self.object.offset[..., None, None]
        hidden = self.object.coverage(grid - offset)  # the object stands before the background
        follows = cover > 0.5
        to_frame = torch.where(follows, self.object_ahead, self.ahead)
        on_object = self.frames_from_edge < 0
        to_keyframe = torch.where(on_object, self.object_points, self.behind)
        # Pixels on the edge mix object and background; they only go wrong once the two have moved apart.
        apart = offset.norm(dim=2, keepdim=True).clamp(max=1)
        agreement = torch.where(follows, cover, (1 - cover) * (1 - hidden))
        visible = (1 - apart * (1 - agreement)) * inside(to_frame)
        return Correspondence(to_frame - grid, to_keyframe - grid, visible)


def inside(points: Tensor, fade: float = 0.0) -> Tensor:
    """1 within the view and 0 from one pixel beyond its edge: points (b, l, 2, h, w) → (b, l, 1, h, w).

    With `fade`, the value falls from 1 to 0 over so many pixels before the edge instead.
    """
    h, w = points.shape[-2:]
    half = constant((w / 2, h / 2), points.device)
    beyond = (points.abs() - half[:, None, None]).amax(2, keepdim=True)
    return (-beyond / fade if fade else 1 - beyond).clamp(0, 1)
