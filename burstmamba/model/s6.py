"""S6 across the frames of a burst: a bidirectional selective scan over each pixel's L tokens (Sec. 3.2, 3.4)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from burstmamba.kernels.normalization import normalize
from burstmamba.kernels.selective_scan import selective_scan

BOTH_WAYS = ("rows", "rows reversed")  # first to last frame or token, and back


def initial_A_log(k: int, d: int, n: int) -> Tensor:
    """(k, d, n): log(1…n) in every channel, so that A = −1…−n."""
    return torch.log(torch.arange(1, n + 1, dtype=torch.float32)).repeat(k, d, 1)


def initial_delta_bias(k: int, d: int, smallest: float = 1e-3, largest: float = 1e-1) -> Tensor:
    """(k, d): biases whose softplus is log-uniform between the two, at least 1e-4."""
    step = torch.exp(torch.empty(k, d).uniform_(math.log(smallest), math.log(largest))).clamp(min=1e-4)
    return step + torch.log(-torch.expm1(-step))


class S6(nn.Module):
    """Bidirectional S6; its Δ, B and C come from the tokens (`content`) or from wavelets (`wavelet`, ψS6)."""

    def __init__(self, channels: int, state: int, condition_channels: int | None, phase_channels: int = 0) -> None:
        """Build the operator.

        Args:
            channels: C′ of the tokens; the inner width is d = 2C′.
            state: n.
            condition_channels: width of ψ, or None for content selectivity.
            phase_channels: further channels of the tokens that tell their sub-pixel phase.
        """
        super().__init__()
        d, k = 2 * channels, len(BOTH_WAYS)
        self.splits = (d, state, state)
        condition_channels = d if condition_channels is None else condition_channels
        self.in_proj = nn.Linear(channels + phase_channels, 2 * d, bias=False)
        self.heads = nn.Linear(condition_channels, k * sum(self.splits), bias=False)
        # Differs from the paper: a burst is a short sequence, so Δ starts where 14 frames mix (docs/decisions/0011).
        self.delta_bias = nn.Parameter(initial_delta_bias(k, d, 1e-2, 0.5))
        self.A_log = nn.Parameter(initial_A_log(k, d, state))
        self.D = nn.Parameter(torch.ones(k, d))
        self.norm = nn.LayerNorm(d)
        self.out_proj = nn.Linear(d, channels, bias=False)

    def forward(self, tokens: Tensor, psi: Tensor | None, weight: Tensor | None) -> Tensor:
        """Pass messages between the frames of each pixel.

        Args:
            tokens: (b, l, h, w, c + phase channels), all in the keyframe's view.
            psi: (b, l, h, w, p) wavelet condition in the same view, or None for content selectivity.
            weight: (b, l, h, w) confidence in [0, 1] that scales Δ, or None.

        Returns:
            (b, l, h, w, c), one message for each frame and pixel.
        """
        x, z = self.in_proj(tokens).chunk(2, dim=-1)  # (b, l, h, w, d) each
        x = F.silu(x)
        condition = self.heads(x if psi is None else psi).unflatten(-1, (len(BOTH_WAYS), -1))
        delta, B, C = (part.permute(0, 2, 3, 4, 1, 5) for part in condition.split(self.splits, dim=-1))
        y = selective_scan(
            by_pixel(x),
            by_pixel_and_path(delta),
            -torch.exp(self.A_log.float()),
            by_pixel_and_path(B),
            by_pixel_and_path(C),
            self.D,
            self.delta_bias,
            paths=BOTH_WAYS,
            weight=None if weight is None else by_pixel(weight[..., None])[..., 0],
        )  # (b, h*w, l, 1, d)
        y = y.squeeze(3).transpose(1, 2).unflatten(2, x.shape[2:4])
        return self.out_proj(normalize(y, self.norm, gate=z))


def by_pixel(tokens: Tensor) -> Tensor:
    """(b, l, h, w, c) → (b, h·w, l, 1, c): a view in which each pixel is a sequence of frames."""
    return tokens.flatten(2, 3).transpose(1, 2)[:, :, :, None]


def by_pixel_and_path(condition: Tensor) -> Tensor:
    """(b, h, w, k, l, c) → (b, h·w, k, l, 1, c)."""
    return condition.flatten(1, 2)[:, :, :, :, None]
