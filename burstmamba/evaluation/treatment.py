"""What is done to a burst and its maps before the network sees them: the paper's rows and our diagnostics as data."""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError

TREATMENTS = {
    "none": "the maps as they are",
    "unaligned": "identity maps; the confidence stays",
    "rounded": "maps rounded to whole pixels",
    "prealigned": "frames warped to the keyframe, then identity maps",
    "copies": "every frame is the keyframe: what is left of the gain did not come from the other frames",
    "others": "the burst's last frames instead of its first ones: which of them are dropped should not matter",
    "shuffle": "the frames after the keyframe in another order",
    "reverse": "the frames after the keyframe in reverse order",
}


def treat(frames: Tensor, maps: Correspondence | None, treatment: str) -> tuple[Tensor, Correspondence | None]:
    """Apply a treatment.

    Args:
        frames: (b, l, c, h, w).
        maps: of all l frames, or None for identity.
        treatment: a name of `TREATMENTS`.

    Returns:
        Frames and maps for the network.
    """
    if treatment in ("none", "others") or frames.shape[1] == 1:  # the frames were chosen by whoever calls
        return frames, maps
    if treatment == "rounded":
        return frames, None if maps is None else maps.rounded()
    if treatment == "unaligned":
        return frames, None if maps is None else still(maps)
    if treatment == "prealigned":
        return prealign(frames, maps)
    if treatment == "copies":
        return frames[:, :1].expand_as(frames).contiguous(), None
    if treatment in ("shuffle", "reverse"):
        order = frame_order(frames.shape[1], treatment)
        return frames[:, order], None if maps is None else maps.select(order)
    raise InputError(f"unknown treatment {treatment!r}; the known ones are {', '.join(TREATMENTS)}.")


def prealign(frames: Tensor, maps: Correspondence | None) -> tuple[Tensor, Correspondence | None]:
    """Frames resampled into the keyframe's view; the maps become the identity and keep their confidence."""
    if maps is None:
        return frames, None
    if frames.shape[2] == 1:
        raise InputError("prealigned resamples frames, which would mix the colours of a mosaic; use it on RGB bursts.")
    return maps.gather(frames), still(maps)


def still(maps: Correspondence) -> Correspondence:
    """Maps that say nothing moved, as trustworthy as before."""
    zero = torch.zeros_like(maps.to_frame)
    return Correspondence(zero, zero, maps.confidence)


def frame_order(length: int, treatment: str) -> list[int]:
    """A fixed order with the keyframe first; another than the given one, where there is another."""
    if treatment == "reverse":
        return [0, *range(length - 1, 0, -1)]
    generator, order = torch.Generator().manual_seed(length), list(range(length))
    while length > 2 and order == sorted(order):
        order = [0, *(torch.randperm(length - 1, generator=generator) + 1).tolist()]
    return order
