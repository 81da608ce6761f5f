"""Gather → Aggregate → Scatter (Sec. 3.3): correspondence is used only while frames exchange messages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from burstmamba.correspondence.field import Correspondence, pixel_grid
from burstmamba.kernels.normalization import normalize
from burstmamba.model.config import ModelConfig
from burstmamba.model.s6 import S6
from burstmamba.model.wavelet import dtcwt, project_subbands, resize_twice


class WaveletCondition(nn.Module):
    """ψ: a compact projection of the features' wavelet subbands, at full resolution, in native views."""

    def __init__(self, channels: int, psi_channels: int) -> None:
        super().__init__()
        self.project = nn.Linear(12 * channels, psi_channels)
        # B and C are linear in ψ, and messages in B·C: around ψ = 0 frames would hardly talk (docs/decisions/0011).
        nn.init.normal_(self.project.bias)

    def forward(self, features: Tensor) -> Tensor:
        """(n, h, w, c) → (n, h, w, p).

        The 1×1 projection commutes with the resize, so it runs at half resolution: the same ψ for less.
        """
        h, w = features.shape[1:3]
        if features.is_cuda:
            half = project_subbands(features, self.project.weight, self.project.bias)
        else:
            half = self.project(dtcwt(features))
        return resize_twice(half)[:, :h, :w]


def sampling_phase(displacement: Tensor, periods: tuple[int, ...]) -> Tensor:
    """Where between a frame's pixels each token was sampled, as sines and cosines of 2π·position/period.

    Args:
        displacement: (b, l, 2, h, w) δ⁰→ˡ in pixels.
        periods: periods of the sampling pattern, in pixels.

    Returns:
        (b, l, 4·len(periods), h, w).
    """
    position = pixel_grid(displacement) + displacement.float()
    angles = torch.cat([2 * torch.pi / period * (position % period) for period in periods], dim=2)
    return torch.cat((torch.sin(angles), torch.cos(angles)), dim=2)


class GatherAggregateScatter(nn.Module):
    """Bring matching points of all frames together, let them exchange messages, carry the messages back."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = config.burst_channels
        wavelet = config.selectivity == "wavelet"
        self.use_confidence = config.use_confidence
        self.phase_periods = config.phase_periods if config.use_phase else ()
        self.norm = nn.LayerNorm(c)
        self.psi = WaveletCondition(c, config.psi_channels) if wavelet else None
        self.s6 = S6(c, config.burst_state, config.psi_channels if wavelet else None, config.phase_channels)

    def forward(self, features: Tensor, correspondence: Correspondence) -> Tensor:
        """Messages to every frame, in its native view.

        Args:
            features: (b, l, h, w, c) tokens in native views.
            correspondence: maps between the keyframe and each frame.

        Returns:
            (b, l, h, w, c), to be added to `features`.
        """
        b, l, _, _, c = features.shape
        tokens = normalize(features, self.norm)
        psi = None
        if self.psi is not None:
            psi = self.psi(features.flatten(0, 1)).unflatten(0, (b, l))
            tokens = torch.cat((tokens.to(psi.dtype), psi), dim=-1)  # sampled together: one pass over the maps
        gathered = correspondence.gather(tokens.movedim(-1, 2)).movedim(2, -1)
        if psi is not None:
            gathered, psi = gathered[..., :c], gathered[..., c:]
        weight = None
        if self.use_confidence and correspondence.confidence is not None:
            weight = correspondence.confidence[:, :, 0]
        if self.phase_periods:
            phase = sampling_phase(correspondence.to_frame, self.phase_periods).movedim(2, -1)
            gathered = torch.cat((gathered, phase.to(gathered.dtype)), dim=-1)
        messages = self.s6(gathered, psi, weight)
        return correspondence.scatter(messages.movedim(-1, 2)).movedim(2, -1)
