"""The definitions in plain PyTorch, which the kernels are tested against, and which training compiles."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def normalize(tokens: Tensor, norm: nn.LayerNorm, gate: Tensor | None, width: int | None) -> Tensor:
    """See `burstmamba.kernels.normalization.normalize`."""
    normal = norm(tokens) if gate is None else norm(tokens) * F.silu(gate)
    return normal if width in (None, tokens.shape[-1]) else F.pad(normal, (0, width - tokens.shape[-1]))


def advance(tokens: Tensor, skip: Tensor, update: Tensor, gate: Tensor | None) -> Tensor:
    """See `burstmamba.kernels.normalization.advance`."""
    if gate is not None:
        update = update * gate[:, None, None].to(update.dtype)
    return tokens * skip + update


def advance_and_normalize(
    tokens: Tensor, skip: Tensor, update: Tensor, norm: nn.LayerNorm, width: int | None
) -> tuple[Tensor, Tensor]:
    """See `burstmamba.kernels.normalization.advance_and_normalize`."""
    tokens = advance(tokens, skip, update, None)
    return tokens, normalize(tokens, norm, None, width)


def gate(mean: Tensor, reduce: nn.Conv2d, expand: nn.Conv2d) -> Tensor:
    """See `burstmamba.kernels.normalization.gate`."""
    return torch.sigmoid(weighted_sums(expand, F.relu(weighted_sums(reduce, mean))))


def weighted_sums(convolution: nn.Conv2d, values: Tensor) -> Tensor:
    """A 1×1 convolution of a single pixel, (b, c) → (b, outputs): sums, which a compiler fuses with what is around."""
    assert convolution.bias is not None
    return (values[:, None] * convolution.weight[:, :, 0, 0]).sum(dim=-1) + convolution.bias
