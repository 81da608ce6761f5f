"""Writing images: atomically, with the source's EXIF and colour profile, in the format the name asks for."""

from __future__ import annotations

import errno
import math
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
from burstmamba.files.ahead import ahead
from burstmamba.files.dng import dng_tags
from burstmamba.files.metadata import SourceMetadata, exif_for_size
from burstmamba.files.png import Band, chunk, encode_band, write_png
from burstmamba.files.tiff import MOST_BYTES, UNDEFINED, Entry, encode_strip, read_directory, rows_per_strip, write_tiff

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
SRGB_PRIMARIES = (31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)
"""x and y of white, red, green and blue, as a PNG's cHRM wants them."""


def save_image(
    path: str | os.PathLike[str],
    image: Tensor,
    *,
    bits: int | None = None,
    metadata: SourceMetadata | None = None,
    camera: Camera | None = None,
    quality: int | None = None,
    linear: bool = False,
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
        linear: whether the values are linear light with sRGB's primaries, which a PNG then says.
        force: replace an existing file.

    Returns:
        The path written.
    """
    path = check_output(path, bits=bits, force=force)
    kind, depths, _ = FORMATS[path.suffix.lower()]
    bits = bits or depths[0]
    image = _checked(image)
    check_size(path, image.shape[2], image.shape[1], bits)
    tags = dng_tags(camera, _model(metadata)) if kind == "DNG" else {}
    with _written_whole(path) as stream:
        if kind in ("TIFF", "DNG"):
            _write_tiff(stream, image, bits, metadata, tags, compress=kind == "TIFF")
        elif kind == "PNG":
            _write_png(stream, image, bits, metadata, linear=linear)
        else:
            _write_pillow(stream, image, kind, metadata, QUALITY[kind] if quality is None else quality)
    return path


def check_output(path: str | os.PathLike[str], *, bits: int | None = None, force: bool = False) -> Path:
    """Refuse an output that could not be written, before any long work is done for it.

    Returns:
        The path.
    """
    path = Path(path)
    try:
        os.stat(path)
    except FileNotFoundError:  # as it should be
        pass
    except OSError as error:
        raise not_written(path, error) from None
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it.")
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path.name} must end in one of {', '.join(FORMATS)}, got {path.suffix or 'no ending'!r}.")
    check_bits(path, bits)
    if path.exists() and not force:
        raise InputError(f"{path} exists already; choose another name or allow replacing it with --force.")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"the folder {folder} does not exist; create it first.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"the folder {folder} cannot be written to; choose another one.")
    return path


def check_bits(path: str | os.PathLike[str], bits: int | None) -> None:
    """Refuse a bit depth that the format of the name's ending does not hold."""
    kind, depths, _ = FORMATS[Path(path).suffix.lower()]
    if bits is not None and bits not in depths:
        held = "- or ".join(map(str, depths))
        choice = "16 bits go into .png, .tif or .dng" if bits == 16 else f"ask for {held.replace('-', '')}"
        raise InputError(f"{kind} holds {held}-bit samples, {bits} were asked for; {choice}.")


def check_size(path: str | os.PathLike[str], width: int, height: int, bits: int | None = None) -> None:
    """Refuse a picture that is too large for the format of the name's ending."""
    kind, depths, longest = FORMATS[Path(path).suffix.lower()]
    if max(height, width) > longest:
        raise InputError(f"{kind} holds at most {longest} pixels a side, the image is {width}×{height}; save a PNG.")
    bits = bits or depths[0]
    if kind in ("TIFF", "DNG") and height * width * 3 * bits // 8 > MOST_BYTES:
        raise InputError(f"{width}×{height} pixels of {bits} bits exceed {kind}'s 4 GiB; save a PNG or use fewer bits.")


def not_written(path: str | os.PathLike[str], error: OSError) -> InputError:
    """The sentence for a file that the system did not let us write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        reason = "the disk is full; free some space or choose another folder"
    else:
        reason = f"{error.strerror or error}; choose another folder"
    return InputError(f"{path} could not be written: {reason}.")


def _checked(image: Tensor) -> Tensor:
    image = torch.as_tensor(image)
    if image.ndim != 3 or image.shape[0] != 3 or 0 in image.shape or not image.is_floating_point():
        raise InputError(
            f"image must be a floating-point tensor (3, h, w) in [0, 1], got {image.dtype} {tuple(image.shape)}."
        )
    return image.detach()


def _levels(image: Tensor, bits: int, rows: slice = slice(None)) -> np.ndarray:
    """Some rows as (n, w, 3) uint8 or uint16."""
    values = image[:, rows].to("cpu", torch.float32).numpy()
    if not math.isfinite(values.min()) or not math.isfinite(values.max()):  # NaN anywhere makes both NaN
        raise InputError("the image contains NaN or infinite values and was not saved.")
    levels = values.clip(0, 1)
    levels *= 2**bits - 1
    levels = np.rint(levels, out=levels).astype(np.uint8 if bits == 8 else np.uint16)
    return cv2.merge(list(levels))


def _bands(height: int, rows: int) -> list[slice]:
    """The picture's rows, so many at a time: memory does not grow with the image."""
    return [slice(top, min(top + rows, height)) for top in range(0, height, rows)]


def _exif(image: Tensor, metadata: SourceMetadata | None) -> bytes:
    return exif_for_size(metadata, image.shape[2], image.shape[1]).tobytes()


def _model(metadata: SourceMetadata | None) -> str | None:
    model = exif_for_size(metadata, 0, 0).get(0x0110)
    return model.decode(errors="replace") if isinstance(model, bytes) else model


def _write_tiff(
    stream: BinaryIO, image: Tensor, bits: int, metadata: SourceMetadata | None, tags: dict, *, compress: bool
) -> None:
    height, width = image.shape[1:]
    kept = read_directory(_exif(image, metadata)[6:])
    if metadata is not None and metadata.icc_profile and compress:  # a DNG's colours are defined by its matrix
        kept[34675] = Entry(UNDEFINED, metadata.icc_profile)
    rows = _bands(height, rows_per_strip(width, bits))
    strips = ahead(lambda some: encode_strip(_levels(image, bits, some), compress=compress), rows)
    write_tiff(stream, strips, height, width, bits, {**kept, **tags}, compress=compress)


def _write_png(stream: BinaryIO, image: Tensor, bits: int, metadata: SourceMetadata | None, *, linear: bool) -> None:
    height, width = image.shape[1:]
    icc = metadata.icc_profile if metadata else None
    colours = chunk(b"iCCP", b"ICC profile\0\0" + zlib.compress(icc)) if icc else chunk(b"sRGB", b"\0")
    if linear:
        colours = chunk(b"gAMA", struct.pack(">I", 100_000)) + chunk(b"cHRM", struct.pack(">8I", *SRGB_PRIMARIES))
    chunks = colours + chunk(b"eXIf", _exif(image, metadata)[6:])

    def band(rows: slice) -> Band:
        above = _levels(image, bits, slice(rows.start - 1, rows.start)) if rows.start else None
        return encode_band(_levels(image, bits, rows), above, last=rows.stop == height)

    bands = ahead(band, _bands(height, rows_per_strip(width, bits)))
    write_png(stream, bands, height, width, bits, chunks)


def _write_pillow(stream: BinaryIO, image: Tensor, kind: str, metadata: SourceMetadata | None, quality: int) -> None:
    if not 1 <= quality <= 100 or quality != int(quality):
        raise InputError(f"quality must be a whole number from 1 to 100, got {quality}.")
    options: dict = {"quality": int(quality), "exif": _exif(image, metadata)}
    if metadata is not None and metadata.icc_profile:
        options["icc_profile"] = metadata.icc_profile
    if kind in ("JPEG", "AVIF"):
        options["subsampling"] = "4:4:4"
    height, width = image.shape[1:]
    levels = np.empty((height, width, 3), np.uint8)
    rows = _bands(height, rows_per_strip(width, 8))
    for some, block in zip(rows, ahead(lambda some: _levels(image, 8, some), rows), strict=True):
        levels[some] = block
    Image.fromarray(levels).save(stream, format=kind, **options)


@contextmanager
def _written_whole(path: Path) -> Iterator[BinaryIO]:
    """A stream into a temporary neighbour that takes the name only when everything is on the disk."""
    mark = zlib.crc32(path.name.encode(errors="surrogateescape"))  # the name itself may be as long as names can be
    temporary = path.with_name(f".burstmamba-{os.getpid()}-{mark:08x}.part")
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
