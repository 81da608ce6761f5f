"""Writing images: atomically, with the source's EXIF and colour profile, in the format the name asks for."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import cv2
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.errors import InputError
from burstmamba.files.dng import dng_tags
from burstmamba.files.metadata import SourceMetadata, exif_for_size
from burstmamba.files.tiff import UNDEFINED, Entry, read_directory, rows_per_strip, write_tiff

# Ending → (format, bit depths, longest side that the format can hold).
FORMATS = {
    ".png": ("PNG", (8, 16), 2**31 - 1),
    ".tif": ("TIFF", (8, 16), 2**32 - 1),
    ".tiff": ("TIFF", (8, 16), 2**32 - 1),
    ".jpg": ("JPEG", (8,), 65500),
    ".jpeg": ("JPEG", (8,), 65500),
    ".webp": ("WEBP", (8,), 16383),
    ".avif": ("AVIF", (8,), 65535),
    ".dng": ("DNG", (16,), 2**32 - 1),
}
QUALITY = {"JPEG": 95, "WEBP": 92, "AVIF": 85}


def save_image(
    path: str | os.PathLike[str],
    image: Tensor,
    *,
    bits: int | None = None,
    metadata: SourceMetadata | None = None,
    camera: Camera | None = None,
    quality: int | None = None,
    force: bool = False,
) -> Path:
    """Write an image in the format of the name's ending; the file appears whole or not at all.

    Args:
        path: ends in .png, .tif, .tiff, .jpg, .jpeg, .webp, .avif or .dng.
        image: (3, h, w) in [0, 1], upright; values outside are clipped. For .dng linear camera RGB.
        bits: 8 or 16; None takes 8, and 16 for .dng.
        metadata: of the source: its EXIF and colour profile are kept, with orientation 1 and the new size.
        camera: whose colours a .dng holds.
        quality: 1 to 100 for JPEG, WebP and AVIF; None takes 95, 92 and 85.
        force: replace an existing file.

    Returns:
        The path written.
    """
    path = check_output(path, bits=bits, force=force)
    kind, depths, longest = FORMATS[path.suffix.lower()]
    bits = bits or depths[0]
    image = _checked(image)
    height, width = image.shape[1:]
    if max(height, width) > longest:
        raise InputError(f"{kind} holds at most {longest} pixels a side, the image is {width}×{height}; save a PNG.")
    tags = dng_tags(camera, _model(metadata)) if kind == "DNG" else {}
    with _written_whole(path) as stream:
        if kind in ("TIFF", "DNG"):
            _write_tiff(stream, image, bits, metadata, tags, compress=kind == "TIFF")
        elif kind == "PNG":
            stream.write(_png(image, bits, metadata))
        else:
            _write_pillow(stream, image, kind, metadata, quality or QUALITY[kind])
    return path


def check_output(path: str | os.PathLike[str], *, bits: int | None = None, force: bool = False) -> Path:
    """Refuse an output that could not be written, before any long work is done for it.

    Returns:
        The path.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path.name} must end in one of {', '.join(FORMATS)}, got {path.suffix or 'no ending'!r}.")
    kind, depths, _ = FORMATS[path.suffix.lower()]
    if bits is not None and bits not in depths:
        raise InputError(f"{kind} holds {depths[0]}-bit samples, {bits} were asked for; {_other_choice(bits)}.")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it.")
    if path.exists() and not force:
        raise InputError(f"{path} exists already; choose another name or allow replacing it with --force.")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"the folder {folder} does not exist; create it first.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"the folder {folder} cannot be written to; choose another one.")
    return path


def _other_choice(bits: int) -> str:
    return "16 bits go into .png, .tif or .dng" if bits == 16 else "8 and 16 are possible"


def _checked(image: Tensor) -> Tensor:
    image = torch.as_tensor(image)
    if image.ndim != 3 or image.shape[0] != 3 or 0 in image.shape or not image.is_floating_point():
        raise InputError(
            f"image must be a floating-point tensor (3, h, w) in [0, 1], got {image.dtype} {tuple(image.shape)}."
        )
    return image.detach()


