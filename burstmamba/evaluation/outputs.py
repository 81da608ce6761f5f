"""Pictures that another method has written, found by the burst's name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from burstmamba.errors import InputError

SUFFIXES = (".png", ".tif", ".tiff", ".npy", ".jpg", ".jpeg")


def read_output(folder: Path, subset: str, name: str, size: tuple[int, int], *, linear: bool) -> Tensor:
    """Another method's picture of one burst.

    Args:
        folder: holds `SUBSET/NAME.png` or `NAME.png` (also .tif, .npy, .jpg).
        subset: name of the subset.
        name: name of the burst.
        size: expected (height, width).
        linear: whether 16-bit files hold x·2¹⁴, as the linear benchmarks' files do.

    Returns:
        (3, h, w) in [0, 1].
    """
    path = find_output(folder, subset, name)
    if path.suffix == ".npy":
        pixels = np.load(path, allow_pickle=False)
        pixels = pixels if pixels.ndim == 3 and pixels.shape[0] == 3 else pixels.transpose(2, 0, 1)
        image = torch.from_numpy(np.ascontiguousarray(pixels)).float()
    else:
        image = read_picture(path, white=2**14 if linear else 65535)
    if tuple(image.shape) != (3, *size):
        raise InputError(
            f"{path.name} is {image.shape[-1]}×{image.shape[-2]} with {image.shape[0]} channel(s); "
            f"an RGB picture of {size[1]}×{size[0]} is expected."
        )
    return image


def find_output(folder: Path, subset: str, name: str) -> Path:
    """Where the picture lies."""
    for parent in (folder / subset, folder):
        for suffix in SUFFIXES:
            if (path := parent / f"{name}{suffix}").is_file():
                return path
    raise InputError(f"no picture {subset}/{name}.png or {name}.png in {folder}.")


def read_picture(path: Path, *, white: int = 65535) -> Tensor:
    """An RGB file as (3, h, w); 255 is 1 in 8-bit files, `white` in 16-bit ones."""
    import cv2

    pixels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise InputError(f"{path.name} cannot be read; it is damaged or not an image.")
    if pixels.ndim != 3 or pixels.shape[2] < 3:
        raise InputError(f"{path.name} is not an RGB picture.")
    white = 255 if pixels.dtype == np.uint8 else white
    pixels = np.ascontiguousarray(pixels[..., 2::-1].transpose(2, 0, 1))
    return torch.from_numpy(pixels.astype(np.float32) / white)
