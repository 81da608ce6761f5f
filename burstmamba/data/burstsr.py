"""BurstSR: phone bursts with a DSLR's picture as ground truth (not registered to them)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.data.datasets import FRAMES, BurstDataset, burst_folders, check_alike, check_frames_found
from burstmamba.data.pickles import read_pickle
from burstmamba.data.pictures import read_png
from burstmamba.data.realbsr import check_scale, white_balance
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.synthesis.sensor import unpack

PHONE_WHITE, DSLR_WHITE = 1023.0, 16383.0


class BurstSR(BurstDataset):
    """`val/0000_0000/samsung_00/im_raw.png` … and `canon/im_raw.png`, each with a meta_info.pkl."""

    def __init__(
        self, root: Path | str, *, split: str = "val", frames: int | None = FRAMES, skip_bad: bool = False
    ) -> None:
        root = Path(root)
        base = root / split if (root / split).is_dir() else root
        folders = burst_folders(base, "BurstSR", f"{split}/0000_0000/samsung_00/im_raw.png and canon/im_raw.png")
        super().__init__(folders, skip_bad=skip_bad)
        self.frames = frames

    def load(self, folder: Path) -> Sample:
        """One burst as RGGB mosaics; the target is scaled to the phone's exposure."""
        shots = sorted(path for path in folder.glob("samsung_*") if re.fullmatch(r"samsung_\d+", path.name))
        check_frames_found(folder, shots, self.frames)
        paths = [shot / "im_raw.png" for shot in shots]
        pixels = [read_png(path, channels=4, bits=16, swapped=True) for path in paths]
        check_alike(folder, [p.shape for p in pixels], paths)
        phone, dslr = read_pickle(shots[0] / "meta_info.pkl"), read_pickle(folder / "canon" / "meta_info.pkl")
        truth = read_png(folder / "canon" / "im_raw.png", channels=3, bits=16, swapped=True)
        check_scale(folder, pixels[0].shape, truth.shape, 8)
        black = _black(phone, 4, folder)
        frames = torch.stack([unpack(((_tensor(p) - black) / PHONE_WHITE).clamp(0, 1)) for p in pixels])
        ratio = exposure_of(phone, folder) / exposure_of(dslr, folder)
        target = ((_tensor(truth) - _black(dslr, 3, folder)) / DSLR_WHITE * ratio).clamp(0, 1)
        camera = Camera("RGGB", linear=True, white_balance=white_balance(phone.get("cam_wb", (1, 1, 1))))
        return Sample(frames[None], target[None], cameras=(camera,), names=(folder.name,))


def exposure_of(meta: dict[str, Any], folder: Path) -> float:
    """Light that reached the sensor times its gain: t·ISO/f², from the EXIF of a meta_info."""
    exif = meta.get("exif_data", {})
    values = []
    for name in ("ExposureTime", "ISOSpeedRatings", "FNumber"):
        tag = exif.get(f"Image {name}", exif.get(f"EXIF {name}"))
        if tag is None or not len(tag.values):
            raise InputError(f"{folder} lacks the EXIF value {name}, which scales its ground truth.")
        values.append(float(tag.values[0]))
    time, iso, f_number = values
    return time * iso / f_number**2


def _black(meta: dict[str, Any], channels: int, folder: Path) -> Tensor:
    levels = np.asarray(meta.get("black_level", ()), dtype=np.float32).ravel()
    if len(levels) not in (3, 4):
        raise InputError(f"{folder} has no black_level of 3 or 4 numbers in its meta_info.pkl.")
    chosen = levels if len(levels) == channels else levels[[0, 1, -1]] if channels == 3 else levels[[0, 1, 1, 2]]
    return torch.from_numpy(chosen.copy())[:, None, None]


def _tensor(pixels: np.ndarray) -> Tensor:
    return torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1).contiguous()


def zurich_photographs(root: Path | str, split: str = "train") -> Path:
    """The folder of Zurich RAW-to-RGB's camera pictures, a source of photographs: `train/canon/0.jpg` …"""
    folder = Path(root) / split / "canon"
    if not folder.is_dir():
        raise InputError(f"{folder} is missing; point to the folder of Zurich RAW-to-RGB that holds train/ and test/.")
    return folder
