"""Layer norms and residual sums in Triton: a program takes some tokens with all their channels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normal_of(value, inside, weight, bias, c, channels, eps):
    """Each row of `value` normalised over its channels, scaled and shifted."""
    known = c < channels
    value -= (tl.sum(value, axis=1) / channels)[:, None]
    value = tl.where(inside, value, 0.0)
    value *= tl.rsqrt(tl.sum(value * value, axis=1) / channels + eps)[:, None]
    weight = tl.load(weight + c, mask=known, other=0.0).to(tl.float32)
    bias = tl.load(bias + c, mask=known, other=0.0).to(tl.float32)
    return value * weight[None, :] + bias[None, :]


@triton.jit
def normalize_rows(
    tokens, weight, bias, gate, out, tokens_stride, gate_stride, rows, channels, width, eps,
    HAS_GATE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = norm(tokens) · silu(gate), zeros from `channels` to `width`; strides are those of a row."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    c = tl.arange(0, BLOCK)
    inside = (row < rows) & (c < channels)[None, :]
    value = tl.load(tokens + row * tokens_stride + c[None, :], mask=inside, other=0.0).to(tl.float32)
    value = normal_of(value, inside, weight, bias, c, channels, eps)
    if HAS_GATE:
        factor = tl.load(gate + row * gate_stride + c[None, :], mask=inside, other=0.0).to(tl.float32)
        value *= factor / (1 + tl.exp(-factor))
    tl.store(out + row * width + c[None, :], value, mask=(row < rows) & (c < width)[None, :])


@triton.jit
def advance_rows(
    tokens, skip, update, gate, weight, bias, out, normal, tokens_stride, update_stride, rows, rows_each, channels,
    width, eps,
    HAS_GATE: tl.constexpr, HAS_NORM: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = tokens · skip + update · gate, normal = norm(out); gates are those of the image, `rows_each` rows each."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    c = tl.arange(0, BLOCK)
    inside = (row < rows) & (c < channels)[None, :]
    at = row * channels + c[None, :]
    change = tl.load(update + row * update_stride + c[None, :], mask=inside, other=0.0).to(tl.float32)
    if HAS_GATE:
        gates = gate + row // rows_each * channels + c[None, :]
        change *= tl.load(gates, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(skip + c, mask=c < channels, other=0.0).to(tl.float32)
    value = tl.load(tokens + row * tokens_stride + c[None, :], mask=inside, other=0.0).to(tl.float32)
    value = value * factor[None, :] + change
    tl.store(out + at, value, mask=inside)
    if HAS_NORM:
        value = value.to(out.dtype.element_ty).to(tl.float32)
        value = normal_of(value, inside, weight, bias, c, channels, eps)
        tl.store(normal + row * width + c[None, :], value, mask=(row < rows) & (c < width)[None, :])


@triton.jit
def channel_gates(
    mean, reduce_weight, reduce_bias, expand_weight, expand_bias, out, channels, narrow,
    NARROW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = sigmoid(expand · relu(reduce · mean)) for the channels of one image."""
    image = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    n = tl.arange(0, NARROW)
    known = c < channels
    few = n < narrow
    both = few[:, None] & known[None, :]
    value = tl.load(mean + image * channels + c, mask=known, other=0.0).to(tl.float32)
    weight = tl.load(reduce_weight + n[:, None] * channels + c[None, :], mask=both, other=0.0).to(tl.float32)
    hidden = tl.sum(weight * value[None, :], axis=1) + tl.load(reduce_bias + n, mask=few, other=0.0).to(tl.float32)
    hidden = tl.maximum(hidden, 0.0)
    weight = tl.load(expand_weight + c[None, :] * narrow + n[:, None], mask=both, other=0.0).to(tl.float32)
    gate = tl.sum(weight * hidden[:, None], axis=0) + tl.load(expand_bias + c, mask=known, other=0.0).to(tl.float32)
    tl.store(out + image * channels + c, 1 / (1 + tl.exp(-gate)), mask=known)
