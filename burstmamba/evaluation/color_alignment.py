"""BurstSR's spatial and colour alignment of a prediction to a target from another camera.

Differs from the benchmark: its flow network (PWC-Net) is replaced by OpenCV's DIS, so absolute values are comparable
among methods scored here and only roughly with published ones. See docs/evaluation.md.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.correspondence.field import sample_at

COLOR_ERROR = 20 / 255
INNER_BORDER = 5


def align_to_target(prediction: Tensor, target: Tensor, keyframe: Tensor) -> tuple[Tensor, Tensor]:
    """Warp and colour-match a prediction to its target.

    Args:
        prediction: (b, 3, h, w) linear, burst camera's colours.
        target: (b, 3, h, w) linear, the other camera's colours.
        keyframe: (b, 3, h', w') linear RGB of the LR keyframe, burst camera's colours.

    Returns:
        The matched prediction (b, 3, h, w), not clamped, and where it can be scored (b, 1, h, w) bool.
    """
    flow = torch.stack([_flow(t, p) for t, p in zip(target, prediction, strict=True)]).to(prediction)
    warped = sample_at(prediction, flow)
    # The colours are fitted on the keyframe, not on the prediction, so that a method cannot win by its own tint.
    scale = keyframe.shape[-1] / target.shape[-1]
    small_flow = F.interpolate(flow, size=keyframe.shape[-2:], mode="bilinear", align_corners=False) * scale
    source = _blur(sample_at(keyframe.float(), small_flow))
    small_target = F.interpolate(target, size=keyframe.shape[-2:], mode="bilinear", align_corners=False)
    reference = _blur(small_target)
    matrices = torch.stack([_fit(s, r) for s, r in zip(source, reference, strict=True)])  # (b, 3, 3)
    matched = torch.einsum("bij,bjhw->bihw", matrices, warped)
    error = (torch.einsum("bij,bjhw->bihw", matrices, source) - reference).norm(dim=1, keepdim=True)
    trusted = (error < COLOR_ERROR)[..., INNER_BORDER:-INNER_BORDER, INNER_BORDER:-INNER_BORDER].float()
    trusted = F.pad(trusted, (INNER_BORDER,) * 4)  # what the fit did not see is not scored
    valid = F.interpolate(trusted, size=target.shape[-2:], mode="bilinear", align_corners=False)
    return matched, valid > 0.9


def base_frame(mosaic: Tensor) -> Tensor:
    """The keyframe as BurstSR matches colours on it: (b, 1, h, w) RGGB → R, the upper G and B, (b, 3, h/2, w/2)."""
    even = mosaic[..., : mosaic.shape[-2] // 2 * 2, : mosaic.shape[-1] // 2 * 2]
    return F.pixel_unshuffle(even, 2)[:, [0, 1, 3]]


def _flow(target: Tensor, prediction: Tensor) -> Tensor:
    """Where each pixel of the target lies in the prediction: (2, h, w), x then y."""
    import cv2

    def grey(image: Tensor) -> np.ndarray:
        bright = (image / image.amax().clamp_min(1e-6)).clamp(0, 1).sqrt().mean(dim=0)
        return (bright * 255).round().byte().cpu().numpy()

    dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    flow = dis.calc(grey(target), grey(prediction), np.zeros((*target.shape[-2:], 2), np.float32))
    return torch.from_numpy(np.ascontiguousarray(flow.transpose(2, 0, 1)))


def _fit(source: Tensor, reference: Tensor) -> Tensor:
    """The 3×3 matrix taking `source` colours to `reference` colours best, two (3, h, w)."""
    inner = slice(INNER_BORDER, -INNER_BORDER)
    a = source[:, inner, inner].flatten(1).T.double()
    b = reference[:, inner, inner].flatten(1).T.double()
    # The ridge leaves a colour that the scene does not contain as it is.
    ridge = 1e-8 * len(a) * torch.eye(3, dtype=a.dtype, device=a.device)
    return torch.linalg.solve(a.T @ a + ridge, a.T @ b + ridge).T.float()


def _blur(image: Tensor) -> Tensor:
    """Gaussian 7×7 with σ 1.5 and replicated borders."""
    offsets = torch.arange(7, dtype=image.dtype, device=image.device) - 3
    window = torch.exp(-offsets.square() / (2 * 1.5**2))
    window = (window / window.sum()).expand(image.shape[1], 1, 7)
    image = F.pad(image, (3, 3, 3, 3), mode="replicate")
    image = F.conv2d(image, window[..., None], groups=image.shape[1])
    return F.conv2d(image, window[:, :, None], groups=image.shape[1])
