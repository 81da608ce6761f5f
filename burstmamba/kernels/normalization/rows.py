"""How kernels address tokens: rows of neighbouring channels."""

from __future__ import annotations

from torch import Tensor


def as_rows(tokens: Tensor) -> Tensor:
    """(..., c) → (rows, c), a view where one stride leads from row to row, as in half of a projection; else a copy."""
    rows = tokens.flatten(0, -2)
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()
