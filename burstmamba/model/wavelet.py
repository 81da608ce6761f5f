"""One level of the dual-tree complex wavelet transform (near_sym_b), whose subbands condition ψS6 (Sec. 3.4)."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

ORIENTATIONS = (15, 165, 45, 135, 75, 105)  # degrees, in the order of the output channels
MATRIX_UP_TO = 128  # longer axes are filtered by convolution: a dense matrix would cost more than its taps

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
    h, w = tokens.shape[1:3]
    if h % 2:
        tokens = torch.cat((tokens, tokens[:, -1:]), dim=1)
    if w % 2:
        tokens = torch.cat((tokens, tokens[:, :, -1:]), dim=2)
    low, high = _filter(tokens, "low", 2), _filter(tokens, "high", 2)
    bands = (_filter(low, "high", 1), _filter(high, "high", 1), _filter(high, "low", 1))  # lh, hh, hl
    return torch.cat([part for band in bands for part in _quads_to_complex(band)], dim=-1)


def _quads_to_complex(band: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """2×2 quads a b / c d → (re z₁, im z₁, re z₂, im z₂) with z₁ = (a−d)+i(b+c), z₂ = (a+d)+i(b−c), over √2."""
    band = band * 0.5**0.5
    a, b = band[:, 0::2, 0::2], band[:, 0::2, 1::2]
    c, d = band[:, 1::2, 0::2], band[:, 1::2, 1::2]
    return a - d, b + c, a + d, b - c


def _filter(tokens: Tensor, kind: str, axis: int) -> Tensor:
    """Filter tokens (n, h, w, c) along axis 1 or 2 with half-sample symmetric borders."""
    size = tokens.shape[axis]
    if size <= MATRIX_UP_TO:
        matrix = _filter_matrix(kind, size, tokens.device, _compute_dtype(tokens))
        if axis == 2:
            return torch.matmul(matrix, tokens)
        return torch.matmul(matrix, tokens.flatten(2)).unflatten(2, tokens.shape[2:])
    taps = torch.tensor(LOW if kind == "low" else HIGH, dtype=tokens.dtype, device=tokens.device)
    reach = len(taps) // 2
    index = _symmetric_index(torch.arange(-reach, size + reach, device=tokens.device), size)
    padded = tokens.index_select(axis, index).movedim(axis, -1)  # (n, other, c, size + 2·reach)
    filtered = F.conv1d(padded.reshape(-1, 1, padded.shape[-1]), taps.view(1, 1, -1))
    return filtered.view(*padded.shape[:-1], size).movedim(-1, axis)


def _compute_dtype(tokens: Tensor) -> torch.dtype:
    """The dtype in which autocast would multiply these tokens."""
    device = tokens.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tokens.dtype


def _symmetric_index(position: Tensor, size: int) -> Tensor:
    """Reflect positions into 0…size−1 with the edge sample repeated, as often as needed."""
    position = position % (2 * size)
    return torch.where(position < size, position, 2 * size - 1 - position)


@lru_cache(maxsize=64)
def _filter_matrix(kind: str, size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(size, size): filtering with symmetric borders as one matrix."""
    with torch.inference_mode(False):
        taps = torch.tensor(LOW if kind == "low" else HIGH, dtype=torch.float64)
        reach = len(taps) // 2
        rows = torch.arange(size)[:, None].expand(-1, len(taps))
        columns = _symmetric_index(rows + torch.arange(-reach, reach + 1), size)
        matrix = torch.zeros(size, size, dtype=torch.float64)
        matrix.index_put_((rows, columns), taps.expand(size, -1), accumulate=True)
        return matrix.to(device=device, dtype=dtype)
