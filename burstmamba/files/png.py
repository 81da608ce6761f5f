"""A streaming PNG writer: bands of rows are filtered and deflated on their own and joined into one picture."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

AVERAGE = 3
"""The filter of every row: a byte less the mean of those to its left and above, which suits photographs."""
LEVEL = 2


@dataclass(frozen=True)
class Band:
    """Some rows, filtered and deflated."""

    size: int
    """Bytes of the filtered rows."""
    checksum: int
    """Adler-32 of the filtered rows."""
    data: bytes
    """A piece of a raw deflate stream that refers to nothing before it and ends on a whole byte."""


def encode_band(rows: np.ndarray, above: np.ndarray | None, *, last: bool) -> Band:
    """Filter and deflate rows.

    Args:
        rows: (n, w, 3) uint8 or uint16.
        above: (1, w, 3), the row before them; None at the top.
        last: whether the picture ends with them.
    """
    pixel = 3 * rows.dtype.itemsize
    values = _bytes(rows)  # (n, w · pixel)
    up = np.concatenate((np.zeros_like(values[:1]) if above is None else _bytes(above), values[:-1]))
    left = np.zeros_like(values)
    left[:, pixel:] = values[:, :-pixel]
    filtered = np.empty((len(values), 1 + values.shape[1]), np.uint8)
    filtered[:, 0] = AVERAGE
    filtered[:, 1:] = values - ((up & left) + ((up ^ left) >> 1))  # wraps around, as the filter is defined
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
    data = deflate.compress(filtered.data) + deflate.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)
    return Band(filtered.nbytes, zlib.adler32(filtered.data), data)


def write_png(stream: BinaryIO, bands: Iterable[Band], height: int, width: int, bits: int, chunks: bytes) -> None:
    """Write an RGB PNG.

    Args:
        bands: from top to bottom.
        chunks: what stands between the header and the pixels.
    """
    header = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    stream.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunks)
    checksum, opening = 1, b"\x78\x5e"
    for band in bands:
        stream.write(chunk(b"IDAT", opening + band.data))
        checksum, opening = _joined(checksum, band), b""
    stream.write(chunk(b"IDAT", struct.pack(">I", checksum)) + chunk(b"IEND", b""))


def chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk with its length and checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _bytes(rows: np.ndarray) -> np.ndarray:
    """(n, w, 3) → (n, bytes of a row), the high byte of a sample first."""
    return rows.astype(rows.dtype.newbyteorder(">")).view(np.uint8).reshape(len(rows), -1)


def _joined(checksum: int, band: Band) -> int:
    """Adler-32 of what came before and a band: sums of the bytes, and of those sums, modulo the prime 65521."""
    a, b, more_a, more_b = checksum & 0xFFFF, checksum >> 16, band.checksum & 0xFFFF, band.checksum >> 16
    return (a + more_a - 1) % 65521 | (b + more_b + band.size * (a - 1)) % 65521 << 16
