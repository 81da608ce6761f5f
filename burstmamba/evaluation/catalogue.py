"""Benchmarks by what lies in a folder: OpenBurst as photographs or as written, plain bursts, the published layouts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from burstmamba.data.datasets import BurstDataset
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.evaluation.benchmark import Benchmark, Item

OPENBURST_PROTOCOLS = {"raw": ("openburst-raw",), "raw-synburst": ("synburst-linear",)}
"""Of the mosaic subsets; the others are scored by `openburst`."""
RGB_SUBSETS = ("still", "noisy", "moving", "badframe")
RAW_SUBSETS = ("raw", "raw-synburst")
LAYOUTS = ("photographs", "openburst", "bursts", "synburst", "realbsr-rgb", "realbsr-raw", "burstsr")


def open_benchmark(folder: Path, layout: str = "", *, mosaics: bool | None = False, frames: int = 14) -> Benchmark:
    """The benchmark in a folder.

    Args:
        folder: OpenBurst's photographs, what `burstmamba openburst` wrote or a subset of it, or a published data set.
        layout: one of `LAYOUTS`; empty finds out.
        mosaics: whether the network takes mosaics; of OpenBurst only the fitting subsets are opened, all for None.
        frames: length of the bursts that are rendered of photographs, at least 14.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give OpenBurst's photographs or a benchmark's folder.")
    if not layout and folder.name in (*RGB_SUBSETS, *RAW_SUBSETS) and (folder.parent / "openburst.json").is_file():
        return written_openburst(folder.parent, (folder.name,))
    layout = layout or find_layout(folder)
    subsets = (*RGB_SUBSETS, *RAW_SUBSETS) if mosaics is None else RAW_SUBSETS if mosaics else RGB_SUBSETS
    if layout == "photographs":
        return openburst_from_photographs(folder, subsets, frames)
    if layout == "openburst":
        return written_openburst(folder, subsets)
    if layout == "bursts":
        from burstmamba.data.folders import BurstFolders

        bursts = BurstFolders(folder)
        mosaics = any(bursts.folders[0].glob("*.dng")) if mosaics is None else mosaics
        return _from_dataset("bursts", bursts, ("openburst-raw",) if mosaics else ("openburst",))
    return _published(folder, layout)


def find_layout(folder: Path) -> str:
    """Which of `LAYOUTS` a folder has, judged by a few names in it."""
    if (folder / "openburst.json").is_file():
        return "openburst"
    for base in (folder, folder / "SyntheticBurstVal", folder / "syn_burst_val"):
        if any(base.glob("bursts/*/im_raw_00.png")) or any(base.glob("*/im_raw_00.png")):
            return "synburst"
    if any(folder.glob("bursts/*/00.*")):
        return "bursts"
    if any(folder.glob("*/samsung_00")) or any(folder.glob("val/*/samsung_00")):
        return "burstsr"
    frame = next(folder.rglob("*_x1_*.png"), None)
    if frame is not None:
        return "realbsr-raw" if _is_packed(frame) else "realbsr-rgb"
    from burstmamba.data.photographs import SUFFIXES

    if any(path.suffix.lower() in SUFFIXES for path in folder.iterdir()):
        return "photographs"
    raise InputError(f"{folder} looks like none of the known benchmarks; say which with --layout {'|'.join(LAYOUTS)}.")


def openburst_from_photographs(folder: Path, subsets: tuple[str, ...] = RGB_SUBSETS, frames: int = 14) -> Benchmark:
    """OpenBurst rendered on the fly from a folder of photographs, perhaps with more frames."""
    from burstmamba.data.openburst import FRAMES, OpenBurst

    source = OpenBurst.open(folder)
    lengths = {subset: FRAMES if subset == "raw-synburst" else max(frames, FRAMES) for subset in subsets}
    items = [
        openburst_item(subset, name, partial(source.load, index, subset, frames=lengths[subset]))
        for subset in subsets
        for index, name in enumerate(source.names)
    ]
    return Benchmark(openburst_name(not source.unofficial(), max(frames, FRAMES)), tuple(items))


def openburst_name(published: bool, frames: int) -> str:
    """Other photographs, some of them or longer bursts give numbers that must not be taken for the benchmark's."""
    return ("openburst" if published else "openburst-like") + ("" if frames == 14 else f"-{frames}")


def written_openburst(folder: Path, subsets: tuple[str, ...] = RGB_SUBSETS) -> Benchmark:
    """OpenBurst as `burstmamba openburst` wrote it and openburst.json lists it; other subsets are left out."""
    from burstmamba.data.folders import BurstFolders

    path = folder / "openburst.json"
    if not path.is_file():
        raise InputError(f"{folder} has no openburst.json; for a folder of photographs say --layout photographs.")
    try:
        description = dict(json.loads(path.read_text()))
        written, names = set(description.get("subsets", subsets)), list(description.get("names", ()))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}); write it again with burstmamba openburst.") from None
    items = []
    for subset in subsets:
        if subset in written and (folder / subset).is_dir():
            bursts = BurstFolders(folder / subset)
            for name in names or bursts.names:
                items.append(openburst_item(subset, name, partial(bursts.load, folder / subset / "bursts" / name)))
    if not items:
        wanted = ", ".join(subsets)
        raise InputError(f"{folder} has none of the subsets {wanted}; write them with burstmamba openburst.")
    name = openburst_name(description.get("published", False), description.get("frames", 14))
    return Benchmark(name, tuple(items))


def openburst_item(subset: str, name: str, load: Callable[[], Sample]) -> Item:
    """A burst of OpenBurst with its protocol and grid."""
    centres = "corner" if subset == "raw-synburst" else "half-pixel"
    return Item(subset, name, OPENBURST_PROTOCOLS.get(subset, ("openburst",)), centres, load)


def _published(folder: Path, layout: str) -> Benchmark:
    from burstmamba.data.burstsr import BurstSR
    from burstmamba.data.realbsr import RealBSRRaw, RealBSRRGB
    from burstmamba.data.synthetic_burst import SyntheticBurstVal

    known: dict[str, tuple[type[BurstDataset], tuple[str, ...]]] = {
        "synburst": (SyntheticBurstVal, ("synburst-linear",)),
        "realbsr-rgb": (RealBSRRGB, ("realbsr-rgb", "realbsr-rgb-fbanet")),
        "realbsr-raw": (RealBSRRaw, ("realbsr-raw-linear", "realbsr-raw-vis")),
        "burstsr": (BurstSR, ("burstsr-aligned",)),
    }
    if layout not in known:
        raise InputError(f"unknown layout {layout!r}; the known ones are {', '.join(LAYOUTS)}.")
    dataset, protocols = known[layout]
    return _from_dataset(layout, dataset(folder), protocols)  # type: ignore[call-arg] (each takes a folder)


def _from_dataset(name: str, dataset: BurstDataset, protocols: tuple[str, ...]) -> Benchmark:
    items = [
        Item(name, folder.name, protocols, dataset.centres_of(folder), partial(dataset.load, folder))
        for folder in dataset.folders
    ]
    return Benchmark(name, tuple(items))


def _is_packed(path: Path) -> bool:
    """Whether a PNG has four channels of 16 bits, as packed mosaics do: bytes 24 and 25 of the file say so."""
    with open(path, "rb") as file:
        head = file.read(26)
    return len(head) == 26 and head[24] == 16 and head[25] == 6
