"""Parameters and operations of a network by part, in the conventions that papers use.

Operations are counted from the layers' sizes; a test holds the count against PyTorch's own counter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch

from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import ModelConfig

CONVENTIONS = {
    "paper": "1 MAC = 1, scan 9·t·d·n + t·d, ψ projected at full resolution, wavelets uncounted (MambaIR's fvcore)",
    "executed": "as `paper`, with ψ projected at half resolution and the wavelets counted: what runs here",
    "modules": "MACs of convolution and linear modules alone",
    "no-scan": "all MACs, no scan",
    "double": "2 operations a MAC, no scan",
    "double-scan": "2 operations a MAC, and the scan",
}


@dataclass(frozen=True)
class Operations:
    """Counts of one part, in operations."""

    modules: float = 0
    """MACs of convolution and linear modules."""
    projections: float = 0
    """MACs of the scan's own projections (weights outside modules)."""
    scan: float = 0
    psi_full: float = 0
    """ψ's projection, were it made at full resolution."""
    psi_half: float = 0
    """ψ's projection as it runs, at half resolution."""
    wavelet: float = 0
    """MACs of the transform's filters (their taps)."""

    def __add__(self, other: Operations) -> Operations:
        return Operations(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, factor: float) -> Operations:
        return Operations(*(getattr(self, f.name) * factor for f in fields(self)))

    def total(self, convention: str) -> float:
        """The sum under one of `CONVENTIONS`."""
        dense = self.modules + self.projections + self.psi_full
        return {
            "paper": dense + self.scan,
            "executed": self.modules + self.projections + self.psi_half + self.wavelet + self.scan,
            "modules": self.modules + self.psi_full,
            "no-scan": dense,
            "double": 2 * dense,
            "double-scan": 2 * dense + self.scan,
        }[convention]


def scan_operations(tokens: float, d: int, n: int, paths: int) -> float:
    """MambaIR's count of a selective scan: 9·t·d·n + t·d a path."""
    return paths * tokens * d * (9 * n + 1)


def count_keyframe(config: ModelConfig, height: int, width: int) -> dict[str, Operations]:
    """Operations of the keyframe stream by part, for one image."""
    c, n, rank, area = config.channels, config.state, config.delta_rank, height * width
    d, squeeze, blocks = 2 * c, max(4, round(c / 30)), sum(config.blocks)
    block = Operations(
        modules=area * (4 * c * c + 9 * d + d * c + 2 * 9 * c * (c // 3)) + 2 * c * squeeze,
        projections=area * 4 * (d * (rank + 2 * n) + d * rank),
        scan=scan_operations(area, d, n, paths=4),
    )
    return {
        "shallow": Operations(modules=9 * area * config.image_planes * c),
        "blocks": block * blocks,
        "stage convolutions": Operations(modules=9 * area * c * c * (len(config.blocks) + 1)),
        "upsampler": Operations(modules=9 * area * head_weights(config)),
    }


def head_weights(config: ModelConfig) -> int:
    """Channel products of the upsampler's convolutions, each times its area in LR pixels."""
    c, w, out = config.channels, config.head_channels, config.out_channels
    if not w:
        return c * config.scale**2 * out
    total, zoom = c * w, 1
    for factor in {2: (2,), 3: (3,), 4: (2, 2)}[config.scale]:
        total += zoom * w * factor**2 * w
        zoom *= factor**2
    return total + zoom * w * out


def count_burst(config: ModelConfig, height: int, width: int, frames: int) -> dict[str, Operations]:
    """Operations of the burst stream by part, for `frames` frames; nothing for one frame, which detaches it."""
    if not config.burst_channels or frames < 2:
        return {}
    c, n, p, stages, area = (
        config.burst_channels,
        config.burst_state,
        config.psi_channels,
        len(config.blocks),
        height * width,
    )
    d = 2 * c
    wavelet = config.selectivity == "wavelet"
    heads = 2 * (p if wavelet else d) * (d + 2 * n)
    quarter = -(-height // 2) * -(-width // 2)
    frame = Operations(
        modules=area * ((c + config.phase_channels) * 2 * d + heads + d * c + 9 * c * c),
        scan=scan_operations(area, d, n, paths=2),
        psi_full=area * 12 * c * p * wavelet,
        psi_half=quarter * 12 * c * p * wavelet,
        wavelet=4 * quarter * c * (13 + 19 + 2 * 19 + 13) * wavelet,
    )
    return {
        "shallow": Operations(modules=9 * area * config.image_planes * c) * frames,
        "stages": frame * (stages * frames),
        "projections": Operations(modules=9 * area * c * config.channels) * stages,
    }


@dataclass(frozen=True)
class Complexity:
    """Cost of one network on one burst."""

    keyframe_parameters: int
    burst_parameters: int
    keyframe: dict[str, Operations]
    burst: dict[str, Operations]

    def total(self, convention: str) -> float:
        """All operations under a convention."""
        return sum_operations((*self.keyframe.values(), *self.burst.values())).total(convention)


def sum_operations(parts: Iterable[Operations]) -> Operations:
    """The sum of several parts."""
    return sum(parts, Operations())


def measure_complexity(config: ModelConfig, height: int, width: int, frames: int) -> Complexity:
    """Count a network's parameters and operations for one burst of `frames` frames."""
    with torch.device("meta"):
        model = BurstMamba(config)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return Complexity(
        sum(size for name, size in sizes.items() if name.startswith("keyframe.")),
        sum(size for name, size in sizes.items() if name.startswith("burst.")),
        count_keyframe(config, height, width),
        count_burst(config, height, width, frames),
    )


def cost_of_further_frame(config: ModelConfig, height: int, width: int, convention: str, frames: int = 14) -> float:
    """(T_L − T₁)/(L − 1): what the paper calls the cost of each further frame."""
    many = measure_complexity(config, height, width, frames).total(convention)
    return (many - measure_complexity(config, height, width, 1).total(convention)) / (frames - 1)
