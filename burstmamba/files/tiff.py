"""A streaming TIFF writer: strips first, the directories with EXIF after them.

tifffile writes 16-bit TIFF but no EXIF directory, Pillow writes EXIF but no 16-bit RGB; a photograph needs both.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

BYTE, ASCII, SHORT, LONG, RATIONAL, UNDEFINED, SRATIONAL = 1, 2, 3, 4, 5, 7, 10
_UNIT = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
EXIF_POINTERS = (0x8769, 0x8825)
STRIP_BYTES = 1 << 20
MOST_BYTES = (1 << 32) - (1 << 20)
"""Of pixels: a TIFF file counts its bytes in 32 bits."""


@dataclass(frozen=True)
class Entry:
    """One typed value of a directory, little-endian."""

    type: int
    data: bytes

    @property
    def count(self) -> int:
        """How many values `data` holds."""
        return len(self.data) // _UNIT[self.type]


Directory = dict[int, "Entry | Directory"]


def shorts(*values: int) -> Entry:
    """16-bit integers."""
    return Entry(SHORT, struct.pack(f"<{len(values)}H", *values))


def longs(*values: int) -> Entry:
    """32-bit integers."""
    return Entry(LONG, struct.pack(f"<{len(values)}I", *values))


def text(value: str) -> Entry:
    """A string."""
    return Entry(ASCII, value.encode("ascii", "replace") + b"\0")


def rationals(*values: float, signed: bool = False) -> Entry:
    """Fractions in steps of a millionth."""
    pairs = [part for value in values for part in (round(value * 1_000_000), 1_000_000)]
    return Entry(SRATIONAL if signed else RATIONAL, struct.pack(f"<{len(pairs)}{'i' if signed else 'I'}", *pairs))


def read_directory(block: bytes, offset: int | None = None) -> Directory:
    """Parse a little-endian TIFF block (as in EXIF) into a directory, with the EXIF and GPS ones inside it."""
    offset = struct.unpack_from("<I", block, 4)[0] if offset is None else offset
    directory: Directory = {}
    for i in range(struct.unpack_from("<H", block, offset)[0]):
        position = offset + 2 + 12 * i
        tag, kind, count = struct.unpack_from("<HHI", block, position)
        length = _UNIT.get(kind, 1) * count
        start = position + 8 if length <= 4 else struct.unpack_from("<I", block, position + 8)[0]
        entry = Entry(kind, block[start : start + length])
        directory[tag] = read_directory(block, struct.unpack("<I", entry.data)[0]) if tag in EXIF_POINTERS else entry
    return directory


def pack_directory(directory: Directory, offset: int) -> bytes:
    """The bytes of a directory that starts at `offset` of the file, its long values and inner directories after it."""
    table, tail = [], b""
    after = offset + 2 + 12 * len(directory) + 4
    for tag, entry in sorted(directory.items()):
        if isinstance(entry, dict):
            kind, count, value = LONG, 1, struct.pack("<I", after + len(tail))
            tail += pack_directory(entry, after + len(tail))
        elif len(entry.data) <= 4:
            kind, count, value = entry.type, entry.count, entry.data.ljust(4, b"\0")
        else:
            kind, count, value = entry.type, entry.count, struct.pack("<I", after + len(tail))
            tail += entry.data
        tail += b"\0" * (len(tail) % 2)
        table.append(struct.pack("<HHI", tag, kind, count) + value)
    return struct.pack("<H", len(table)) + b"".join(table) + b"\0\0\0\0" + tail


def write_tiff(
    stream: BinaryIO, strips: Iterable[bytes], height: int, width: int, bits: int, tags: Directory, *, compress: bool
) -> None:
    """Write an RGB TIFF strip by strip.

    Args:
        strips: from top to bottom, each of `rows_per_strip` rows but the last.
        tags: further tags of the first directory; they win over the layout's.
        compress: whether the strips are deflated.
    """
    stream.write(b"II*\0\0\0\0\0")
    position, offsets, counts = 8, [], []
    for data in strips:
        stream.write(data)
        offsets.append(position)
        counts.append(len(data))
        position += len(data)
    layout: Directory = {
        256: longs(width),
        257: longs(height),
        258: shorts(bits, bits, bits),
        259: shorts(8 if compress else 1),
        262: shorts(2),
        273: longs(*offsets),
        277: shorts(3),
        278: longs(rows_per_strip(width, bits)),
        279: longs(*counts),
        284: shorts(1),
    }
    if compress:
        layout[317] = shorts(2)
    stream.write(pack_directory({**layout, **tags}, position))
    stream.seek(4)
    stream.write(struct.pack("<I", position))


def rows_per_strip(width: int, bits: int) -> int:
    """Rows of about a mebibyte."""
    return max(1, STRIP_BYTES // (width * 3 * bits // 8))


def encode_strip(block: np.ndarray, *, compress: bool) -> bytes:
    """Rows (n, w, 3) uint8 or uint16 as a strip of an even number of bytes.

    Args:
        compress: deflate with horizontal differences, which TIFF readers know and LibRaw does not.
    """
    samples = block.astype(block.dtype.newbyteorder("<"))
    if compress:
        samples[:, 1:] -= block[:, :-1]  # wraps around, as the predictor is defined
    data = zlib.compress(samples.data, 1) if compress else samples.tobytes()
    return data + b"\0" * (len(data) % 2)
