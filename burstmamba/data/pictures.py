"""PNG files of data sets: exact channel order and depth, checked; written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import cv2
import numpy as np

from burstmamba.errors import InputError
from burstmamba.files.saving import not_written

_END = b"IEND\xaeB`\x82"


def read_png(path: Path, *, channels: int, bits: int, swapped: bool) -> np.ndarray:
    """A PNG with exactly these channels and this depth.

    Args:
        path: the file.
        channels: 1, 3 or 4.
        bits: 8 or 16.
        swapped: the file was written by OpenCV from an array in R, G, B order, as the RAW benchmarks' were, so that
            the file's own labels are exchanged; False for files in the usual order.

    Returns:
        (h, w, channels) uint8 or uint16, first channel red.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the data set.") from error
    if not data.startswith(b"\x89PNG"):
        raise InputError(f"{path} is not a PNG file; unpack the data set again.")
    if _END not in data[-64:]:
        raise InputError(f"{path} is cut off after {len(data)} bytes; unpack or download it again.")
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise InputError(f"{path} is damaged; unpack or download it again.")
    found_bits = 8 * pixels.dtype.itemsize
    found_channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if (found_bits, found_channels) != (bits, channels):
        raise InputError(
            f"{path} should have {channels} channel(s) of {bits} bits, got {found_channels} of {found_bits}; "
            "it is not in the data set's layout."
        )
    pixels = pixels.reshape(*pixels.shape[:2], channels)
    return pixels if swapped or channels == 1 else np.ascontiguousarray(pixels[..., _red_first(channels)])


def png_bits(path: Path) -> int:
    """16 for a PNG with 16 bits a channel, which byte 24 of the file says; otherwise 8."""
    with open(path, "rb") as stream:
        return 16 if stream.read(25)[24:] == b"\x10" else 8


def write_png(path: Path, pixels: np.ndarray, *, swapped: bool = False) -> None:
    """Write (h, w, 1, 3 or 4) uint8 or uint16; `swapped` as for `read_png`."""
    channels = pixels.shape[2]
    if not swapped and channels > 1:
        pixels = pixels[..., _red_first(channels)]
    done, data = cv2.imencode(".png", np.ascontiguousarray(pixels))
    if not done:
        raise InputError(f"{path} could not be encoded as PNG.")
    write_whole(path, data.tobytes())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name first, so that nobody finds half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:  # Ctrl-C, too, leaves no half file
            os.unlink(temporary)
            raise
    except OSError as error:
        raise not_written(path, error) from error


def _red_first(channels: int) -> list[int]:
    return [2, 1, 0, 3][:channels]
