"""From a finished photograph back to linear sensor values, as SyntheticBurst does, and forward again for display."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from burstmamba.synthesis import colour
from burstmamba.synthesis.constant import constant
from burstmamba.synthesis.dice import Dice


@dataclass(frozen=True)
class Processing:
    """One batch of random camera pipelines: what SyntheticBurst's meta_info holds."""

    rgb2cam: Tensor
    """(b, 3, 3) linear sRGB → camera RGB, rows summing to 1."""
    rgb_gain: Tensor
    """(b,) brightness."""
    red_gain: Tensor
    """(b,)"""
    blue_gain: Tensor
    """(b,)"""
    shot: Tensor
    """(b,)"""
    read: Tensor
    """(b,)"""

    @classmethod
    def draw(cls, dice: Dice, batch: int, shot: tuple[float, float] = (1e-4, 0.012)) -> Processing:
        """Colours, gains and noise with the benchmark's distributions."""
        shot_level = dice.log_uniform(batch, low=shot[0], high=shot[1])
        return cls(
            rgb2cam=colour.camera_matrices(dice, batch),
            rgb_gain=1 / (0.8 + 0.1 * dice.normal(batch)),
            red_gain=dice.uniform(batch, low=1.9, high=2.4),
            blue_gain=dice.uniform(batch, low=1.5, high=1.9),
            shot=shot_level,
            read=read_noise(shot_level, dice.normal(batch)),
        )

    @property
    def cam2rgb(self) -> Tensor:
        """(b, 3, 3) camera RGB → linear sRGB."""
        return colour.invert_matrices(self.rgb2cam)

    @property
    def gains(self) -> Tensor:
        """(b, 3) everything that multiplies sensor values."""
        return torch.stack((self.red_gain, torch.ones_like(self.red_gain), self.blue_gain), -1) * self.rgb_gain[:, None]


def read_noise(shot: Tensor, normal: Tensor) -> Tensor:
    """Read noise that goes with a shot noise: log read = 2.18·log shot + 1.20 + N(0, 0.26)."""
    return torch.exp(2.18 * shot.log() + 1.20 + 0.26 * normal)


def inverse_tone(image: Tensor) -> Tensor:
    """Undo the smoothstep 3x² − 2x³."""
    return 0.5 - torch.sin(torch.asin(1 - 2 * image.clamp(0, 1)) / 3)


def inverse_gamma(image: Tensor) -> Tensor:
    """Undo the power 1/2.2."""
    return image.clamp(min=1e-8) ** 2.2


def unprocess(photos: Tensor, processing: Processing) -> Tensor:
    """sRGB photographs (b, 3, H, W) → linear sensor RGB in [0, 1]."""
    linear = inverse_gamma(inverse_tone(photos))
    return colour.safely_divide_gains(colour.apply_matrix(linear, processing.rgb2cam), processing.gains).clamp(0, 1)


def process(sensor_rgb: Tensor, processing: Processing) -> Tensor:
    """Linear sensor RGB (b, 3, H, W) → what is shown: gains, colour matrix, gamma, tone curve."""
    image = (sensor_rgb * processing.gains[:, :, None, None]).clamp(0, 1)
    image = colour.apply_matrix(image, processing.cam2rgb).clamp(0, 1)
    image = image.clamp(min=1e-8) ** (1 / 2.2)
    return colour.tone_curve(image, torch.ones((), device=image.device)).clamp(0, 1)


def turn(angle_degrees: Tensor, shift: Tensor, centre: tuple[float, float]) -> Tensor:
    """Affine maps of the benchmark: translate, then rotate about the image's centre as OpenCV counts angles.

    Args:
        angle_degrees: (b, l), counter-clockwise on the screen.
        shift: (b, l, 2) HR pixels.
        centre: x and y.

    Returns:
        (b, l, 3, 3) source → warped image, pixel coordinates.
    """
    angle = angle_degrees * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    cx, cy = centre
    tx, ty = shift.unbind(-1)
    x = torch.stack((cos, sin, cos * tx + sin * ty + (1 - cos) * cx - sin * cy), -1)
    y = torch.stack((-sin, cos, -sin * tx + cos * ty + sin * cx + (1 - cos) * cy), -1)
    bottom = torch.zeros_like(x) + constant((0.0, 0.0, 1.0), x.device)
    return torch.stack((x, y, bottom), -2)
