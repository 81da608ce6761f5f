"""Plain folders of bursts with ground truth and maps, for this program and any other.

bursts/NAME/00.png …      RGB of 8 or 16 bits, or 00.dng … for mosaics; 00 is the keyframe
bursts/NAME/burst.json    the camera, and how the target lies on the keyframe
truth/NAME.png            8-bit sRGB, or 16-bit linear camera RGB for mosaics
maps/NAME.safetensors     to_frame, to_keyframe, confidence: (l, 2 or 1, h, w), pixels, x then y
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.correspondence.field import Correspondence
from burstmamba.data.datasets import BurstDataset, burst_folders, check_alike, check_frames_found
from burstmamba.data.mosaic_dng import read_mosaic_dng, write_mosaic_dng
from burstmamba.data.pictures import png_bits, read_png, write_png, write_whole
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError

_MAPS = ("to_frame", "to_keyframe", "confidence")


def write_burst(
    root: Path, name: str, sample: Sample, *, maps: bool = True, notes: dict[str, Any] | None = None
) -> None:
    """Write the first burst of a sample below `root`, instead of an earlier one of this name.

    `notes` are added to burst.json.
    """
    frames, target = sample.frames[0].cpu(), sample.target[0].cpu()
    raw = frames.shape[1] == 1
    camera = sample.burst().camera
    levels = frames * 255
    bits = 8 if (levels - levels.round()).abs().max() < 1e-3 else 16
    folder = root / "bursts" / name
    for old in (*folder.glob("*.png"), *folder.glob("*.dng"), _maps_path(root, name)):
        old.unlink(missing_ok=True)
    for i, frame in enumerate(frames):
        if raw:
            write_mosaic_dng(folder / f"{i:02d}.dng", frame, camera)
        else:
            write_png(folder / f"{i:02d}.png", _levels(frame, bits))
    write_png(root / "truth" / f"{name}.png", _levels(target, 16 if raw else 8))
    if maps and sample.exact is not None:
        write_maps(_maps_path(root, name), sample.exact)
    content = {"centres": sample.centres, "camera": dataclasses.asdict(camera), **(notes or {})}
    write_whole(folder / "burst.json", (json.dumps(content, indent=2) + "\n").encode())


def _maps_path(root: Path, name: str) -> Path:
    return root / "maps" / f"{name}.safetensors"


def write_maps(path: Path, maps: Correspondence) -> None:
    """Write the first burst's maps."""
    tensors = {key: getattr(maps, key) for key in _MAPS if getattr(maps, key) is not None}
    write_whole(path, safetensors.torch.save({key: value[0].cpu().contiguous() for key, value in tensors.items()}))


class BurstFolders(BurstDataset):
    """Bursts as `write_burst` leaves them; burst.json and maps may be missing."""

    def __init__(self, root: Path | str, *, frames: int | None = None, skip_bad: bool = False) -> None:
        self.root = Path(root)
        folders = burst_folders(self.root / "bursts", "plain", "bursts/NAME/00.png … with truth/NAME.png")
        super().__init__(folders, skip_bad=skip_bad)
        self.frames = frames

    def centres_of(self, folder: Path) -> str:
        """As burst.json says."""
        try:
            return _description(folder / "burst.json", raw=False)[1]
        except InputError:  # a damaged one is complained about by `load`
            return self.centres

    def load(self, folder: Path) -> Sample:
        """One burst, with exact maps where they were stored."""
        paths = sorted((*folder.glob("*.png"), *folder.glob("*.dng")))
        check_frames_found(folder, paths, self.frames)
        if len({path.suffix for path in paths}) > 1:
            raise InputError(f"{folder} holds PNG and DNG files; a burst has frames of one kind.")
        raw = paths[0].suffix == ".dng"
        frames = [_read_frame(path) for path in paths]
        check_alike(folder, [frame.shape[1:] for frame in frames], paths)
        camera, centres = _description(folder / "burst.json", raw)
        truth = self.root / "truth" / f"{folder.name}.png"
        bits = 16 if raw else 8
        target = _values(read_png(truth, channels=3, bits=bits, swapped=False), bits)
        h, w = frames[0].shape[1:]
        if target.shape[-2] % h or target.shape[-1] % w:
            size = f"{target.shape[-1]}×{target.shape[-2]}"
            raise InputError(f"{truth} is {size}, which is no whole multiple of the {w}×{h} frames.")
        exact = _read_maps(_maps_path(self.root, folder.name), (len(frames), h, w))
        return Sample(torch.stack(frames)[None], target[None], exact, exact, (camera,), (folder.name,), centres)


def _read_frame(path: Path) -> Tensor:
    if path.suffix == ".dng":
        return torch.from_numpy(read_mosaic_dng(path))[None].clamp(0, 1)
    bits = png_bits(path)
    return _values(read_png(path, channels=3, bits=bits, swapped=False), bits)


def _description(path: Path, raw: bool) -> tuple[Camera, str]:
    plain = Camera("RGGB", linear=True) if raw else Camera()
    if not path.is_file():
        return plain, "half-pixel"
    try:
        content = json.loads(path.read_text())
        fields = content["camera"]
        camera = Camera(
            fields["cfa"],
            bool(fields["linear"]),
            tuple(map(float, fields["white_balance"])),  # type: ignore[arg-type] (lengths)
            tuple(tuple(map(float, row)) for row in fields["color_matrix"]),  # type: ignore[arg-type] (lengths)
            None if fields["noise"] is None else tuple(map(float, fields["noise"])),  # type: ignore[arg-type] (lengths)
        )
        return camera, str(content["centres"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not describe a burst ({error!r}); make it again or remove it.") from error


def _read_maps(path: Path, size: tuple[int, int, int]) -> Correspondence | None:
    if not path.is_file():
        return None
    try:
        tensors = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}); make it again or remove it.") from error
    l, h, w = size
    for key, channels in zip(_MAPS, (2, 2, 1), strict=True):
        if key in tensors and tuple(tensors[key].shape) != (l, channels, h, w):
            raise InputError(f"{key} of {path} should be {(l, channels, h, w)}, got {tuple(tensors[key].shape)}.")
    if not {"to_frame", "to_keyframe"} <= tensors.keys():
        raise InputError(f"{path} should hold to_frame and to_keyframe, got {', '.join(sorted(tensors))}.")
    confidence = tensors["confidence"][None] if "confidence" in tensors else None
    return Correspondence(tensors["to_frame"][None], tensors["to_keyframe"][None], confidence)


def _levels(values: Tensor, bits: int) -> np.ndarray:
    scaled = (values.clamp(0, 1).double() * (2**bits - 1)).round()
    return scaled.permute(1, 2, 0).numpy().astype(np.uint16 if bits == 16 else np.uint8)


def _values(pixels: np.ndarray, bits: int) -> Tensor:
    return torch.from_numpy(pixels.astype(np.float32) / (2**bits - 1)).permute(2, 0, 1).contiguous()
