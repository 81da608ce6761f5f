"""One level of the dual-tree complex wavelet transform (near_sym_b), whose subbands condition ψS6 (Sec. 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

ORIENTATIONS = (15, 165, 45, 135, 75, 105)  # degrees, in the order of the output channels
MATRIX_UP_TO = 128
"""Longer axes are filtered part by part on a CPU: most of one matrix for all of them would be zeros."""
PART = 64
"""Samples of such a part."""

_LOW_HALF = (-0.0017578125, 0.0, 0.022265625, -0.046875, -0.0482421875, 0.296875, 0.55546875)
_HIGH_HALF = (
    -7.062639508928571e-05, 0.0, 0.0013419015066964285, -0.0018833705357142855, -0.007156808035714285,
    0.023856026785714284, 0.05564313616071428, -0.05168805803571428, -0.29975760323660716, 0.5594308035714286,
)  # fmt: skip
LOW = _LOW_HALF + _LOW_HALF[-2::-1]  # h0, 13 taps
HIGH = _HIGH_HALF + _HIGH_HALF[-2::-1]  # h1, 19 taps


def dtcwt(tokens: Tensor) -> Tensor:
    """The six complex high-pass subbands of each channel at half resolution.

    Args:
        tokens: (n, h, w, c). An odd size is first made even by repeating the last row or column.

    Returns:
        (n, ⌈h/2⌉, ⌈w/2⌉, 12·c): for each of `ORIENTATIONS` the real then the imaginary part of all c channels.
        Half-resolution sample k lies at full-resolution 2k + ½.
    """
    across = _split_bands(_made_even(tokens), 2)  # (n, h, 2, w, c): low and high of every row
    low, high = _split_bands(across.flatten(2, 3), 1).unflatten(3, across.shape[2:4]).unbind(1)  # of every column
    bands = (high[:, :, 0], high[:, :, 1], low[:, :, 1])  # lh, hh, hl
    return torch.cat([part for band in bands for part in _quads_to_complex(band)], dim=-1)


def project_subbands(tokens: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`F.linear(dtcwt(tokens), weight, bias)` in matrix products alone, which are done far better than slices.

    The filters' rows are sorted into even and odd ones, and the sums that make complex numbers of quads, being linear,
    are applied to the weight instead.
    """
    tokens = _made_even(tokens)
    n, h, w, c = tokens.shape
    across = _filtered(_quad_matrix(w, tokens.dtype, tokens.device), tokens)  # band and parity of every column
    down = _filtered(_quad_matrix(h, tokens.dtype, tokens.device), across.flatten(2))
    down = down.view(n, h // 2, 4, w // 2, 4, c)
    quads = down.transpose(2, 3).reshape(n, h // 2, w // 2, 16 * c)
    return F.linear(quads, quad_weight(weight).to(quads.dtype), bias)


def quad_weight(weight: Tensor) -> Tensor:
    """A weight (p, 12·c) for `dtcwt`'s channels → (p, 16·c) for (band, parity) of rows, then of columns, then c."""
    parts = weight.unflatten(1, (3, 4, -1)) * 0.5**0.5  # (p, band, part, c)
    first, second, third, fourth = parts.unbind(2)
    lh, hh, hl = torch.stack((first + third, second + fourth, second - fourth, third - first), dim=2).unbind(1)
    low, high = (torch.zeros_like(lh), hl), (lh, hh)  # bands by rows; in each its quad (p, 4, c): a b / c d
    rows = [torch.stack(row, dim=2).unflatten(1, (2, 2)) for row in (low, high)]  # (p, row, column, column band, c)
    return torch.stack(rows, dim=1).transpose(3, 4).flatten(1)


def resize_twice(tokens: Tensor) -> Tensor:
    """(n, h, w, c) → (n, 2·h, 2·w, c), bilinear with half-pixel centres; on a GPU as products with a small matrix."""
    if tokens.is_cuda and max(tokens.shape[1:3]) <= MATRIX_UP_TO:
        return resize_by_matrix(tokens)
    image = tokens.permute(0, 3, 1, 2)
    return F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False).permute(0, 2, 3, 1)


def resize_by_matrix(tokens: Tensor) -> Tensor:
    """The same as `resize_twice`; its gradient needs no scattered additions."""
    n, h, w, c = tokens.shape
    across = torch.matmul(_resize_matrix(w, tokens.dtype, tokens.device), tokens)
    return torch.matmul(_resize_matrix(h, tokens.dtype, tokens.device), across.flatten(2)).view(n, 2 * h, 2 * w, c)


def _made_even(tokens: Tensor) -> Tensor:
    """With the last row and column repeated where their number is odd."""
    h, w = tokens.shape[1:3]
    if h % 2:
        tokens = torch.cat((tokens, tokens[:, -1:]), dim=1)
    if w % 2:
        tokens = torch.cat((tokens, tokens[:, :, -1:]), dim=2)
    return tokens


def _quads_to_complex(band: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """2×2 quads a b / c d → (re z₁, im z₁, re z₂, im z₂) with z₁ = (a−d)+i(b+c), z₂ = (a+d)+i(b−c), over √2."""
    band = band * 0.5**0.5
    a, b = band[:, 0::2, 0::2], band[:, 0::2, 1::2]
    c, d = band[:, 1::2, 0::2], band[:, 1::2, 1::2]
    return a - d, b + c, a + d, b - c


def _split_bands(tokens: Tensor, axis: int) -> Tensor:
    """Filter tokens (n, h, w, c) along axis 1 or 2; an axis (low, high) is put before the filtered one."""
    size = tokens.shape[axis]
    filters = torch.cat([_filter_matrix(taps, size, tokens.dtype, tokens.device) for taps in (LOW, HIGH)])
    if axis == 2:
        return torch.matmul(filters, tokens).unflatten(2, (2, size))
    return torch.matmul(filters, tokens.flatten(2)).view(len(tokens), 2, size, *tokens.shape[2:])


def _filtered(matrix: Tensor, tokens: Tensor) -> Tensor:
    """Rows (2·size, size) of both filters times tokens (..., size, c)."""
    size = tokens.shape[-2]
    if size <= MATRIX_UP_TO or tokens.is_cuda:
        return torch.matmul(matrix, tokens)
    reach, parts = len(HIGH) // 2, []
    for first in range(0, size, PART):
        seen = slice(max(first - reach, 0), first + PART + reach)
        parts.append(torch.matmul(matrix[2 * first : 2 * (first + PART), seen], tokens[..., seen, :]))
    return torch.cat(parts, dim=-2)


def _symmetric_index(position: Tensor, size: int) -> Tensor:
    """Reflect positions into 0…size−1 with the edge sample repeated, as often as needed."""
    position = position % (2 * size)
    return torch.where(position < size, position, 2 * size - 1 - position)


def once(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a constant once for each set of arguments; what is compiled makes it in the compiler's own way."""

    @cache
    def keep(*arguments: object) -> Tensor:
        with torch.inference_mode(False):  # or training could not use it later
            return make(*arguments)

    return lambda *arguments: (make if torch.compiler.is_compiling() else keep)(*arguments)


@once
def _filter_matrix(taps: tuple[float, ...], size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(size, size): filtering with symmetric borders as one matrix."""
    position = torch.arange(size, device=device)
    matrix = torch.zeros(size, size, dtype=torch.promote_types(dtype, torch.float32), device=device)
    for k, tap in enumerate(taps):
        source = _symmetric_index(position + (k - len(taps) // 2), size)
        matrix = matrix + tap * (source[:, None] == position).to(matrix.dtype)
    return matrix.to(dtype)


@once
def _quad_matrix(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(2·size, size): both filters along an axis; for each half-resolution sample low even, odd, high even, odd."""
    filters = torch.stack([_filter_matrix(taps, size, dtype, device) for taps in (LOW, HIGH)])
    return filters.unflatten(1, (size // 2, 2)).transpose(0, 1).flatten(0, 2)


@once
def _resize_matrix(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(2·size, size): ¾ of the nearest sample and ¼ of the next."""
    place, target = torch.arange(size, device=device), torch.arange(2 * size, device=device)[:, None]
    near, far = target // 2, (target // 2 + target % 2 * 2 - 1).clamp(0, size - 1)
    return 0.75 * (near == place).to(dtype) + 0.25 * (far == place).to(dtype)
