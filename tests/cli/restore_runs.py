"""Bursts and a tiny network for tests that run the command as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import tifffile
import torch
from PIL import Image

from burstmamba.checkpoint import save_checkpoint
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset


def tiny_checkpoint(path: Path, name: str = "tiny", learnt: float = 0.5) -> Path:
    """A small random network that mostly interpolates: its learnt part is scaled down to `learnt`."""
    torch.manual_seed(0)
    model = BurstMamba(replace(preset(name), channels=8, blocks=(1,), head_channels=4, burst_channels=4))
    for parameter in model.keyframe.parameters():
        parameter.data *= learnt
    save_checkpoint(path, model)
    return path


def scene(height: int = 80, width: int = 96, seed: int = 0) -> np.ndarray:
    """(height, width, 3) uint8 with texture that can be aligned."""
    noise = np.random.default_rng(seed).random((height // 4, width // 4, 3))
    return np.asarray(Image.fromarray((noise * 255).astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC))


def write_burst(
    folder: Path, count: int = 3, height: int = 40, width: int = 48, ending: str = "png", seed: int = 0
) -> Path:
    """Frames of one scene, each shifted by a few pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = scene(height + 16, width + 16, seed)
    for i in range(count):
        frame = whole[i : i + height, 2 * i : 2 * i + width]
        Image.fromarray(frame).save(folder / f"shot {i}.png")
    return folder


def command(
    *arguments: object, limit_bytes: int | None = None, encoding: str = "utf-8"
) -> subprocess.CompletedProcess[str]:
    """Run `burstmamba ARGUMENTS` in a process of its own."""
    call = [sys.executable, "-m", "burstmamba", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONIOENCODING": encoding}
    if limit_bytes is not None:
        call = ["bash", "-c", f'ulimit -f {limit_bytes // 1024}; exec "$@"', "_", *call]
    return subprocess.run(
        call, capture_output=True, text=True, encoding=encoding, timeout=240, env=environment, check=False
    )


def write_dng_burst(folder: Path, cfa: str = "RGGB", count: int = 2) -> Path:
    """DNG frames of a flat reddish card with some texture, white balance (2, 1, 1.5), sRGB primaries."""
    folder.mkdir(parents=True, exist_ok=True)
    xyz_from_srgb = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    gains = np.array([2.0, 1.0, 1.5])
    matrix = np.diag(1 / gains) @ np.linalg.inv(xyz_from_srgb)
    texture = scene(56, 64).mean(2, keepdims=True) / 255 * 0.2 + 0.3
    light = texture * np.array([1.2, 0.8, 0.6]) / gains  # (56, 64, 3) camera RGB
    for i in range(count):
        frame, mosaic = light[2 * i : 2 * i + 48, 2 * i : 2 * i + 52], np.zeros((48, 52))
        for k, colour in enumerate(cfa):
            mosaic[k // 2 :: 2, k % 2 :: 2] = frame[k // 2 :: 2, k % 2 :: 2, "RGB".index(colour)]
        tags = [
            (50706, 1, 4, bytes((1, 4, 0, 0)), True),
            (50708, 2, None, "Acme Testcam", True),
            (50714, 3, 1, 256, True),
            (50717, 3, 1, 3840, True),
            (50721, 10, 9, tuple(part for value in matrix.ravel() for part in (round(value * 10000), 10000)), True),
            (50728, 5, 3, tuple(part for gain in gains for part in (round(10000 / gain), 10000)), True),
            (50778, 3, 1, 21, True),
            (33421, 3, 2, (2, 2), True),
            (33422, 1, 4, bytes("RGB".index(colour) for colour in cfa), True),
        ]
        pixels = (256 + mosaic * (3840 - 256)).round().astype(np.uint16)
        tifffile.imwrite(folder / f"raw{i}.dng", pixels, photometric=32803, extratags=tags, metadata=None)
    return folder
