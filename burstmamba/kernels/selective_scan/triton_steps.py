"""Pieces shared by the Triton scan kernels: where a path goes, Δ, and the walk along a path."""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def softplus(v):
    """log(1 + eᵛ), by its series where eᵛ is small: 1 + eᵛ would lose the digits of a small Δ there."""
    e = tl.exp2(tl.minimum(v, 20.0) * LOG2E)
    small = e * (1.0 - e * (0.5 - e * (1.0 / 3.0)))
    return tl.where(v > 20.0, v, tl.where(e < 0.02, small, tl.log2(1.0 + e) * LN2))


@triton.jit
def sigmoid(v):
    """The derivative of softplus."""
    return 1.0 / (1.0 + tl.exp2(-v * LOG2E))


@triton.jit
def grid_index(step, code, rows, columns, tokens):
    """The token that a path visits at `step`; code bit 0: down the columns, bit 1: backwards."""
    step = tl.minimum(step, tokens - 1)
    step = tl.where((code & 2) != 0, tokens - 1 - step, step)
    major = tl.where((code & 1) != 0, rows, 1)
    return (step % major) * columns + step // major


@triton.jit
def grid_stride(code, columns):
    """How far apart two consecutive tokens of a path lie in the grid, within a row or column."""
    return tl.where((code & 1) != 0, columns, 1) * tl.where((code & 2) != 0, -1, 1)


@triton.jit
def next_index(token, step, stride, tokens):
    """The token after the one visited at `step`; the last token is its own successor."""
    after = token + stride
    after = tl.where(after >= tokens, after - (tokens - 1), after)
    after = tl.where(after < 0, after + (tokens - 1), after)
    return tl.where(step + 1 < tokens, after, token)


@triton.jit
def load_step(delta, bias, weight, mask, HAS_WEIGHT: tl.constexpr):
    """(Δ, dΔ/ddelta) of one token; pointers to its delta and its weight."""
    v = tl.load(delta, mask=mask, other=0.0).to(tl.float32) + bias
    step = softplus(v)
    slope = sigmoid(v)
    if HAS_WEIGHT:
        confidence = tl.load(weight).to(tl.float32)
        step = step * confidence
        slope = slope * confidence
    return step, slope


@triton.jit
def advance(state, step, driven, A, B):
    """state ← exp(ΔA)·state + ΔB·x for A already times log₂e and driven = Δ·x."""
    return tl.exp2(step[:, None] * A) * state + driven[:, None] * B[None, :]


@triton.jit
def retreat(state, gradient, step, driven, dy, A, B, C):
    """One token of the backward walk.

    Args:
        state, gradient: (d, n) the state after this token, and the gradient that later tokens send to it.
        step, driven, dy: (d,) Δ, Δ·x and the output's gradient.
        A: (d, n) times log₂e.

    Returns:
        the gradient sent to the previous state, d(ΔA) (d, n), d(Δx) (d,), dB (n,), dC (n,).
    """
    gradient += dy[:, None] * C[None, :]
    dB = tl.sum(gradient * driven[:, None], axis=0)
    dC = tl.sum(state * dy[:, None], axis=0)
    input_part = driven[:, None] * B[None, :]
    d_driven = tl.sum(gradient * B[None, :], axis=1)
    d_exponent = gradient * (state - input_part)
    return gradient * tl.exp2(step[:, None] * A), d_exponent, d_driven, dB, dC
