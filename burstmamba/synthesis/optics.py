"""Lens and pixel: the light that falls on one LR pixel."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.synthesis.config import SCALE, SynthesisConfig
from burstmamba.synthesis.constant import constant
from burstmamba.synthesis.dice import Dice

SHARPEST = 1e-3
"""Sigma of a perfect lens in HR pixels: all light falls on one of them."""


def lens_kernels(dice: Dice, batch: int, config: SynthesisConfig) -> Tensor:
    """Anisotropic Gaussian point spread functions, (b, k, k) with sum 1, in HR pixels."""
    radius = math.ceil(3 * config.lens_blur[1] * math.sqrt(config.anisotropy))
    sigma = dice.uniform(batch, low=config.lens_blur[0], high=config.lens_blur[1]).clamp_(min=SHARPEST)
    stretch = dice.uniform(batch, low=1.0, high=config.anisotropy).sqrt()
    angle = dice.uniform(batch, high=math.pi)
    return gaussian_kernels(sigma * stretch, sigma / stretch, angle, radius)


def gaussian_kernels(major: Tensor, minor: Tensor, angle: Tensor, radius: int) -> Tensor:
    """(b, 2·radius+1, 2·radius+1) Gaussians with these standard deviations along and across `angle`."""
    ramp = torch.arange(-radius, radius + 1, device=major.device, dtype=torch.float32)
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    along = ramp[None, None] * cos + ramp[None, :, None] * sin
    across = ramp[None, :, None] * cos - ramp[None, None] * sin
    kernel = torch.exp(-0.5 * ((along / major[:, None, None]) ** 2 + (across / minor[:, None, None]) ** 2))
    return kernel / kernel.sum((-2, -1), keepdim=True)


def convolve(images: Tensor, kernels: Tensor) -> Tensor:
    """Each image of a batch with its own kernel, borders replicated: (b, c, h, w), (b, k, k) → (b, c, h, w)."""
    b, c, h, w = images.shape
    k = kernels.shape[-1]
    padded = F.pad(images, [k // 2] * 4, mode="replicate").reshape(1, b * c, h + k - 1, w + k - 1)
    weights = kernels[:, None].expand(b, c, k, k).reshape(b * c, 1, k, k)
    return F.conv2d(padded, weights, groups=b * c).view(b, c, h, w)


def pixel_light(images: Tensor, kernels: Tensor) -> Tensor:
    """What an LR pixel would collect wherever it stood: lens, then the mean over 4×4.

    The view turns by a degree at most, so lens and pixel may act on the photograph before the motion does. A frame
    is then one interpolation for each of its pixels, on content that is already smooth at the HR scale.

    Args:
        images: (b, c, H, W) linear light.
        kernels: (b, k, k).

    Returns:
        (b, c, H-3, W-3); entry i is the mean over HR pixels i…i+3.
    """
    return F.avg_pool2d(convolve(images, kernels), SCALE, stride=1)


def middle_light(images: Tensor) -> Tensor:
    """Like `pixel_light`, of pixels with a quarter of the area, in the middle, behind a perfect lens."""
    return F.avg_pool2d(images, SCALE // 2, stride=1)[..., 1:-1, 1:-1]


def expose(light: Tensor, points: Tensor) -> Tensor:
    """LR frames of the light at these places.

    Args:
        light: (b, c, H-3, W-3) from `pixel_light`.
        points: (b, l, 2, h, w) centred LR pixels.

    Returns:
        (b, l, c, h, w).
    """
    b, l, _, h, w = points.shape
    height, width = light.shape[-2:]
    scale = constant((2 * SCALE / (width - 1), 2 * SCALE / (height - 1)), points.device)
    grid = points.permute(0, 1, 3, 4, 2).reshape(b, l * h, w, 2) * scale  # both grids share their centre
    frames = F.grid_sample(light, grid, "bicubic", "border", align_corners=True)
    return frames.view(b, -1, l, h, w).transpose(1, 2)
