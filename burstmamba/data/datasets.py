"""What all data sets of bursts share: a list of names, one Sample for each, and what to do with bad files."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Iterator

from burstmamba.data.sample import Sample
from burstmamba.errors import InputError

log = logging.getLogger(__name__)

FRAMES = 14
"""Frames of a burst in every published benchmark."""


class BurstDataset(ABC):
    """Bursts with ground truth on disk; frame 0 is the keyframe; every item is a batch of one."""

    centres = "half-pixel"
    """How the target's grid lies on the keyframe's: `"half-pixel"` or `"corner"`."""

    def __init__(self, folders: list[Path], *, skip_bad: bool = False) -> None:
        self.folders = tuple(folders)
        self.skip_bad = skip_bad

    def __len__(self) -> int:
        return len(self.folders)

    def __getitem__(self, index: int) -> Sample:
        return self.load(self.folders[index])

    def __iter__(self) -> Iterator[Sample]:
        """Every burst; with `skip_bad`, those that cannot be read are left out with a warning."""
        for folder in self.folders:
            try:
                yield self.load(folder)
            except InputError as error:
                if not self.skip_bad:
                    raise
                log.warning("left out: %s", error)

    @property
    def names(self) -> tuple[str, ...]:
        """One for each burst."""
        return tuple(folder.name for folder in self.folders)

    def centres_of(self, folder: Path) -> str:
        """How the target of one burst lies on its keyframe, without reading its pictures."""
        return self.centres

    @abstractmethod
    def load(self, folder: Path) -> Sample:
        """Read one burst."""


def burst_folders(root: Path, kind: str, layout: str) -> list[Path]:
    """The folders below `root`, sorted; `kind` and `layout` say what was expected when there are none."""
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    if not folders:
        raise InputError(f"no {kind} bursts in {root}; expected {layout}.")
    return folders


def check_frames_found(folder: Path, found: list[Path], expected: int | None) -> None:
    """Refuse a burst with too few or too many frames, saying how many there are."""
    if expected is None and not found:
        raise InputError(f"{folder} has no frames that can be read here.")
    if expected is not None and len(found) != expected:
        raise InputError(
            f"{folder} has {len(found)} frames where {expected} are expected; restore the missing ones, "
            "remove what does not belong, or leave the burst out with --skip-bad."
        )


def check_alike(folder: Path, shapes: list[tuple[int, ...]], paths: list[Path]) -> None:
    """Refuse a burst whose frames differ in size, naming the first odd one."""
    for shape, path in zip(shapes, paths, strict=True):
        if shape != shapes[0]:
            raise InputError(
                f"{path} is {shape[1]}×{shape[0]} where {paths[0].name} is {shapes[0][1]}×{shapes[0][0]}; "
                f"frames of one burst must have one size ({folder.name})."
            )


def open_dataset(kind: str, root: Path | str, *, split: str = "test", skip_bad: bool = False) -> BurstDataset:
    """A data set by name.

    Args:
        kind: synburst-val, realbsr-rgb, realbsr-raw, burstsr or folders.
        root: where it was unpacked.
        split: train, val or test, where the data set has them.
        skip_bad: leave out bursts that cannot be read.
    """
    from burstmamba.data.burstsr import BurstSR
    from burstmamba.data.folders import BurstFolders
    from burstmamba.data.realbsr import RealBSRRaw, RealBSRRGB
    from burstmamba.data.synthetic_burst import SyntheticBurstVal

    root = Path(root)
    known = {
        "synburst-val": lambda: SyntheticBurstVal(root, skip_bad=skip_bad),
        "realbsr-rgb": lambda: RealBSRRGB(root, split=split, skip_bad=skip_bad),
        "realbsr-raw": lambda: RealBSRRaw(root, split=split, skip_bad=skip_bad),
        "burstsr": lambda: BurstSR(root, split="val" if split == "test" else split, skip_bad=skip_bad),
        "folders": lambda: BurstFolders(root, skip_bad=skip_bad),
    }
    if kind not in known:
        raise InputError(f"no data set of kind {kind!r}; choose one of {', '.join(known)}.")
    return known[kind]()
