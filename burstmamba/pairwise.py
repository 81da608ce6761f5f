"""Aligning a large burst two frames at a time, so that full-precision maps of only one frame exist at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable

import torch

from burstmamba.burst import Burst
from burstmamba.correspondence import Alignment, Correspondence, FrameReport, align_burst

LARGE = 12_000_000
"""Pixels of all frames together from which on a burst is aligned in pairs."""


def align(burst: Burst, method: str, progress: Callable[[int, int], None] | None = None) -> Alignment:
    """`align_burst` with the first frame as the keyframe; a large burst in pairs, with maps in half precision.

    Half precision keeps displacements to 1/64 pixel up to 64 pixels, and a large burst fits in a third of the memory.
    """
    tell = progress or (lambda done, total: None)
    tell(0, 1)
    small = burst.frames.shape[0] * burst.frames[0, 0].numel() < LARGE
    if small or len(burst) < 3 or method.endswith(".safetensors"):  # a file holds the maps of all frames
        alignment = align_burst(burst, method)
    else:
        alignment = _in_pairs(burst, method, tell)
    tell(1, 1)
    return alignment


def _in_pairs(burst: Burst, method: str, tell: Callable[[int, int], None]) -> Alignment:
    h, w = burst.size
    zero = torch.zeros(2, h, w, dtype=torch.float16)
    kept, changed = [0], {}
    there, back, trust = [zero], [zero], [torch.ones(1, h, w, dtype=torch.float16)]
    reports: list[FrameReport] = []
    notes: dict[str, None] = {}  # ordered and without repetition
    for i in range(1, len(burst)):
        tell(i - 1, len(burst) - 1)
        pair = align_burst(burst.select([0, i]), method)
        reports.extend([*([] if reports else pair.frames[:1]), replace(pair.frames[1], index=i)])
        notes |= dict.fromkeys(note for note in pair.notes if not note.startswith("No other frame"))
        if not pair.frames[1].kept:
            continue
        kept.append(i)
        if any(gain != 1 for gain in pair.frames[1].gains):
            changed[i] = pair.burst.frames[1].to(burst.frames.dtype)
        maps = pair.correspondence
        there.append(maps.to_frame[0, 1].half())
        back.append(maps.to_keyframe[0, 1].half())
        trust.append(torch.ones_like(trust[0]) if maps.confidence is None else maps.confidence[0, 1].half())
    if len(kept) == 1:
        notes["No other frame can be used: the keyframe alone is reconstructed."] = None
    if changed or len(kept) < len(burst):
        burst = burst.select(kept)
        for i, frame in changed.items():
            burst.frames[kept.index(i)] = frame
    correspondence = Correspondence(_pile(there), _pile(back), _pile(trust))
    return Alignment(burst, correspondence, tuple(reports), tuple(notes))


def _pile(maps: list[torch.Tensor]) -> torch.Tensor:
    """(1, l, c, h, w), letting go of each map as soon as it is copied."""
    pile = torch.empty(1, len(maps), *maps[0].shape, dtype=maps[0].dtype)
    for i in reversed(range(len(maps))):
        pile[0, i] = maps.pop()
    return pile
