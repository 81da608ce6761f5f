"""Bilinear sampling by PyTorch's `grid_sample`: the definition that the kernels are tested against."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def sample_bilinear_reference(features: Tensor, displacement: Tensor) -> Tensor:
    """See `burstmamba.kernels.sampling.sample_bilinear`; float64 features are sampled in float64."""
    high = torch.float64 if features.dtype == torch.float64 else torch.float32
    displacement = displacement.detach().to(high)
    h, w = displacement.shape[-2:]
    y = torch.arange(h, dtype=high, device=features.device)[:, None]
    x = torch.arange(w, dtype=high, device=features.device)
    # grid_sample wants [-1, 1] from the first pixel's centre to the last one's.
    x = 2 * (x + displacement[:, 0]) / max(features.shape[3] - 1, 1) - 1
    y = 2 * (y + displacement[:, 1]) / max(features.shape[2] - 1, 1) - 1
    grid = torch.stack((x, y), dim=-1)
    sampled = F.grid_sample(features.to(high), grid, "bilinear", "border", align_corners=True)
    return sampled.to(features.dtype)
