"""How kernels address a grid of tokens: one stride a token, channels next to each other."""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.kernels.selective_scan.reference import PATHS

# Bit 0: down the columns; bit 1: backwards.
CODES = {path: path.startswith("columns") + 2 * path.endswith("reversed") for path in PATHS}


def flat(tensor: Tensor, rows: int) -> Tensor:
    """The tensor itself where its grid axes, `rows` and the next, are one axis of constant stride; else a copy."""
    i, j = tensor.shape[rows : rows + 2]
    joint = i == 1 or j == 1 or tensor.stride(rows) == j * tensor.stride(rows + 1)
    adjacent = tensor.ndim == rows + 2 or tensor.stride(-1) == 1 or tensor.shape[-1] == 1
    return tensor if joint and adjacent else tensor.contiguous()


def strides(tensor: Tensor, rows: int) -> tuple[int, ...]:
    """Strides of the axes before the grid, then of a token."""
    token = tensor.stride(rows + 1) if tensor.shape[rows + 1] > 1 else tensor.stride(rows)
    return (*tensor.stride()[:rows], token)


def empty_in_order(tensor: Tensor) -> Tensor:
    """An uninitialised tensor of the same shape and dtype, dense, its axes in the same order in memory.

    Channels stay innermost, so that kernels find them next to each other.
    """
    order = sorted(range(tensor.ndim - 1), key=lambda axis: (-tensor.stride(axis), axis))
    return torch.empty_permuted(tensor.shape, (*order, tensor.ndim - 1), dtype=tensor.dtype, device=tensor.device)
