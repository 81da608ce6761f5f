"""Burst stream: light features of every frame, refined stage by stage into a prior for the keyframe (Sec. 3.2).

Nothing here receives a tensor of the keyframe stream: information flows one way.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from burstmamba.correspondence.field import Correspondence
from burstmamba.model.config import ModelConfig
from burstmamba.model.gas import GatherAggregateScatter, at_a_time, joined
from burstmamba.model.keyframe_stream import convolve
from burstmamba.model.padding import PaddedConvolution


class BurstStage(nn.Module):
    """Message passing between frames (GAS), then local refinement inside each frame (φ_conv)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gas = GatherAggregateScatter(config)
        self.refine = PaddedConvolution(config.burst_channels, config.burst_channels)

    def forward(self, features: Tensor, correspondence: Correspondence) -> Tensor:
        """(b, l, h, w, c) → (b, l, h, w, c), native views throughout."""
        features = features + self.gas(features, correspondence)
        frames, (h, w) = features.flatten(0, 1), features.shape[2:4]
        refined = [part + F.gelu(self.refined(part)) for part in frames.split(at_a_time(frames, h * w))]
        return joined(refined, dim=0).unflatten(0, features.shape[:2])

    def refined(self, frames: Tensor) -> Tensor:
        """φ_conv before its activation: (n, h, w, c) → (n, h, w, c)."""
        return convolve(self.refine, frames)[..., : frames.shape[-1]]


class BurstStream(nn.Module):
    """φ_shallow′, G stages, and one φ_project for each stage."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c, stages = config.burst_channels, len(config.blocks)
        self.shallow_convolution = nn.Conv2d(config.image_planes, c, 3, padding=1)
        self.stages = nn.ModuleList(BurstStage(config) for _ in range(stages))
        self.projections = nn.ModuleList(nn.Conv2d(c, config.channels, 3, padding=1) for _ in range(stages))
        for parameter in self.projections.parameters():  # zero, so that training starts from the single-image network
            nn.init.zeros_(parameter)

    def shallow(self, frames: Tensor) -> Tensor:
        """φ_shallow′: centred image planes (b, l, in, h, w) → tokens (b, l, h, w, C′)."""
        images = frames.flatten(0, 1).permute(0, 2, 3, 1)
        return convolve(self.shallow_convolution, images).unflatten(0, frames.shape[:2])

    def project(self, stage: int, features: Tensor) -> Tensor:
        """φ_project of the keyframe's feature: (b, l, h, w, C′) → (b, h, w, C), the burst prior."""
        return convolve(self.projections[stage], features[:, 0])
