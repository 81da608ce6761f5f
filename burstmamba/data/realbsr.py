"""RealBSR-RGB and RealBSR-RAW in every naming they were published in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.data.datasets import FRAMES, BurstDataset, check_alike, check_frames_found
from burstmamba.data.pickles import read_pickle
from burstmamba.data.pictures import read_png
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.synthesis.sensor import unpack

BLACK, WHITE = 512.0, 16383.0
_TRUTH_FOLDERS = ("HR", "GT", "HR_aligned")
_LAYOUT = "folders like 000_0001 with 000_MFSR_Sony_0001_x1_00.png … and …_x4*.png beside them or below HR/ or GT/"


class RealBSR(BurstDataset):
    """What both sets share: finding the folders, frames and ground truth."""

    kind = "RealBSR"

    def __init__(
        self, root: Path | str, *, split: str = "test", frames: int | None = FRAMES, skip_bad: bool = False
    ) -> None:
        root = Path(root)
        published = (root / split, root / f"{split}patch")
        self.base = next((path for path in published if path.is_dir()), root)
        if not self.base.is_dir():
            raise InputError(f"{root} is not a folder; point to where {self.kind} was unpacked.")
        aligned = self.base / "LR_aligned"
        start = aligned if aligned.is_dir() else self.base
        folders = sorted({path.parent for path in start.rglob("*_x1_*.png")})
        if not folders:
            raise InputError(f"no {self.kind} bursts below {start}; expected {_LAYOUT}.")
        super().__init__(folders, skip_bad=skip_bad)
        self.frames = frames

    def frame_paths(self, folder: Path) -> list[Path]:
        """The frames in order; both published numberings (from 00 and from 01) sort the same way."""
        paths = sorted(folder.glob("*_x1_*.png"))
        check_frames_found(folder, paths, self.frames)
        return paths

    def truth_path(self, folder: Path) -> Path:
        """The one x4 picture that belongs to a burst."""
        places = [folder, *(self.base / name / folder.name for name in _TRUTH_FOLDERS)]
        found = [path for place in places for path in sorted(place.glob("*_x4*.png"))]
        if not found:
            raise InputError(f"no ground truth (*_x4*.png) for {folder}; looked there and below HR/ and GT/.")
        return found[0]


class RealBSRRGB(RealBSR):
    """8-bit RGB frames of 160×160 and ground truth of 640×640."""

    kind = "RealBSR-RGB"

    def load(self, folder: Path) -> Sample:
        """One burst, sRGB."""
        paths = self.frame_paths(folder)
        pixels = [read_png(path, channels=3, bits=8, swapped=False) for path in paths]
        check_alike(folder, [p.shape for p in pixels], paths)
        truth = read_png(self.truth_path(folder), channels=3, bits=8, swapped=False)
        check_scale(folder, pixels[0].shape, truth.shape, 4)
        frames = torch.stack([_tensor(p) / 255 for p in pixels])
        return Sample(frames[None], _tensor(truth)[None] / 255, cameras=(Camera(),), names=(folder.name,))


class RealBSRRaw(RealBSR):
    """Packed RGGB frames of 4×80×80 and linear ground truth of 640×640, 16 bit."""

    kind = "RealBSR-RAW"

    def load(self, folder: Path) -> Sample:
        """One burst as RGGB mosaics, black level removed, white 1."""
        paths = self.frame_paths(folder)
        pixels = [read_png(path, channels=4, bits=16, swapped=True) for path in paths]
        check_alike(folder, [p.shape for p in pixels], paths)
        truth = read_png(self.truth_path(folder), channels=3, bits=16, swapped=True)
        check_scale(folder, pixels[0].shape, truth.shape, 8)
        pickles = sorted(folder.glob("*.pkl"))
        meta = read_pickle(pickles[0]) if pickles else {}
        black = 0.0 if meta.get("black_level_subtracted", False) else BLACK
        frames = torch.stack([unpack(((_tensor(p) - black) / WHITE).clamp(0, 1)) for p in pixels])
        target = ((_tensor(truth) - black) / WHITE).clamp(0, 1)
        return Sample(frames[None], target[None], cameras=(_camera(meta),), names=(folder.name,))


def check_scale(folder: Path, frame: tuple[int, ...], truth: tuple[int, ...], scale: int) -> None:
    """Refuse a ground truth that is not `scale` times the size of a stored frame."""
    if truth[0] != scale * frame[0] or truth[1] != scale * frame[1]:
        raise InputError(
            f"the ground truth of {folder} is {truth[1]}×{truth[0]} where {scale * frame[1]}×{scale * frame[0]} "
            f"is expected for frames stored as {frame[1]}×{frame[0]}."
        )


def white_balance(gains: Any) -> tuple[float, float, float]:
    """Red, green = 1 and blue of a list of three (R, G, B) or four (R, G, G, B or R, G, B, G) gains."""
    values = np.asarray(gains, dtype=np.float64).ravel()
    if len(values) not in (3, 4) or values[1] <= 0:
        return (1.0, 1.0, 1.0)
    # Four gains end with blue in DBSR-style files; LibRaw's end with a second green or 0.
    blue = values[2] if len(values) == 3 or values[3] in (0.0, values[1]) else values[3]
    return (float(values[0] / values[1]), 1.0, float(blue / values[1]))


def _camera(meta: dict[str, Any]) -> Camera:
    return Camera("RGGB", linear=True, white_balance=white_balance(meta.get("cam_wb", (1, 1, 1))))


def _tensor(pixels: np.ndarray) -> Tensor:
    return torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1).contiguous()
