"""Seeded random draws that land on the device of the work."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Dice:
    """Random tensors from one generator.

    A generator on the work's device never makes it wait; one on the CPU gives the same draws on every device.
    """

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self.generator = generator
        self.device = device

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Uniform in [low, high)."""
        draw = torch.rand(shape, generator=self.generator, device=self.generator.device)
        draw = draw if (low, high) == (0.0, 1.0) else draw.mul_(high - low).add_(low)
        return draw.to(self.device, non_blocking=True)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal."""
        draw = torch.randn(shape, generator=self.generator, device=self.generator.device)
        return draw.to(self.device, non_blocking=True)

    def log_uniform(self, *shape: int, low: float, high: float, power: float = 1.0) -> Tensor:
        """Log-uniform in [low, high], or 0 where both are; `power` > 1 crowds the draws towards `low`."""
        draw = self.uniform(*shape)
        if low == high == 0:
            return draw.zero_()
        draw = draw if power == 1.0 else draw.pow_(power)
        return draw.mul_(math.log(high / low)).exp_().mul_(low)

    def chance(self, probability: float, *shape: int) -> Tensor:
        """True with this probability, as a boolean tensor."""
        return self.uniform(*shape) < probability

    def later_frame(self, b: int, l: int) -> Tensor:
        """(b, l) bool: one frame of each burst, never the keyframe (none where the keyframe is alone)."""
        which = (1 + self.uniform(b, 1) * (l - 1)).long()
        return (torch.arange(l, device=self.device)[None] == which) & (l > 1)
