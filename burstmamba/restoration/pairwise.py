"""Aligning a large burst two frames at a time, so that full-precision maps of only one frame exist at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Callable

import cv2
import torch
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.correspondence.align import (
    Alignment,
    Anchor,
    align_burst,
    align_frame,
    changed,
    describe,
    keyframe_report,
)
from burstmamba.correspondence.estimate import write_still
from burstmamba.correspondence.field import Correspondence
from burstmamba.memory import return_memory
from burstmamba.restoration.runner import free_memory

SEVERAL = 200_000
"""Pixels of all frames together from which on a burst is aligned in pairs, with progress after each."""
LARGE = 2_000_000
"""From here on its maps are kept in half precision."""
HUGE = 4_000_000
"""Pixels of one frame from which on a core is left free, to save its pair's memory."""
BYTES_PER_PIXEL = 100
"""Measured peak of aligning one pair, per pixel of a frame."""


def align(burst: Burst, method: str, progress: Callable[[int, int], None] | None = None) -> Alignment:
    """`align_burst` with the first frame as the keyframe; in pairs, on all cores, unless the burst is tiny.

    A large burst gets maps in half precision, which keeps displacements to 1/64 pixel up to 64 pixels, and fits in a
    third of the memory.
    """
    tell = progress or (lambda done, total: None)
    tell(0, 1)
    small = pixels_of(burst) < SEVERAL
    # Maps of no motion take no memory, and a file holds those of all frames.
    if small or len(burst) < 3 or method == "identity" or method.endswith(".safetensors"):
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
    precision = torch.float16 if pixels_of(burst) >= LARGE else torch.float32
    maps = Correspondence(*(torch.empty(1, len(burst), c, h, w, dtype=precision) for c in (2, 2, 1)))
    workers = min(pairs_at_once(h * w), len(burst) - 1)
    threads = max(1, torch.get_num_threads() // workers)  # of each worker
    write_still(maps)
    reports = [keyframe_report(burst)]
    with using_threads(threads):
        anchor = Anchor.of(burst, method)
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads,))
        try:
            pairs = pool.map(lambda i: align_frame(anchor, burst, i, maps, frames), range(1, len(burst)))
            for i, found in enumerate(pairs, start=1):
                tell(i - 1, len(burst) - 1)
                reports.append(found)
        finally:  # after an interrupt the other pairs are not begun
            pool.shutdown(cancel_futures=True)
    kept = [i for i, report in enumerate(reports) if report.kept]
    if len(kept) < len(burst) or any(changed(report) for report in reports):
        for i, report in enumerate(reports):
            if report.kept and not changed(report):
                frames[i] = burst.frames[i]
        burst = replace(burst, frames=_keep(frames, kept), names=tuple(burst.names[i] for i in kept))
    correspondence = maps.apply(lambda pile: _keep(pile[0], kept)[None])
    return Alignment(burst, correspondence, tuple(reports), tuple(describe(reports, match_exposure=True)))


def pixels_of(burst: Burst) -> int:
    """Pixels of all frames together."""
    return len(burst) * burst.size[0] * burst.size[1]


def _keep(pile: Tensor, kept: list[int]) -> Tensor:
    """The kept ones of (l, ...), moved to the front in place."""
    for place, i in enumerate(kept):
        if place != i:
            pile[place] = pile[i]
    return pile[: len(kept)]


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Let torch compute on `count` cores for a while, OpenCV on one: with more it finds features in another order."""
    before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(count)
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


def pairs_at_once(pixels: int) -> int:
    """How many pairs to align at the same time: as many as there are cores, where memory allows."""
    fits = free_memory(torch.device("cpu")) // (4 * BYTES_PER_PIXEL * pixels)
    cores = (os.cpu_count() or 1) - (pixels >= HUGE)
    return max(1, min(cores, fits))
