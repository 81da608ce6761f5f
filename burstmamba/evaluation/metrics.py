"""PSNR and SSIM of images in [0, 1], one value an image, on the CPU or a GPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.errors import InputError

SSIM_WINDOW = 11
SSIM_SIGMA = 1.5


def psnr(prediction: Tensor, target: Tensor, *, channel_mean: bool = False) -> Tensor:
    """Peak signal-to-noise ratio for a peak of 1.

    Args:
        prediction: (b, c, h, w).
        target: (b, c, h, w).
        channel_mean: average one PSNR a channel (FBANet's convention) instead of pooling the squared error.

    Returns:
        (b,) float64 in dB; infinite for equal images.
    """
    check_pair(prediction, target)
    squared = (prediction.double() - target.double()).square()
    if channel_mean:
        return (-10 * squared.mean(dim=(2, 3)).log10()).mean(dim=1)
    return -10 * squared.mean(dim=(1, 2, 3)).log10()


def ssim(prediction: Tensor, target: Tensor) -> Tensor:
    """Structural similarity: Gaussian window 11×11 with σ 1.5, valid positions only, data range 1.

    Args:
        prediction: (b, c, h, w), at least 11×11 pixels.
        target: (b, c, h, w).

    Returns:
        (b,) float64, the mean over positions and channels.
    """
    return ssim_map(prediction, target).mean(dim=(1, 2, 3))


def ssim_map(prediction: Tensor, target: Tensor) -> Tensor:
    """SSIM at every valid window position: two (b, c, h, w) → (b, c, h - 10, w - 10) float64."""
    check_pair(prediction, target)
    if min(prediction.shape[-2:]) < SSIM_WINDOW:
        raise InputError(f"SSIM needs images of at least 11×11 pixels, got {size_text(prediction)}.")
    x, y = prediction.double(), target.double()
    # One pass over five stacked planes: means, second moments and the mixed moment.
    mean_x, mean_y, xx, yy, xy = _window_mean(torch.stack((x, y, x * x, y * y, x * y)))
    var_x, var_y, cov = xx - mean_x * mean_x, yy - mean_y * mean_y, xy - mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    numerator = (2 * mean_x * mean_y + c1) * (2 * cov + c2)
    denominator = (mean_x * mean_x + mean_y * mean_y + c1) * (var_x + var_y + c2)
    return numerator / denominator


def check_pair(prediction: Tensor, target: Tensor) -> None:
    """Raise InputError unless both are (b, c, h, w) of one shape."""
    if prediction.ndim != 4 or prediction.shape != target.shape:
        raise InputError(
            "a metric compares two (b, c, h, w) tensors of one shape, "
            f"got {tuple(prediction.shape)} and {tuple(target.shape)}."
        )


def size_text(image: Tensor) -> str:
    """`width×height` of an image (..., h, w), for messages."""
    return f"{image.shape[-1]}×{image.shape[-2]}"


def _window_mean(planes: Tensor) -> Tensor:
    """Gaussian-weighted mean around every valid position of (..., h, w)."""
    offsets = torch.arange(SSIM_WINDOW, dtype=planes.dtype, device=planes.device) - SSIM_WINDOW // 2
    window = torch.exp(-offsets.square() / (2 * SSIM_SIGMA**2))
    window = window / window.sum()
    flat = planes.reshape(-1, 1, *planes.shape[-2:])
    flat = F.conv2d(F.conv2d(flat, window.view(1, 1, -1, 1)), window.view(1, 1, 1, -1))
    return flat.view(*planes.shape[:-2], *flat.shape[-2:])
