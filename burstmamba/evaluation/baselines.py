"""What a network has to beat without learning anything: interpolation of the keyframe."""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.errors import InputError
from burstmamba.model.base_image import demosaic_bilinear


def bicubic(keyframe: Tensor, scale: int = 4, centres: str = "half-pixel") -> Tensor:
    """The keyframe enlarged with Keys' cubic (a = -1/2), demosaicked bilinearly first if it is a mosaic.

    Args:
        keyframe: (b, 3, h, w), or (b, 1, h, w) RGGB.
        scale: output pixels for each input pixel.
        centres: `half-pixel`, or `corner` where LR pixel i lies on HR pixel scale·i (SyntheticBurst).

    Returns:
        (b, 3, scale·h, scale·w), not clamped.
    """
    image = demosaic_bilinear(keyframe) if keyframe.shape[1] == 1 else keyframe
    rows = cubic_weights(image.shape[-2], scale, centres).to(image)
    columns = cubic_weights(image.shape[-1], scale, centres).to(image)
    return rows @ image @ columns.T


def nearest(keyframe: Tensor, scale: int = 4, centres: str = "half-pixel") -> Tensor:
    """The keyframe enlarged by repeating pixels, `centres` as above: (b, c, h, w) → (b, 3, scale·h, scale·w)."""
    image = demosaic_bilinear(keyframe) if keyframe.shape[1] == 1 else keyframe
    for dim in (-2, -1):
        size = image.shape[dim]
        index = (positions(size, scale, centres) + 0.5).floor().clamp(0, size - 1)
        image = image.index_select(dim, index.long().to(image.device))
    return image


def positions(size: int, scale: int, centres: str) -> Tensor:
    """(scale·size,): where each output pixel lies among the input pixels."""
    if centres not in ("half-pixel", "corner"):
        raise InputError(f"centres must be half-pixel or corner, got {centres!r}.")
    output = torch.arange(scale * size, dtype=torch.float64)
    return (output + 0.5) / scale - 0.5 if centres == "half-pixel" else output / scale


def cubic_weights(size: int, scale: int, centres: str) -> Tensor:
    """(scale·size, size): each output pixel's weights of the input pixels, borders replicated."""
    position = positions(size, scale, centres)
    first = position.floor()
    weights = torch.zeros(scale * size, size, dtype=torch.float64)
    for tap in (-1, 0, 1, 2):
        t = (position - first - tap).abs()
        near = (1.5 * t - 2.5) * t * t + 1
        far = ((-0.5 * t + 2.5) * t - 4) * t + 2
        value = torch.where(t <= 1, near, far)
        index = (first + tap).clamp(0, size - 1).long()
        weights.scatter_add_(1, index[:, None], value[:, None])
    return weights
