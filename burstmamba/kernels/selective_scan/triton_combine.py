"""Triton sums: over paths with the skip D·x folded in, and of the shares of the other gradients."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def combine_paths(
    parts, x, D, out, other, products,
    x_strides, out_strides, other_strides,
    pixels, tokens, channels,
    PATHS: tl.constexpr, TOKENS_BLOCK: tl.constexpr, BLOCK: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """out = Σₖ parts + ΣₖD·x; with PRODUCT also this program's share of Σₜ other·x, the gradient of each Dₖ.

    parts: (b·p, k, t, d). products: (b·p, token blocks, d).
    """
    sequence = tl.program_id(0)
    part = tl.program_id(1)
    b = (sequence // pixels).to(tl.int64)
    p = (sequence % pixels).to(tl.int64)
    t = (part * TOKENS_BLOCK + tl.arange(0, TOKENS_BLOCK))[:, None].to(tl.int64)
    d = (tl.program_id(2) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = (t < tokens) & (d < channels)
    x_t = tl.load(x + b * x_strides[0] + p * x_strides[1] + t * x_strides[2] + d, mask=mask, other=0.0)
    x_t = x_t.to(tl.float32)
    skip = tl.zeros((1, BLOCK), dtype=tl.float32)
    total = tl.zeros((TOKENS_BLOCK, BLOCK), dtype=tl.float32)
    for k in tl.static_range(PATHS):
        skip += tl.load(D + k * channels + d, mask=d < channels, other=0.0)
        row = (sequence.to(tl.int64) * PATHS + k) * tokens
        total += tl.load(parts + (row + t) * channels + d, mask=mask, other=0.0).to(tl.float32)
    total += skip * x_t
    tl.store(out + b * out_strides[0] + p * out_strides[1] + t * out_strides[2] + d, total, mask=mask)
    if PRODUCT:
        o_t = tl.load(
            other + b * other_strides[0] + p * other_strides[1] + t * other_strides[2] + d, mask=mask, other=0.0
        )
        product = tl.sum(o_t.to(tl.float32) * x_t, axis=0)[None, :]
        place = (sequence.to(tl.int64) * tl.num_programs(1) + part) * channels
        tl.store(products + place + d, product, mask=d < channels)


@triton.jit
def sum_shares(dBC, dB, dC, rows, blocks, N: tl.constexpr, NP: tl.constexpr, ROWS_BLOCK: tl.constexpr):
    """dB and dC (rows, N) from what each block of channels contributes, dBC (blocks, rows, 2·NP), in a fixed order."""
    row = (tl.program_id(0) * ROWS_BLOCK + tl.arange(0, ROWS_BLOCK))[:, None].to(tl.int64)
    number = tl.arange(0, 2 * NP)[None, :]
    total = tl.zeros((ROWS_BLOCK, 2 * NP), dtype=tl.float32)
    for block in range(0, blocks):
        total += tl.load(dBC + (row + block * rows) * (2 * NP) + number, mask=row < rows, other=0.0)
    tl.store(dB + row * N + number, total, mask=(row < rows) & (number < N))
    tl.store(dC + row * N + number - NP, total, mask=(row < rows) & (number >= NP) & (number < NP + N))


@triton.jit
def sum_parameters(parts, dA, dbias, rows, columns, N: tl.constexpr, ROWS_BLOCK: tl.constexpr, BLOCK: tl.constexpr):
    """dA (k·d, N) and dbias (k·d) from the shares of all programs, parts (rows, k·d·(N + 1)), in a fixed order."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, ROWS_BLOCK)[:, None]
    total = tl.zeros((ROWS_BLOCK, BLOCK), dtype=tl.float32)
    for first in range(0, rows, ROWS_BLOCK):
        mask = (row + first < rows) & (column < columns)[None, :]
        total += tl.load(parts + (row + first).to(tl.int64) * columns + column[None, :], mask=mask, other=0.0)
    total = tl.sum(total, axis=0)
    channel = column // (N + 1)
    n = column % (N + 1)
    tl.store(dA + channel * N + n, total, mask=(column < columns) & (n < N))
    tl.store(dbias + channel, total, mask=(column < columns) & (n == N))
