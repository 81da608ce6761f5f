"""Rendered test charts taken as bursts and reconstructed: how much resolution each method really has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from burstmamba.data.openburst import openburst_sample
from burstmamba.data.sample import Sample
from burstmamba.evaluation.alignment_cache import AlignmentCache
from burstmamba.evaluation.evaluate import Progress
from burstmamba.evaluation.protocol import crop_border
from burstmamba.evaluation.reconstruct import Method, frames_and_maps, reconstruct
from burstmamba.evaluation.resolution import mtf50, siemens_star, slanted_edge, star_limit
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.synthesis.colour import to_linear, to_srgb

SIZE = 384
"""Side of the charts in HR pixels."""
BORDER = 48
"""HR pixels that are not measured: the other frames did not all see them."""
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class ChartResult:
    """What a lens tester would write down for one method, in cycles per HR pixel, mean over bursts."""

    method: str
    mtf50: float
    """Of the slanted edge. Sharpening raises it without adding detail; read it beside the star."""
    star_limit: float
    """Of the Siemens star: where a tenth of the contrast is left."""


def measure_charts(
    methods: Sequence[Method],
    *,
    cache: Path,
    model: BurstMamba | None = None,
    device: str = "cpu",
    subset: str = "still",
    seeds: Sequence[int] = SEEDS,
    size: int = SIZE,
    progress: Progress = lambda stage, done, total: None,
) -> list[ChartResult]:
    """Take both charts as bursts, reconstruct them and measure.

    Args:
        methods: what to measure.
        cache: folder for estimated maps.
        model: the network, where a method needs it.
        device: where to compute.
        subset: OpenBurst's subset whose noise and motion are used.
        seeds: one burst of each chart for each seed.
        size: side of the charts in HR pixels.
        progress: called after each method.
    """
    bursts = {
        name: [openburst_sample(to_srgb(chart(size))[0], subset, seed) for seed in seeds]
        for name, chart in (("edge", slanted_edge), ("star", siemens_star))
    }
    results = []
    for done, method in enumerate(methods, start=1):
        edge = [mtf50(_picture(method, sample, cache, model, device)) for sample in bursts["edge"]]
        star = [star_limit(_picture(method, sample, cache, model, device)) for sample in bursts["star"]]
        results.append(ChartResult(method.label, math.fsum(edge) / len(edge), math.fsum(star) / len(star)))
        progress("charts", done, len(methods))
    return results


def _picture(method: Method, sample: Sample, cache: Path, model: BurstMamba | None, device: str) -> Tensor:
    """(h, w) linear light without the border."""
    frames, maps = frames_and_maps(sample, method, partial(AlignmentCache(cache).get, sample.burst()))
    maps = None if maps is None else maps.to(device)
    picture = reconstruct(
        method, frames.to(device), maps, model=model, scale=sample.scale, centres="half-pixel", linear=False
    )
    return crop_border(to_linear(picture.clamp(0, 1))[0].mean(dim=0), BORDER).cpu()


def ideal_charts(size: int = SIZE) -> ChartResult:
    """The charts themselves: what a perfect reconstruction would measure."""
    edge, star = (crop_border(chart(size)[0, 0], BORDER) for chart in (slanted_edge, siemens_star))
    return ChartResult("the chart itself", mtf50(edge), star_limit(star))
