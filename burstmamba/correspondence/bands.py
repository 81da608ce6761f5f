"""Large pictures by bands of rows: what is computed on the way then stays in the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator

PIXELS = 1 << 17
"""Of one band."""


def bands(height: int, width: int, multiple: int = 2) -> Iterator[slice]:
    """The rows of a picture of this size, band by band; all but the last have a multiple of so many rows."""
    rows = max(1, PIXELS // (multiple * width)) * multiple
    for top in range(0, height, rows):
        yield slice(top, min(top + rows, height))
