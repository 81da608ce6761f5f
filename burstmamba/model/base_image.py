"""Fixed operations on the input image: colour planes of a mosaic, demosaicking, enlargement."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.errors import InputError


def upsample_bicubic(image: Tensor, scale: int, centres: str = "half-pixel") -> Tensor:
    """Enlarge (b, c, h, w) by `scale`, with LR pixel i at the centre of its block or on HR pixel scale·i."""
    if centres == "half-pixel":
        return F.interpolate(image, scale_factor=scale, mode="bicubic", align_corners=False)
    h, w = image.shape[-2:]
    x = torch.arange(scale * w, device=image.device, dtype=torch.float32) / scale
    y = torch.arange(scale * h, device=image.device, dtype=torch.float32) / scale
    grid_y, grid_x = torch.meshgrid(2 * y / max(h - 1, 1) - 1, 2 * x / max(w - 1, 1) - 1, indexing="ij")
    grid = torch.stack((grid_x, grid_y), dim=-1).expand(image.shape[0], -1, -1, -1)
    return F.grid_sample(image.float(), grid, mode="bicubic", padding_mode="border", align_corners=True).to(image.dtype)


def color_masks(mosaic: Tensor) -> Tensor:
    """(1, 3, h, w): 1 where an RGGB mosaic (…, h, w) holds red, green or blue."""
    h, w = mosaic.shape[-2:]
    odd_row = (torch.arange(h, device=mosaic.device) % 2 == 1)[:, None]
    odd_column = (torch.arange(w, device=mosaic.device) % 2 == 1)[None, :]
    return torch.stack((~odd_row & ~odd_column, odd_row ^ odd_column, odd_row & odd_column)).to(mosaic.dtype)[None]


def demosaic_bilinear(mosaic: Tensor) -> Tensor:
    """Fill in the missing colours of an RGGB mosaic (b, 1, h, w) by the mean of their neighbours: (b, 3, h, w)."""
    if mosaic.shape[1] != 1:
        raise InputError(f"a mosaic has one channel, got {mosaic.shape[1]}.")
    masks = color_masks(mosaic)
    tent = 2 - torch.arange(-1, 2, device=mosaic.device, dtype=mosaic.dtype).abs()  # 1 2 1
    kernel = (tent[:, None] * tent).expand(3, 1, 3, 3)
    total = F.conv2d(mosaic * masks, kernel, padding=1, groups=3)
    return total / F.conv2d(masks, kernel, padding=1, groups=3).clamp(min=1e-6)


def base_image(keyframe: Tensor, scale: int, centres: str) -> Tensor:
    """The keyframe, demosaicked if need be and enlarged: (b, 1 or 3, h, w) → (b, 3, s·h, s·w)."""
    rgb = demosaic_bilinear(keyframe) if keyframe.shape[1] == 1 else keyframe
    return upsample_bicubic(rgb, scale, centres)
