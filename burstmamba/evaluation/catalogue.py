"""Benchmarks by what lies in a folder: OpenBurst's photographs, OpenBurst as written, and the published layouts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from burstmamba.errors import InputError
from burstmamba.evaluation.benchmark import Benchmark, Item

OPENBURST_PROTOCOLS = {"raw": ("openburst-raw",), "raw-synburst": ("synburst-linear",)}
"""Of the mosaic subsets; the others are scored by `openburst`."""
RGB_SUBSETS = ("still", "noisy", "moving", "badframe")
RAW_SUBSETS = ("raw", "raw-synburst")


def openburst_item(subset: str, name: str, load) -> Item:
    """A burst of OpenBurst with its protocol and grid."""
    centres = "corner" if subset == "raw-synburst" else "half-pixel"
    return Item(subset, name, OPENBURST_PROTOCOLS.get(subset, ("openburst",)), centres, load)


def openburst_from_photographs(folder: Path, subsets: tuple[str, ...] = RGB_SUBSETS) -> Benchmark:
    """OpenBurst rendered on the fly from a folder of photographs."""
    from burstmamba.data.openburst import OpenBurst

    source = OpenBurst.open(folder)
    items = [
        openburst_item(subset, name, partial(source.load, index, subset))
        for subset in subsets
        for index, name in enumerate(source.names)
    ]
    # Other photographs, or only some of them, give numbers that must not be taken for the benchmark's.
    return Benchmark("openburst" if not source.unofficial() else "openburst-like", tuple(items))


def open_benchmark(folder: Path, *, mosaics: bool) -> Benchmark:
    """The benchmark in a folder.

    Args:
        folder: OpenBurst's photographs, or a folder of bursts.
        mosaics: whether the network takes mosaics; of OpenBurst only the fitting subsets are opened.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give OpenBurst's photographs or a benchmark's folder.")
    return openburst_from_photographs(folder, RAW_SUBSETS if mosaics else RGB_SUBSETS)
