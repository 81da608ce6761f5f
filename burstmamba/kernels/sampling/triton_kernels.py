"""Bilinear gather and its transpose in Triton: a program takes some pixels and all their channels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def corners(displacement, strides, pixel, total, height, width, out_width, out_pixels):
    """Image index, the four corners' pixels, and the fractions to the right and down, of every output pixel."""
    live = pixel < total
    image = (pixel // out_pixels).to(tl.int64)
    place = pixel % out_pixels
    row = place // out_width
    column = place % out_width
    at = displacement + image * strides[0] + row * strides[2] + column * strides[3]
    x = column.to(tl.float32) + tl.load(at, mask=live, other=0.0).to(tl.float32)
    y = row.to(tl.float32) + tl.load(at + strides[1], mask=live, other=0.0).to(tl.float32)
    x = tl.minimum(tl.maximum(x, 0.0), width - 1.0)
    y = tl.minimum(tl.maximum(y, 0.0), height - 1.0)
    left = x.to(tl.int32)
    top = y.to(tl.int32)
    right = tl.minimum(left + 1, width - 1)
    bottom = tl.minimum(top + 1, height - 1)
    return live, image, row, column, left, right, top, bottom, x - left, y - top


@triton.jit
def gather_bilinear(
    features, displacement, out, feature_strides, displacement_strides, out_strides,
    total, channels, height, width, out_width, out_pixels,
    PIXELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[u] = Σ corner weights · features[corner]. Strides are (n, row, column); channels lie at stride 1."""
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    live, image, row, column, left, right, top, bottom, fx, fy = corners(
        displacement, displacement_strides, pixel, total, height, width, out_width, out_pixels
    )
    c = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = live[:, None] & (c < channels)
    origin = features + (image * feature_strides[0])[:, None] + c
    upper = (top * feature_strides[1])[:, None]
    lower = (bottom * feature_strides[1])[:, None]
    left = (left * feature_strides[2])[:, None]
    right = (right * feature_strides[2])[:, None]
    fx = fx[:, None]
    fy = fy[:, None]
    total_up = tl.load(origin + upper + left, mask=mask, other=0.0).to(tl.float32) * (1 - fx)
    total_up += tl.load(origin + upper + right, mask=mask, other=0.0).to(tl.float32) * fx
    total_down = tl.load(origin + lower + left, mask=mask, other=0.0).to(tl.float32) * (1 - fx)
    total_down += tl.load(origin + lower + right, mask=mask, other=0.0).to(tl.float32) * fx
    place = image * out_strides[0] + row * out_strides[1] + column * out_strides[2]
    tl.store(out + place[:, None] + c, total_up * (1 - fy) + total_down * fy, mask=mask)


@triton.jit
def scatter_bilinear(
    gradient, displacement, out, gradient_strides, displacement_strides, out_strides,
    total, channels, height, width, out_width, out_pixels,
    PIXELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[corner] += corner weight · gradient[u]: the transpose of `gather_bilinear`, into a float32 buffer."""
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    live, image, row, column, left, right, top, bottom, fx, fy = corners(
        displacement, displacement_strides, pixel, total, height, width, out_width, out_pixels
    )
    c = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = live[:, None] & (c < channels)
    place = image * gradient_strides[0] + row * gradient_strides[1] + column * gradient_strides[2]
    value = tl.load(gradient + place[:, None] + c, mask=mask, other=0.0).to(tl.float32)
    origin = out + (image * out_strides[0])[:, None] + c
    upper = (top * out_strides[1])[:, None]
    lower = (bottom * out_strides[1])[:, None]
    left = (left * out_strides[2])[:, None]
    right = (right * out_strides[2])[:, None]
    fx = fx[:, None]
    fy = fy[:, None]
    # A corner without weight (whole-pixel shifts, clamped borders) costs no atomic.
    tl.atomic_add(origin + upper + left, value * (1 - fx) * (1 - fy), mask=mask, sem="relaxed")
    tl.atomic_add(origin + upper + right, value * fx * (1 - fy), mask=mask & (fx > 0), sem="relaxed")
    tl.atomic_add(origin + lower + left, value * (1 - fx) * fy, mask=mask & (fy > 0), sem="relaxed")
    tl.atomic_add(origin + lower + right, value * fx * fy, mask=mask & (fx > 0) & (fy > 0), sem="relaxed")