def _blocks(image: Tensor, bits: int, rows: int) -> Iterator[np.ndarray]:
    """(n, w, 3) uint8 or uint16, a few rows at a time: memory does not grow with the image."""
    white = 2**bits - 1
    for top in range(0, image.shape[1], rows):
        block = image[:, top : top + rows].to("cpu", torch.float32)
        if not torch.isfinite(block).all():
            raise InputError("the image contains NaN or infinite values and was not saved.")
        levels = block.clamp(0, 1).mul(white).round().permute(1, 2, 0)
        yield levels.numpy().astype(np.uint8 if bits == 8 else np.uint16)


def _levels(image: Tensor, bits: int) -> np.ndarray:
    """(h, w, 3) uint8 or uint16."""
    levels = np.empty((*image.shape[1:], 3), np.uint8 if bits == 8 else np.uint16)
    top = 0
    for block in _blocks(image, bits, rows=256):
        levels[top : top + len(block)] = block
        top += len(block)
    return levels


def _exif(image: Tensor, metadata: SourceMetadata | None) -> bytes:
    return exif_for_size(metadata, image.shape[2], image.shape[1]).tobytes()


def _model(metadata: SourceMetadata | None) -> str | None:
    return exif_for_size(metadata, 0, 0).get(0x0110)


def _write_tiff(
    stream: BinaryIO, image: Tensor, bits: int, metadata: SourceMetadata | None, tags: dict, *, compress: bool
) -> None:
    height, width = image.shape[1:]
    kept = read_directory(_exif(image, metadata)[6:])
    if metadata is not None and metadata.icc_profile and compress:  # a DNG's colours are defined by its matrix
        kept[34675] = Entry(UNDEFINED, metadata.icc_profile)
    rows = _blocks(image, bits, rows_per_strip(width, bits))
    write_tiff(stream, rows, height, width, bits, {**kept, **tags}, compress=compress)


def _png(image: Tensor, bits: int, metadata: SourceMetadata | None) -> bytes:
    """Pixels through OpenCV, which knows 16 bits; EXIF and profile as chunks after the header."""
    levels = cv2.cvtColor(_levels(image, bits), cv2.COLOR_RGB2BGR)
    done, encoded = cv2.imencode(".png", levels, [cv2.IMWRITE_PNG_COMPRESSION, 2])
    if not done:
        raise InputError(f"the PNG encoder refused an image of {image.shape[2]}×{image.shape[1]} pixels.")
    data = encoded.tobytes()
    icc = metadata.icc_profile if metadata else None
    colours = _chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(icc)) if icc else _chunk(b"sRGB", b"\0")
    header = 8 + 25  # signature and IHDR
    return data[:header] + colours + _chunk(b"eXIf", _exif(image, metadata)[6:]) + data[header:]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _write_pillow(stream: BinaryIO, image: Tensor, kind: str, metadata: SourceMetadata | None, quality: int) -> None:
    if not 1 <= quality <= 100:
        raise InputError(f"quality must be between 1 and 100, got {quality}.")
    options: dict = {"quality": quality, "exif": _exif(image, metadata)}
    if metadata is not None and metadata.icc_profile:
        options["icc_profile"] = metadata.icc_profile
    if kind in ("JPEG", "AVIF"):
        options["subsampling"] = "4:4:4"
    Image.fromarray(_levels(image, 8)).save(stream, format=kind, **options)


@contextmanager
def _written_whole(path: Path) -> Iterator[BinaryIO]:
    """A stream into a temporary neighbour that takes the name only when everything is on the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            reason = "the disk is full; free some space or choose another folder"
        else:
            reason = f"{error.strerror or error}; choose another folder"
        raise InputError(f"{path} could not be written: {reason}.") from error
    finally:
        temporary.unlink(missing_ok=True)
