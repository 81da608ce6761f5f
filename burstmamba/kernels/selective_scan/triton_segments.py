"""What the Triton walks share: which tokens a segment has, and loading them."""

from __future__ import annotations

import triton
import triton.language as tl

from burstmamba.kernels.selective_scan.triton_steps import (
    load_channels,
    load_decay,
    neighbour,
)

# Loads and stores here are one number a lane: that a size divides by 16 or is 1 would only mean another compilation.
SIZES = (
    "x_strides", "delta_strides", "B_strides", "C_strides", "weight_strides", "dy_strides", "ddelta_strides",
    "sequences", "pixels", "paths", "path_codes", "chunks", "chunk_length", "chunk_segments", "rows", "columns",
    "tokens", "channels", "segments",
)  # fmt: skip
POINTERS = (
    "x", "delta", "A", "B", "C", "bias", "weight", "y", "saved", "starts", "ends", "durations",
    "dy", "dx", "ddelta", "dBC", "shares",
)  # fmt: skip


@triton.jit
def segment_places(token, step, stride, tokens, BACK: tl.constexpr, UNROLL: tl.constexpr, WIDE: tl.constexpr):
    """Tokens of the segment that begins (BACK: ends) with `token` at `step`, in the path's order; then the next one."""
    places = ()
    for u in tl.static_range(UNROLL):
        at = token.to(tl.int64) if WIDE else token
        if BACK:
            places = (at,) + places
            token = neighbour(token, -stride, (step - u > 0) & (step - u < tokens), tokens)
        else:
            places = places + (at,)
            token = neighbour(token, stride, step + u + 1 < tokens, tokens)
    return places, token


@triton.jit
def load_path(A, bias, path, d, channels, state, N: tl.constexpr, NP: tl.constexpr, GROUPS: tl.constexpr):
    """A times log₂e (`load_decay`) and the bias of Δ, of a path's channels d."""
    decay = load_decay(A + path * channels * N, d, channels, state, N, NP, GROUPS)
    return decay, load_channels(bias + path * channels, d, channels, GROUPS)


@triton.jit
def of_sequence(pointer, strides, b, p):
    """Where a sequence begins."""
    return pointer + b * strides[0] + p * strides[1]


@triton.jit
def load_segment(pointer, token_stride, places, d, channels, GROUPS: tl.constexpr, UNROLL: tl.constexpr):
    """Channels d (`load_channels`) of the tokens of a segment, token after token."""
    values = ()
    for u in tl.static_range(UNROLL):
        values = values + load_channels(pointer + places[u] * token_stride, d, channels, GROUPS)
    return values


@triton.jit
def load_weights(weight, token_stride, places, UNROLL: tl.constexpr, HAS_WEIGHT: tl.constexpr):
    """The weights of the tokens of a segment; anything where there are none."""
    values = places
    if HAS_WEIGHT:
        values = ()
        for u in tl.static_range(UNROLL):
            values = values + (tl.load(weight + places[u] * token_stride),)
    return values
