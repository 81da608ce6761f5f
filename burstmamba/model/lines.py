"""Rows and columns scanned one by one, with states that fade: what a token learns hardly depends on the window's size.

Not in the paper, whose scan takes one state through the whole image; docs/decisions/0013 says why.
"""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.kernels.selective_scan import selective_scan
from burstmamba.model.s6 import BOTH_WAYS


def scan_lines(*arguments: Tensor, reach: float, delta_weight: Tensor | None = None) -> Tensor:
    """`selective_scan` of images (p = 1) along all of `PATHS`, but each line by itself and with states that fade."""
    x, delta, A, B, C, D, delta_bias = arguments
    parts = []
    for first in (0, 1):  # PATHS: rows, columns, and both reversed
        line = 2 + first  # the axis of x that counts lines; it changes places with p
        delta_, B_, C_ = (tensor[:, :, first::2].transpose(1, line + 1) for tensor in (delta, B, C))
        A_, D_, bias = (tensor[first::2] for tensor in (A, D, delta_bias))
        weight = None if delta_weight is None else delta_weight[first::2]
        y = selective_scan(
            x.transpose(1, line), delta_, A_, *fade(B_, C_, reach), D_, bias, paths=BOTH_WAYS, delta_weight=weight
        )
        parts.append(y.transpose(1, line))
    return parts[0] + parts[1]


def fade(B: Tensor, C: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """B and C (b, p, 2, i, j, n) so scaled, in float32, that a state fades to 1/e in `reach` tokens.

    Their product is all that counts: e^(-distance / reach) between the token that writes and the one that reads.
    Lines longer than 120 times `reach`, which float32 could not hold, do not fade at their ends.
    """
    i, j = B.shape[3:5]
    place = torch.arange(i * j, device=B.device).view(i, j, 1)
    growth = ((place - i * j / 2) / reach).clamp(-60, 60).exp()
    growth = torch.stack((growth, 1 / growth))  # the second path walks back
    return B * growth, C / growth
