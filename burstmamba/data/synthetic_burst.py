"""SyntheticBurst's validation set on disk: reading both published archives, and writing the layout."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.data.datasets import FRAMES, BurstDataset, burst_folders, check_alike, check_frames_found
from burstmamba.data.pickles import read_pickle
from burstmamba.data.pictures import read_png, write_png, write_whole
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.synthesis.sensor import pack, unpack
from burstmamba.synthesis.unprocess import Processing

LEVELS = 2**14
"""A value of 1 on disk."""
_LAYOUT = (
    "SyntheticBurstVal/bursts/0000/im_raw_00.png … with SyntheticBurstVal/gt/0000/im_rgb.png, or 0000/im_raw_00.png …"
)


class SyntheticBurstVal(BurstDataset):
    """`bursts/0000/im_raw_00.png` … with `gt/0000/im_rgb.png` and meta_info.pkl, or the older archive without truth."""

    centres = "corner"

    def __init__(self, root: Path | str, *, frames: int | None = FRAMES, skip_bad: bool = False) -> None:
        root = Path(root)
        nested = [root / "SyntheticBurstVal", root / "syn_burst_val", root]
        self.root = next((path for path in nested if path.is_dir()), root)
        inside = self.root / "bursts"
        folders = burst_folders(inside if inside.is_dir() else self.root, "SyntheticBurst", _LAYOUT)
        super().__init__(folders, skip_bad=skip_bad)
        self.frames = frames

    def load(self, folder: Path) -> Sample:
        """One burst with its ground truth."""
        truth = self.root / "gt" / folder.name
        if not (truth / "im_rgb.png").is_file():
            raise InputError(
                f"{truth / 'im_rgb.png'} is missing: the older archive has no ground truth; "
                "use .burst() for its frames alone."
            )
        burst = self.burst(folder)
        target = _values(read_png(truth / "im_rgb.png", channels=3, bits=16, swapped=True))
        h, w = burst.size
        if target.shape[-2:] != (4 * h, 4 * w):
            size = f"{target.shape[-1]}×{target.shape[-2]}"
            raise InputError(f"{truth} is {size} where ×4 of the {w}×{h} mosaic is expected.")
        return Sample(burst.frames[None], target[None], cameras=(burst.camera,), names=(folder.name,), centres="corner")

    def burst(self, folder: Path) -> Burst:
        """The frames of one burst as RGGB mosaics, with its camera where meta_info.pkl tells."""
        paths = sorted(folder.glob("im_raw_*.png"))
        check_frames_found(folder, paths, self.frames)
        packed = [read_png(path, channels=4, bits=16, swapped=True) for path in paths]
        check_alike(folder, [p.shape for p in packed], paths)
        frames = torch.stack([unpack(_values(p)) for p in packed])
        metas = [self.root / "gt" / folder.name / "meta_info.pkl", folder / "meta_info.pkl"]
        meta = next((path for path in metas if path.is_file()), None)
        camera = camera_of(read_pickle(meta)) if meta else Camera("RGGB", linear=True)
        return Burst(frames, camera, tuple(path.name for path in paths))


def _values(pixels: np.ndarray) -> Tensor:
    """(h, w, c) uint16 → (c, h, w) float, 1 = 2¹⁴."""
    return torch.from_numpy(pixels.astype(np.float32) / LEVELS).permute(2, 0, 1).contiguous()


def camera_of(meta: dict[str, Any]) -> Camera:
    """The camera that a meta_info describes; parts that are missing keep their defaults."""
    wanted = ("red_gain", "blue_gain", "cam2rgb", "shot_noise_level", "read_noise_level")
    if not all(key in meta for key in wanted):
        return Camera("RGGB", linear=True)
    red, blue, matrix, shot, read = (np.asarray(meta[key], dtype=np.float64) for key in wanted)
    rows = tuple(tuple(float(v) for v in row) for row in matrix.reshape(3, 3))
    return Camera("RGGB", True, (float(red), 1.0, float(blue)), rows, (float(shot), float(read)))  # type: ignore[arg-type] (3×3)


def write_synthetic_burst(root: Path, name: str, sample: Sample, processing: Processing) -> None:
    """Write the first burst of a sample in the benchmark's layout, instead of an earlier one of this name.

    Args:
        root: becomes SyntheticBurstVal.
        name: such as "0000".
        sample: RGGB mosaics and the linear target.
        processing: the camera pipeline drawn for it, which meta_info.pkl describes.
    """
    for old in (root / "bursts" / name).glob("im_raw_*.png"):
        old.unlink()
    for i, frame in enumerate(sample.frames[0].cpu()):
        write_png(root / "bursts" / name / f"im_raw_{i:02d}.png", _levels(pack(frame)), swapped=True)
    write_png(root / "gt" / name / "im_rgb.png", _levels(sample.target[0].cpu()), swapped=True)
    meta = {
        "rgb2cam": processing.rgb2cam[0].cpu(),
        "cam2rgb": processing.cam2rgb[0].cpu(),
        "rgb_gain": float(processing.rgb_gain[0]),
        "red_gain": float(processing.red_gain[0]),
        "blue_gain": float(processing.blue_gain[0]),
        "smoothstep": True,
        "gamma": True,
        "shot_noise_level": float(processing.shot[0]),
        "read_noise_level": float(processing.read[0]),
    }
    write_whole(root / "gt" / name / "meta_info.pkl", pickle.dumps(meta, protocol=4))


def _levels(values: Tensor) -> np.ndarray:
    return (values.clamp(0, 1) * LEVELS).permute(1, 2, 0).numpy().astype(np.uint16)
