"""The bundled example bursts: where they are, and how the RAW one was made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from burstmamba.data.mosaic_dng import write_mosaic_dng
from burstmamba.data.photographs import photograph_tensor
from burstmamba.errors import InputError
from burstmamba.synthesis import synthesis_preset, synthesize_burst

EXAMPLES = Path(__file__).parent.parent / "examples"


def example_burst(name: str) -> Path:
    """The folder with the frames of a bundled burst, such as `fig` (RGB) or `dogs-raw` (DNG)."""
    names = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
    if name not in names:
        raise InputError(f"no example burst {name!r}; there are {', '.join(names)}.")
    return EXAMPLES / name


def make_raw_example(photograph: Path, out: Path = EXAMPLES / "dogs-raw") -> None:
    """Make `dogs-raw` again: 8 DNGs of 128×160 pixels around the two heads of the photograph `dogs`."""
    config = replace(
        synthesis_preset("handheld-raw").without_nuisance(),
        frames=8,
        shift=(3.0, 3.0),
        shot=(3e-4, 3.1e-4),
        lens_blur=(0.7, 0.8),
        exposure_drift=0.0,
        maps="exact",
    )
    photo = photograph_tensor(photograph)
    w, h = config.source_size(128), config.source_size(160)
    top, left = max(660 - h // 2, 0), max(490 - w // 2, 0)
    crop = photo[None, :, top : top + h, left : left + w]
    sample = synthesize_burst(crop, config, torch.Generator().manual_seed(2), cameras=True)
    for i, frame in enumerate(sample.frames[0]):
        write_mosaic_dng(out / f"{i:02d}.dng", frame, sample.cameras[0])
