"""How this process holds memory that it has freed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
KEPT = 2**30
LARGEST_KEPT = 256 * 2**20


def keep_freed_memory() -> bool:
    """Keep up to 1 GiB of what is freed, in blocks of up to 256 MiB; returns whether the C library could be told so.

    A network on a CPU allocates and frees the same sizes again and again. glibc hands every block of more than 32 MiB
    back to the system and fetches fresh pages for the next one, which took up to 40 % of the time. Threads that begin
    from now on share one heap: in a heap of their own, which ends at 64 MiB, little of what they free can stay.
    """
    mallopt = glibc("mallopt")
    settings = ((M_MMAP_THRESHOLD, LARGEST_KEPT), (M_TRIM_THRESHOLD, KEPT), (M_ARENA_MAX, 1))
    return mallopt is not None and all([bool(mallopt(*setting)) for setting in settings])


def return_memory() -> None:
    """Give freed memory back to the system: what one stage has kept would add to what the next one takes."""
    trim = glibc("malloc_trim")
    if trim is not None:
        trim(0)


def glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library, where it has it: musl and other systems do not."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
