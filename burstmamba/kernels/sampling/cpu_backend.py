"""Bilinear sampling in C++, for results without gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.kernels.cpu.library import SampleProblem, absent, call


def unavailable(features: Tensor) -> str | None:
    """Why the C++ sampling cannot take features like these; None when it can."""
    if features.device.type != "cpu" or features.dtype != torch.float32:
        return "it takes float32 on a CPU"
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return "it has no gradients and is not compiled; use it under torch.no_grad()"
    return absent()


def sample(features: Tensor, displacement: Tensor) -> Tensor:
    """See `burstmamba.kernels.sampling.sample_bilinear`."""
    tokens, place = features.permute(0, 2, 3, 1), displacement.float()
    if tokens.stride(-1) != 1:
        tokens = tokens.contiguous()
    images, h, w, c = tokens.shape
    rows, columns = place.shape[-2:]
    out = tokens.new_empty(images, rows, columns, c)
    problem = SampleProblem(images, c, h, w, rows, columns)
    problem.point("features", tokens, tokens.stride()[:3])
    problem.point("place", place, place.stride())
    problem.point("out", out)
    if out.numel():
        call("sample_bilinear", problem)
    return out.permute(0, 3, 1, 2)
