"""What happens to tokens between products: layer norms, gates, residual sums, in one kernel each.

Where gradients are kept, plain PyTorch: the compiler then fuses the expressions with what is around them.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor, nn

from burstmamba.kernels.normalization import cpu_backend, reference
from burstmamba.kernels.triton_support import triton_unavailable

__all__ = ["advance", "advance_and_normalize", "gate", "normalize"]


def serving(tokens: Tensor) -> ModuleType:
    """The module that serves tokens like these; Triton is imported when first needed."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return reference
    if triton_unavailable(tokens) is not None:
        return cpu_backend if cpu_backend.serves(tokens) else reference
    from burstmamba.kernels.normalization import triton_backend

    return triton_backend


def normalize(tokens: Tensor, norm: nn.LayerNorm, gate: Tensor | None = None, *, width: int | None = None) -> Tensor:
    """norm(tokens), multiplied by silu(gate) if there is one.

    Args:
        tokens: (..., c).
        norm: over c.
        gate: like `tokens`.
        width: channels of the result, zeros after the first c; c if None.

    Returns:
        (..., width); a fused result already has the type in which autocast would take it to the next product.
    """
    return serving(tokens).normalize(tokens, norm, gate, width)


def advance(tokens: Tensor, skip: Tensor, update: Tensor, gate: Tensor | None = None) -> Tensor:
    """tokens · skip + update · gate.

    Args:
        tokens: (b, h, w, c).
        skip: (c,).
        update: (b, h, w, c).
        gate: (b, c), or None for 1.
    """
    return serving(tokens).advance(tokens, skip, update, gate)


def advance_and_normalize(
    tokens: Tensor, skip: Tensor, update: Tensor, norm: nn.LayerNorm, *, width: int | None = None
) -> tuple[Tensor, Tensor]:
    """tokens · skip + update, and `normalize` of it."""
    return serving(tokens).advance_and_normalize(tokens, skip, update, norm, width)


def gate(mean: Tensor, reduce: nn.Conv2d, expand: nn.Conv2d) -> Tensor:
    """Channel attention's gates: sigmoid(expand · relu(reduce · mean)).

    Args:
        mean: (b, c) of each channel, float32.
        reduce: 1×1, to few channels.
        expand: 1×1, back to c.

    Returns:
        (b, c), float32.
    """
    return serving(mean).gate(mean, reduce, expand)
