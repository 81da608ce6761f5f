"""Aligning a large burst two frames at a time, so that full-precision maps of only one frame exist at once."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
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
    frames = torch.empty_like(burst.frames)  # takes memory only where something is written
    maps = Correspondence(*(torch.empty(1, len(burst), c, h, w, dtype=torch.float16) for c in (2, 2, 1)))
    reports: list[FrameReport] = []
    notes: dict[str, list[str]] = {}
    workers = min(pairs_at_once(h * w), len(burst) - 1)
    threads = max(1, torch.get_num_threads() // workers)  # of each worker
    with using_threads(threads):
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads,))
        try:
            pairs = pool.map(lambda i: _pair(burst, i, method, frames, maps), range(1, len(burst)))
            for i, (found, sentences) in enumerate(pairs, start=1):
                tell(i - 1, len(burst) - 1)
                return_memory()
                reports.extend([*([] if reports else found[:1]), replace(found[1], index=i)])
                name = burst.names[i]
                for note in sentences:
                    if not note.startswith("No other frame"):  # true of this pair, not of the burst
                        notes.setdefault(note.removesuffix(f": {name}."), []).append(name)
        finally:  # after an interrupt the other pairs are not begun
            pool.shutdown(cancel_futures=True)
    _write_maps(maps, 0, Correspondence.identity(burst.frames[None, :1]))
    kept = [i for i, report in enumerate(reports) if report.kept]
    sentences = [note if note.endswith(".") else f"{note}: {_list(names)}." for note, names in notes.items()]
    if len(kept) == 1:
        sentences.append("No other frame can be used: the keyframe alone is reconstructed.")
    if len(kept) < len(burst) or any(_changed(report) for report in reports):
        for i, report in enumerate(reports):
            if report.kept and not _changed(report):
                frames[i] = burst.frames[i]
        burst = replace(burst, frames=_keep(frames, kept), names=tuple(burst.names[i] for i in kept))
    correspondence = maps.apply(lambda pile: _keep(pile[0], kept)[None])
    return Alignment(burst, correspondence, tuple(reports), tuple(sentences))


def _pair(
    burst: Burst, index: int, method: str, frames: Tensor, maps: Correspondence
) -> tuple[tuple[FrameReport, ...], tuple[str, ...]]:
    """Align one frame with the keyframe; its maps, and the frame where its light changed, go into their places."""
    pair = align_burst(burst.select([0, index]), method)
    if _changed(pair.frames[1]):
        frames[index] = pair.burst.frames[1]
    if pair.frames[1].kept:
        _write_maps(maps, index, pair.correspondence.select(slice(1, 2)))
    return pair.frames, pair.notes


def _changed(report: FrameReport) -> bool:
    """Whether a frame that is kept was matched to the keyframe's light."""
    return report.kept and (report.relit > 0 or any(gain != 1 for gain in report.gains))


def _write_maps(maps: Correspondence, index: int, found: Correspondence) -> None:
    """Put the maps of one frame into their place, with full confidence where none is given."""
    assert maps.confidence is not None
    maps.to_frame[0, index] = found.to_frame[0, 0]
    maps.to_keyframe[0, index] = found.to_keyframe[0, 0]
    maps.confidence[0, index] = 1 if found.confidence is None else found.confidence[0, 0]


def _keep(pile: Tensor, kept: list[int]) -> Tensor:
    """The kept ones of (l, ...), moved to the front in place."""
    for place, i in enumerate(kept):
        if place != i:
            pile[place] = pile[i]
    return pile[: len(kept)]


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
