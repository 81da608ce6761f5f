"""Means with their uncertainty over images, and the paired comparison of two methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from burstmamba.errors import InputError

RESAMPLES = 10_000
SEED = 0


@dataclass(frozen=True)
class Interval:
    """A mean over images with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def sign(self) -> int:
        """1 or -1 when the interval excludes zero on that side, 0 when it does not or one image has no interval."""
        return 0 if self.count < 2 else 1 if self.low > 0 else -1 if self.high < 0 else 0

    def text(self, digits: int = 2, *, signed: bool = False) -> str:
        """`mean [low, high]` for tables."""
        form = f"{{:+.{digits}f}}" if signed else f"{{:.{digits}f}}"
        return form.format(self.mean) + self.range_text(form)

    def range_text(self, form: str = "{:.2f}") -> str:
        """` [low, high]`; empty with fewer than two images, which tell nothing about others."""
        return f" [{form.format(self.low)}, {form.format(self.high)}]" if self.count > 1 else ""


def interval(values: Sequence[float]) -> Interval:
    """The mean of per-image scores and its 95 % percentile bootstrap interval; non-finite scores are skipped."""
    data = np.asarray(values, dtype=np.float64)
    data = data[np.isfinite(data)]
    if data.size == 0:
        return Interval(float("nan"), float("nan"), float("nan"), 0)
    indices = np.random.default_rng(SEED).integers(0, data.size, (RESAMPLES, data.size))
    low, high = np.percentile(data[indices].mean(axis=1), (2.5, 97.5))
    return Interval(float(data.mean()), float(low), float(high), int(data.size))


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Interval:
    """How much higher `first` scores than `second`, image by image."""
    if len(first) != len(second):
        raise InputError(f"a paired comparison needs the same images, got {len(first)} and {len(second)} scores.")
    return interval([a - b for a, b in zip(first, second, strict=True)])
