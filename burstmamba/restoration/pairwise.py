"""Aligning a large burst two frames at a time, so that full-precision maps of only one frame exist at once."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Callable

import torch
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.correspondence import Alignment, Correspondence, FrameReport, align_burst
from burstmamba.restoration.runner import free_memory

LARGE = 2_000_000
"""Pixels of all frames together from which on a burst is aligned in pairs, with progress after each."""
HUGE = 4_000_000
"""Pixels of one frame from which on a core is left free, to save its pair's memory."""
BYTES_PER_PIXEL = 100
"""Measured peak of aligning one pair, per pixel of a frame."""


def align(burst: Burst, method: str, progress: Callable[[int, int], None] | None = None) -> Alignment:
    """`align_burst` with the first frame as the keyframe; a large burst in pairs, with maps in half precision.

    Half precision keeps displacements to 1/64 pixel up to 64 pixels, and a large burst fits in a third of the memory.
    """
    tell = progress or (lambda done, total: None)
    tell(0, 1)
    small = burst.frames.shape[0] * burst.frames[0, 0].numel() < LARGE
    if small or len(burst) < 3 or method.endswith(".safetensors"):  # a file holds the maps of all frames
        with using_threads(1):  # on small frames several threads wait for each other more than they work
            alignment = align_burst(burst, method)
    else:
        alignment = _in_pairs(burst, method, tell)
        return_memory()
    tell(1, 1)
    return alignment


def _in_pairs(burst: Burst, method: str, tell: Callable[[int, int], None]) -> Alignment:
    h, w = burst.size
    zero = torch.zeros(2, h, w, dtype=torch.float16)
    kept, changed = [0], {}
    there, back, trust = [zero], [zero], [torch.ones(1, h, w, dtype=torch.float16)]
    reports: list[FrameReport] = []
    notes: dict[str, list[str]] = {}
    workers = min(pairs_at_once(h * w), len(burst) - 1)
    threads = max(1, torch.get_num_threads() // workers)  # of each worker
    with using_threads(threads):
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads,))
        try:
            for i, pair in enumerate(pool.map(lambda i: _pair(burst, i, method), range(1, len(burst))), start=1):
                tell(i - 1, len(burst) - 1)
                return_memory()
                reports.extend([*([] if reports else pair.reports[:1]), replace(pair.reports[1], index=i)])
                name = burst.names[i]
                for note in pair.notes:
                    if not note.startswith("No other frame"):  # true of this pair, not of the burst
                        notes.setdefault(note.removesuffix(f": {name}."), []).append(name)
                if not pair.reports[1].kept:
                    continue
                kept.append(i)
                if pair.frame is not None:
                    changed[i] = pair.frame
                for pile, tensor in zip((there, back, trust), pair.maps, strict=True):
                    pile.append(tensor)
        finally:  # after an interrupt the other pairs are not begun
            pool.shutdown(cancel_futures=True)
    sentences = [note if note.endswith(".") else f"{note}: {_list(names)}." for note, names in notes.items()]
    if len(kept) == 1:
        sentences.append("No other frame can be used: the keyframe alone is reconstructed.")
    if changed or len(kept) < len(burst):
        burst = burst.select(kept)
        for i, frame in changed.items():
            burst.frames[kept.index(i)] = frame
    correspondence = Correspondence(_pile(there), _pile(back), _pile(trust))
    return Alignment(burst, correspondence, tuple(reports), tuple(sentences))


@dataclass(frozen=True)
class _Pair:
    """What is kept of the alignment of one frame with the keyframe."""

    reports: tuple[FrameReport, ...]
    notes: tuple[str, ...]
    frame: Tensor | None = None
    """(c, h, w) with matched exposure, where that changed it."""
    maps: tuple[Tensor, ...] = ()
    """There, back and confidence in half precision."""


def _pair(burst: Burst, index: int, method: str) -> _Pair:
    pair = align_burst(burst.select([0, index]), method)
    if not pair.frames[1].kept:
        return _Pair(pair.frames, pair.notes)
    changed = pair.frames[1].relit > 0 or any(gain != 1 for gain in pair.frames[1].gains)
    frame = pair.burst.frames[1].to(burst.frames.dtype, copy=True) if changed else None
    found = pair.correspondence
    trust = torch.ones_like(found.to_frame[:, :, :1]) if found.confidence is None else found.confidence
    maps = tuple(tensor[0, 1].half() for tensor in (found.to_frame, found.to_keyframe, trust))
    return _Pair(pair.frames, pair.notes, frame, maps)


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Let torch compute on `count` cores for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def return_memory() -> None:
    """Give freed memory back to the system; glibc keeps pieces of up to 32 MB for later, which adds up to gigabytes."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def pairs_at_once(pixels: int) -> int:
    """How many pairs to align at the same time: as many as there are cores, where memory allows."""
    fits = free_memory(torch.device("cpu")) // (4 * BYTES_PER_PIXEL * pixels)
    cores = (os.cpu_count() or 1) - (pixels >= HUGE)
    return max(1, min(cores, fits))


def _list(names: list[str]) -> str:
    """The names, or their number when they are many."""
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} frames, {names[0]} to {names[-1]}"


def _pile(maps: list[Tensor]) -> Tensor:
    """(1, l, c, h, w), letting go of each map as soon as it is copied."""
    pile = torch.empty(1, len(maps), *maps[0].shape, dtype=maps[0].dtype)
    for i in reversed(range(len(maps))):
        pile[0, i] = maps.pop()
    return pile
