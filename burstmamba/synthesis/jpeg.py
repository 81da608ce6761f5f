"""JPEG compression of a whole batch on the device: colour conversion, 8×8 DCT, quantisation, and back."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.synthesis.constant import constant

# ITU-T T.81, Annex K: the example tables every encoder starts from.
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8 for _ in range(4)),
)
# JFIF: full-range YCbCr of BT.601.
RGB_TO_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
YCC_TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0))


def compress(images: Tensor, quality: Tensor, chroma_420: Tensor, phase: Tensor) -> Tensor:
    """What is left of images after JPEG.

    Args:
        images: (b, n, 3, h, w) in [0, 1].
        quality: (b,) from 1 to 100, the usual scale of the IJG library.
        chroma_420: (b,) bool: colour at half resolution.
        phase: (b, 2) whole pixels, 0…15: where the block grid starts, y then x.

    Returns:
        (b, n, 3, h, w), 8-bit values over 255.
    """
    b, n, _, h, w = images.shape
    rows, columns = (torch.arange(-(-(s + 15) // 16) * 16, device=images.device) for s in (h, w))
    y = (rows[None] - phase[:, :1]).clamp(0, h - 1)  # replicated borders put the grid at its phase
    x = (columns[None] - phase[:, 1:]).clamp(0, w - 1)
    which = torch.arange(b, device=images.device)[:, None, None]
    padded = images[which, :, :, y[:, :, None], x[:, None, :]].permute(0, 3, 4, 1, 2)  # (b, n, 3, H, W)
    ycc = _colours(padded * 255, RGB_TO_YCC).round() - _level(images.device)
    tables = quantisation_tables(quality)  # (b, 2, 8, 8)
    luma = _quantise(ycc[:, :, :1], tables[:, None, :1])
    chroma = _quantise(ycc[:, :, 1:], tables[:, None, 1:])
    small = F.avg_pool2d(ycc[:, :, 1:].flatten(0, 1), 2).unflatten(0, (b, n))
    small = _quantise(small, tables[:, None, 1:])
    smooth = F.interpolate(small.flatten(0, 1), scale_factor=2, mode="bilinear").unflatten(0, (b, n))
    chroma = torch.where(chroma_420[:, None, None, None, None], smooth, chroma)
    decoded = _colours(torch.cat((luma, chroma), 2).round() + _level(images.device), YCC_TO_RGB)
    y, x = phase[:, :1] + rows[None, :h], phase[:, 1:] + columns[None, :w]
    cut = decoded[which, :, :, y[:, :, None], x[:, None, :]].permute(0, 3, 4, 1, 2)
    return cut.round().clamp(0, 255) / 255


def quantisation_tables(quality: Tensor) -> Tensor:
    """(b,) qualities → (b, 2, 8, 8) luminance and chrominance tables, scaled as the IJG library does."""
    base = constant((LUMINANCE, CHROMINANCE), quality.device)
    percent = torch.where(quality < 50, (5000 / quality).floor(), 200 - 2 * quality)[:, None, None, None]
    return ((base * percent + 50) / 100).floor().clamp(1, 255)


def _quantise(planes: Tensor, tables: Tensor) -> Tensor:
    """Round the DCT coefficients of (b, n, c, H, W) planes to multiples of (b, 1, 1, 8, 8) tables, and go back."""
    *lead, height, width = planes.shape
    dct = _dct(planes.device)
    blocks = planes.reshape(*lead, height // 8, 8, width // 8, 8).transpose(-3, -2)  # (…, H/8, W/8, 8, 8)
    steps = tables.flatten(-2)[:, :, :, None, None]
    kept = ((blocks.flatten(-2) @ dct.mT / steps).round() * steps) @ dct
    return kept.unflatten(-1, (8, 8)).transpose(-3, -2).reshape(planes.shape)


@lru_cache(maxsize=16)
def _dct(device: torch.device) -> Tensor:
    """(64, 64) orthogonal: a block of pixels, row by row, to its coefficients; one product for both directions."""
    k = torch.arange(8, dtype=torch.float64)
    line = torch.cos(math.pi / 8 * (k[None] + 0.5) * k[:, None]) / 2
    line[0] /= math.sqrt(2)
    return torch.kron(line, line).float().to(device)


def _level(device: torch.device) -> Tensor:
    return constant((((128.0,),), ((0.0,),), ((0.0,),)), device)


def _colours(image: Tensor, matrix: tuple[tuple[float, ...], ...]) -> Tensor:
    r, g, b = image.unbind(-3)
    return torch.stack([m[0] * r + m[1] * g + m[2] * b for m in matrix], -3)
