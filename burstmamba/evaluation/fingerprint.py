"""A few numbers by which a burst is known again, whether it was rendered here, on a GPU, or written and read."""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.data.sample import Sample

TRUTH_TOLERANCE = 1e-4
"""By how much the mean of a ground truth may change between a rendered and a written benchmark."""
PLACES = 16
"""Values of the frames that are compared; noise alone changes them."""
FRAMES_TOLERANCE = 5e-4
"""Largest mean difference of these values: two of them may be rounded to another of 256 levels elsewhere."""


def mean_value(truth: Tensor) -> float:
    """The mean of a ground truth, to five digits."""
    return round(truth.double().mean().item(), 5)


def fingerprint(sample: Sample) -> str:
    """Scale and sizes of a burst, then values at places spread evenly over all its frames, to four digits."""
    values = sample.frames[0].flatten()
    places = torch.linspace(0, len(values) - 1, PLACES, dtype=torch.float64).long()
    sizes = "x".join(map(str, sample.frames[0].shape))
    return " ".join((f"{sample.scale}:{sizes}", *(f"{value:.4f}" for value in values[places].tolist())))


def same_frames(first: str, second: str) -> bool:
    """Whether two fingerprints are one burst's."""
    (size, *values), (other_size, *others) = first.split(), second.split()
    differences = [abs(float(a) - float(b)) for a, b in zip(values, others, strict=True)]
    return size == other_size and sum(differences) <= FRAMES_TOLERANCE * len(differences)
