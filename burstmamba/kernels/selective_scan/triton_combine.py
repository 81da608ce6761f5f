"""Triton sums: over paths with the skip D·x folded in, and of the shares of gradients."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def combine_paths(
    parts, x, D, out, x_strides, out_strides, pixels, tokens, channels,
    UNIT: tl.constexpr, PATHS: tl.constexpr, TOKENS_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = Σₖ parts + ΣₖD·x. parts: (b·p, k, t, d). Strides and channels count UNITs, which are read at once."""
    sequence = tl.program_id(0)
    b = (sequence // pixels).to(tl.int64)
    p = (sequence % pixels).to(tl.int64)
    t = (tl.program_id(1) * TOKENS_BLOCK + tl.arange(0, TOKENS_BLOCK))[:, None].to(tl.int64)
    d = (tl.program_id(2) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = d < channels * UNIT
    mask = (t < tokens) & inside
    x_t = tl.load(x + (b * x_strides[0] + p * x_strides[1] + t * x_strides[2]) * UNIT + d, mask=mask, other=0.0)
    skip = tl.zeros((1, BLOCK), dtype=tl.float32)
    total = tl.zeros((TOKENS_BLOCK, BLOCK), dtype=tl.float32)
    for k in tl.static_range(PATHS):
        skip += tl.load(D + k * channels * UNIT + d, mask=inside, other=0.0)
        row = (sequence.to(tl.int64) * PATHS + k) * tokens + t
        total += tl.load(parts + row * channels * UNIT + d, mask=mask, other=0.0).to(tl.float32)
    total += skip * x_t.to(tl.float32)
    tl.store(out + (b * out_strides[0] + p * out_strides[1] + t * out_strides[2]) * UNIT + d, total, mask=mask)


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
def sum_parameters(parts, dA, dD, dbias, rows, columns, N: tl.constexpr, ROWS_BLOCK: tl.constexpr, BLOCK: tl.constexpr):
    """dA (k·d, N), dD and dbias (k·d) from the shares of all programs, parts (rows, k·d·(N + 2)), in a fixed order."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, ROWS_BLOCK)[:, None]
    total = tl.zeros((ROWS_BLOCK, BLOCK), dtype=tl.float32)
    for first in range(0, rows, ROWS_BLOCK):
        mask = (row + first < rows) & (column < columns)[None, :]
        total += tl.load(parts + (row + first).to(tl.int64) * columns + column[None, :], mask=mask, other=0.0)
    total = tl.sum(total, axis=0)
    channel = column // (N + 2)
    n = column % (N + 2)
    tl.store(dA + channel * N + n, total, mask=(column < columns) & (n < N))
    tl.store(dD + channel, total, mask=(column < columns) & (n == N))
    tl.store(dbias + channel, total, mask=(column < columns) & (n == N + 1))
