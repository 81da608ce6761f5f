"""Launching the Triton kernels; imported when first needed."""

from __future__ import annotations

import torch
import triton
from torch import Tensor, nn

from burstmamba.kernels.normalization.rows import as_rows
from burstmamba.kernels.normalization.triton_kernels import advance_rows, channel_gates, normalize_rows

ELEMENTS = 4096
"""Numbers that a program holds."""


def normalize(tokens: Tensor, norm: nn.LayerNorm, gate: Tensor | None, width: int | None) -> Tensor:
    """See `burstmamba.kernels.normalization.normalize`."""
    x = as_rows(tokens)
    gates = x if gate is None else as_rows(gate)
    out = new_normal(tokens, width)
    grid, sizes = tiling(len(x), out.shape[-1])
    if out.numel():
        normalize_rows[grid](
            x, norm.weight, norm.bias, gates, out, x.stride(0), gates.stride(0), *x.shape, out.shape[-1], norm.eps,
            HAS_GATE=gate is not None, **sizes,
        )  # fmt: skip
    return out


def advance(tokens: Tensor, skip: Tensor, update: Tensor, gate: Tensor | None) -> Tensor:
    """See `burstmamba.kernels.normalization.advance`."""
    return _advance(tokens, skip, update, gate, None, None)[0]


def advance_and_normalize(
    tokens: Tensor, skip: Tensor, update: Tensor, norm: nn.LayerNorm, width: int | None
) -> tuple[Tensor, Tensor]:
    """See `burstmamba.kernels.normalization.advance_and_normalize`."""
    return _advance(tokens, skip, update, None, norm, width)


def _advance(
    tokens: Tensor, skip: Tensor, update: Tensor, gate: Tensor | None, norm: nn.LayerNorm | None, width: int | None
) -> tuple[Tensor, Tensor]:
    """The sum and its norm; the sum twice if there is no norm."""
    x, change = as_rows(tokens), as_rows(update)
    gates = change if gate is None else gate.contiguous()
    out = torch.empty(tokens.shape, dtype=torch.promote_types(tokens.dtype, update.dtype), device=tokens.device)
    normal = out if norm is None else new_normal(tokens, width)
    weight, bias, eps = (skip, skip, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    rows, channels = x.shape
    grid, sizes = tiling(rows, normal.shape[-1])
    if out.numel():
        advance_rows[grid](
            x, skip, change, gates, weight, bias, out, normal, x.stride(0), change.stride(0),
            rows, rows // tokens.shape[0], channels, normal.shape[-1], eps,
            HAS_GATE=gate is not None, HAS_NORM=norm is not None, **sizes,
        )  # fmt: skip
    return out, normal


def gate(mean: Tensor, reduce: nn.Conv2d, expand: nn.Conv2d) -> Tensor:
    """See `burstmamba.kernels.normalization.gate`."""
    images, channels = mean.shape
    narrow = reduce.out_channels
    out = torch.empty_like(mean, memory_format=torch.contiguous_format)
    parameters = (tensor.contiguous() for tensor in (reduce.weight, reduce.bias, expand.weight, expand.bias))
    if images:
        channel_gates[(images,)](
            mean.contiguous(), *parameters, out, channels, narrow,
            NARROW=triton.next_power_of_2(narrow), BLOCK=triton.next_power_of_2(channels), num_warps=4,
        )  # fmt: skip
    return out


def new_normal(tokens: Tensor, width: int | None) -> Tensor:
    """Room for `width` channels of each token, in the type in which the next product takes them."""
    return torch.empty(*tokens.shape[:-1], width or tokens.shape[-1], dtype=product_type(tokens), device=tokens.device)


def product_type(tokens: Tensor) -> torch.dtype:
    """In which type the next product takes tokens."""
    kind = tokens.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tokens.dtype


def tiling(rows: int, channels: int) -> tuple[tuple[int], dict[str, int]]:
    """The programs, and the kernels' sizes."""
    block = triton.next_power_of_2(channels)
    each = max(1, ELEMENTS // block)
    return (triton.cdiv(rows, each),), {"ROWS": each, "BLOCK": block, "num_warps": 4}
