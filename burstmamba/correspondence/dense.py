"""Local motion on top of the global one: residual flow between the keyframe and a frame warped by its homography."""

from __future__ import annotations

from typing import Callable

import cv2
import numpy as np
import torch
from torch import Tensor

from burstmamba.correspondence.field import sample_at
from burstmamba.correspondence.homography import axes, project
from burstmamba.correspondence.luma import smooth

Flow = Callable[[Tensor, Tensor], Tensor]
"""(first (h, w), second (h, w)) → (2, h, w): a pixel u of the first is seen in the second at u + flow[u]."""


def dis_flow(first: Tensor, second: Tensor) -> Tensor:
    """OpenCV's dense inverse search at full resolution, with variational refinement; no weights needed."""
    low, high = np.quantile(first.numpy()[::2, ::2], (0.002, 0.998))
    stretch = 255 / max(float(high - low), 1e-3)
    a, b = (((p - float(low)) * stretch).clamp(0, 255).round().byte().numpy() for p in (first, second))
    search = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)  # pyright: ignore[reportAttributeAccessIssue] (stubs)
    search.setFinestScale(0 if max(first.shape) <= 1100 else 1)
    search.setPatchStride(3)
    search.setVariationalRefinementIterations(5)
    search.setVariationalRefinementAlpha(60.0)  # smoother than the preset: halves the error in noise
    return torch.from_numpy(search.calc(a, b, None)).permute(2, 0, 1).contiguous()


def compose_to_frame(matrix: np.ndarray, f: Tensor) -> Tensor:
    """δ⁰→ˡ = H(u + f[u]) − u, for f (2, h, w)."""
    x, y = axes((f.shape[-2], f.shape[-1]))
    return f + project(matrix, x + f[0], y + f[1])


def compose_to_keyframe(matrix: np.ndarray, g: Tensor) -> Tensor:
    """δˡ→⁰ = w + g[w] − v with w = H⁻¹v, for g (2, h, w) in the keyframe's view."""
    back = project(np.linalg.inv(matrix), *axes((g.shape[-2], g.shape[-1])))
    return back + sample_at(g[None], back[None])[0]


def round_trip(f: Tensor, g: Tensor) -> Tensor:
    """(h, w) pixels: how far f and then g lead away from where they began."""
    return torch.hypot(*(f + sample_at(g[None], f[None])[0]))


def feather(mask: Tensor, sigma: float) -> Tensor:
    """A mask (h, w) in [0, 1] grown a little and blended, so that maps stay continuous."""
    grown = torch.from_numpy(cv2.dilate(mask.float().numpy(), np.ones((5, 5), np.uint8)))
    return smooth(grown, sigma).clamp(0, 1)
