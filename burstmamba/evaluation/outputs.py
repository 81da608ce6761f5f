"""Pictures that another method has written, found by the burst's name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from burstmamba.errors import InputError

SUFFIXES = (".png", ".tif", ".tiff", ".npy", ".jpg", ".jpeg")

LINEAR_WHITE = 2**14
"""What 1 is in 16-bit files of linear pictures, as in those of the linear benchmarks."""
FLOAT_LIMIT = 10.0
"""A picture of floats that goes beyond is no overshoot; its values are in 0…255 or 0…65535."""


def read_output(
    folder: Path, subset: str, name: str, size: tuple[int, int], *, linear: bool, swapped: bool = False
) -> Tensor:
    """Another method's picture of one burst.

    Args:
        folder: holds `SUBSET/NAME.png` or `NAME.png` (also .tif, .jpg, and .npy of shape (3, h, w) or (h, w, 3)).
        subset: name of the subset.
        name: name of the burst.
        size: expected (height, width).
        linear: whether 16-bit files hold x·2¹⁴, as the linear benchmarks' files do.
        swapped: red and blue are exchanged, as OpenCV does to arrays in R, G, B order (DBSR's scripts write so).

    Returns:
        (3, h, w) in [0, 1].
    """
    path = find_output(folder, subset, name)
    read = read_array if path.suffix == ".npy" else read_picture
    image = read(path, white=LINEAR_WHITE if linear else 65535)
    if tuple(image.shape) != (3, *size):
        raise InputError(
            f"{path.name} is {image.shape[-1]}×{image.shape[-2]} with {image.shape[0]} channel(s); "
            f"an RGB picture of {size[1]}×{size[0]} is expected."
        )
    return image.flip(0) if swapped and path.suffix != ".npy" else image


def find_output(folder: Path, subset: str, name: str) -> Path:
    """Where the picture lies."""
    for parent in (folder / subset, folder):
        for suffix in SUFFIXES:
            if (path := parent / f"{name}{suffix}").is_file():
                return path
    raise InputError(f"no picture {subset}/{name}.png or {name}.png in {folder}.")


def read_picture(path: Path, *, white: int = 65535) -> Tensor:
    """An RGB file as (3, h, w); 255 is 1 in 8-bit files, `white` in 16-bit ones, 1 in files of floats."""
    import cv2

    content = path.read_bytes()
    pixels = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED) if content else None
    cut_off = content.startswith(b"\xff\xd8") and b"\xff\xd9" not in content[-64:]  # OpenCV fills up such a JPEG
    if pixels is None or cut_off:
        raise InputError(f"{path.name} cannot be read; it is damaged or not an image.")
    if pixels.ndim != 3 or pixels.shape[2] < 3:
        raise InputError(f"{path.name} is not an RGB picture.")
    return _scaled(path, pixels[..., 2::-1].transpose(2, 0, 1), white)


def read_array(path: Path, *, white: int = 65535) -> Tensor:
    """A .npy file as (3, h, w), with the same scales."""
    try:
        pixels = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path.name} cannot be read ({error}).") from None
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 3 or 3 not in (pixels.shape[0], pixels.shape[2]):
        raise InputError(f"{path.name} is not an RGB picture; (3, h, w) or (h, w, 3) is expected.")
    return _scaled(path, pixels if pixels.shape[0] == 3 else pixels.transpose(2, 0, 1), white)


def _scaled(path: Path, pixels: np.ndarray, white: int) -> Tensor:
    tops = {"uint8": 255, "uint16": white, "float16": 1, "float32": 1, "float64": 1}
    if pixels.dtype.name not in tops:
        raise InputError(f"{path.name} holds {pixels.dtype.name}; 8 or 16 bits without sign or floats are expected.")
    if pixels.dtype.kind == "f" and pixels.max() > FLOAT_LIMIT:
        raise InputError(f"{path.name} has floats up to {pixels.max():.4g} where [0, 1] is expected; divide them.")
    return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32) / tops[pixels.dtype.name])
