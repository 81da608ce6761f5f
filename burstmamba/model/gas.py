"""Gather → Aggregate → Scatter (Sec. 3.3): correspondence is used only while frames exchange messages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from burstmamba.correspondence.field import Correspondence, pixel_grid, sample_at
from burstmamba.kernels.normalization import normalize
from burstmamba.model.config import ModelConfig
from burstmamba.model.s6 import S6
from burstmamba.model.wavelet import project_subbands, resize_twice

CACHED = 10_000
"""Tokens of a burst whose intermediate results stay in a CPU's cache."""


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
        parts = features.split(at_a_time(features, h * w))
        half = [project_subbands(part, self.project.weight, self.project.bias) for part in parts]
        return resize_twice(joined(half, dim=0))[:, :h, :w]


def at_a_time(tokens: Tensor, size: int) -> int:
    """How many parts of `size` tokens are worked on at once: all on a GPU, what a cache holds on a CPU."""
    return tokens.numel() if tokens.is_cuda else max(1, CACHED // size)


def joined(parts: list[Tensor], dim: int) -> Tensor:
    """The parts side by side; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


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
        b, l, h, w, _ = features.shape
        tokens = normalize(features, self.norm)
        psi = None if self.psi is None else self.psi(features.flatten(0, 1)).unflatten(0, (b, l))
        rows = at_a_time(features, l * w)
        bands = ((first, min(first + rows, h)) for first in range(0, h, rows))
        messages = [self.exchange(tokens, psi, correspondence, *band) for band in bands]
        return correspondence.scatter(joined(messages, dim=2).movedim(-1, 2)).movedim(2, -1)

    def exchange(
        self, tokens: Tensor, psi: Tensor | None, correspondence: Correspondence, first: int, last: int
    ) -> Tensor:
        """Gather and aggregate: messages (b, l, last - first, w, c) for some of the keyframe's rows, in its view.

        Args:
            tokens: (b, l, h, w, c), normalised, in native views.
            psi: (b, l, h, w, p) likewise, or None for content selectivity.
            correspondence: of the whole picture.
            first: the first row.
            last: the row after the last one.
        """
        place = correspondence.to_frame[..., first:last, :]
        if first:
            place = place + place.new_tensor((0.0, first))[:, None, None]  # sampling counts from the first row
        if psi is None or not tokens.is_cuda:
            gathered, psi = gather(tokens, place), None if psi is None else gather(psi, place)
        else:  # together: one pass over the maps
            both = gather(torch.cat((tokens.to(psi.dtype), psi), dim=-1), place)
            gathered, psi = both.tensor_split((tokens.shape[-1],), dim=-1)
        weight = None
        if self.use_confidence and correspondence.confidence is not None:
            weight = correspondence.confidence[:, :, 0, first:last]
        if self.phase_periods:
            phase = sampling_phase(place, self.phase_periods).movedim(2, -1)
            gathered = torch.cat((gathered, phase.to(gathered.dtype)), dim=-1)
        return self.s6(gathered, psi, weight)


def gather(tokens: Tensor, place: Tensor) -> Tensor:
    """Tokens (b, l, h, w, c) of every frame at displacements (b, l, 2, h', w'): (b, l, h', w', c)."""
    sampled = sample_at(tokens.flatten(0, 1).permute(0, 3, 1, 2), place.flatten(0, 1))
    return sampled.permute(0, 2, 3, 1).unflatten(0, tokens.shape[:2])
