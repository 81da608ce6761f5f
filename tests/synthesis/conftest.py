"""Photographs made of a few sine waves: smooth enough that bilinear warping is nearly exact."""

import math

import pytest
import torch


def waves(batch: int, size: int, period: float, seed: int = 0) -> torch.Tensor:
    """(b, 3, size, size) in [0.2, 0.8]; no wave is shorter than `period` pixels."""
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(size).float(), torch.arange(size).float(), indexing="ij")
    angle, phase, stretch = torch.rand(3, batch, 3, 4, 1, 1, generator=generator)
    angle, frequency = angle * math.tau, math.tau / (period * (1 + stretch))
    wave = torch.sin(frequency * (x * angle.cos() + y * angle.sin()) + phase * math.tau)
    return 0.5 + 0.3 * wave.mean(2)


@pytest.fixture
def smooth():
    return waves
