"""Bursts of photographs written to disk, one after the other."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from burstmamba.data.datasets import FRAMES
from burstmamba.data.folders import write_burst, write_maps
from burstmamba.data.photographs import photograph_tensor
from burstmamba.data.synthetic_burst import write_synthetic_burst
from burstmamba.errors import InputError
from burstmamba.folders import make_folder
from burstmamba.settings import change, split_setting
from burstmamba.synthesis import SynthesisConfig, synthesis_preset, synthesize_burst
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.synburst import synthesize_synburst

OWN_OPTIONS = {"pipeline": "--preset", "frames": "--frames", "maps": "--maps"}
"""Settings that are chosen otherwise, and how."""


def prepare_folder(folder: Path, *, force: bool) -> None:
    """Make a folder to write to; one with other files in it is refused unless asked for."""
    make_folder(folder)
    if not force and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; choose a new folder or add --force.")


@dataclass(frozen=True)
class BurstWriter:
    """Makes bursts of one kind and writes them in one layout."""

    root: Path
    config: SynthesisConfig
    layout: str
    size: int
    seed: int
    maps: bool
    settings: tuple[str, ...] = ()
    """Where `config` is not its preset."""

    @classmethod
    def prepare(
        cls,
        root: Path,
        *,
        preset: str,
        layout: str,
        frames: int,
        size: int,
        seed: int,
        nuisance: bool,
        maps: bool,
        settings: Sequence[str] = (),
    ) -> BurstWriter:
        """Check the wishes against each other; `settings` are changes to the preset, `key=value`."""
        config = replace(synthesis_preset(preset), frames=frames, maps="exact")
        config = config if nuisance else config.without_nuisance()
        for key, text in map(split_setting, settings):
            if key in OWN_OPTIONS:
                raise InputError(f"use {OWN_OPTIONS[key]} instead of --set {key}.")
            config = change(config, key, text)
        if layout not in ("folders", "synburst"):
            raise InputError(f"layout must be folders or synburst, got {layout!r}.")
        if layout == "synburst" and config.pipeline != "synburst":
            raise InputError(f"the synburst layout describes synburst bursts, not {preset}; add --preset synburst.")
        if layout == "synburst" and frames != FRAMES:
            raise InputError(
                f"the synburst layout holds bursts of {FRAMES} frames, got {frames}; "
                "leave --frames out, or take --layout folders."
            )
        if size < 8 or size % 2:
            raise InputError(f"frames need an even size of at least 8 pixels, got {size}.")
        return cls(root, config, layout, size, seed, maps, tuple(settings))

    @staticmethod
    def name(path: Path, repetition: int) -> str:
        """What a burst is called in plain folders."""
        return path.stem if repetition == 0 else f"{path.stem}-{repetition:02d}"

    def write(self, path: Path, repetition: int, number: int) -> None:
        """One burst of a photograph; every photograph and repetition has a place, a motion and a camera of its own.

        `number` names it in SyntheticBurst's layout, which counts its bursts.
        """
        name = self.name(path, repetition)
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {name}".encode()))
        photo = self._crop(photograph_tensor(path), path, generator)
        notes = {"photograph": path.name, "preset": self.config.pipeline, "seed": self.seed, "repetition": repetition}
        notes |= {"settings": self.settings} if self.settings else {}
        if self.layout == "synburst":
            sample, processing = synthesize_synburst(photo, self.config, Dice(generator, photo.device), cameras=True)
            root, name = self.root / "SyntheticBurstVal", f"{number:04d}"
            write_synthetic_burst(root, name, sample, processing)
            maps = root / "maps" / f"{name}.safetensors"
            maps.unlink(missing_ok=True)  # of an earlier burst of this name
            if self.maps and sample.exact is not None:
                write_maps(maps, sample.exact)
            return
        sample = synthesize_burst(photo, self.config, generator, cameras=True)
        write_burst(self.root, name, sample, maps=self.maps, notes=notes)

    def _crop(self, photo: Tensor, path: Path, generator: torch.Generator) -> Tensor:
        """(1, 3, H, W): a random place, as large as the frames need and the photograph allows."""
        try:
            sides = [self.config.source_size(min(self.size, self.config.lr_size(side))) for side in photo.shape[1:]]
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        room = [have - want for have, want in zip(photo.shape[1:], sides, strict=True)]
        top, left = (int(torch.randint(r + 1, (), generator=generator)) for r in room)
        return photo[None, :, top : top + sides[0], left : left + sides[1]]
