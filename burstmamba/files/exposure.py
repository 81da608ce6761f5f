"""Exposure brackets: linear frames are brought to the keyframe's exposure, developed ones are refused."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from burstmamba.errors import InputError
from burstmamba.files.metadata import SourceMetadata

SAME_EXPOSURE, BRACKET = 0.05, 0.7
"""Stops: differences below the first are none; developed frames that differ by more than the second are refused."""
CLIPPED, CLIPPED_SHARE = 0.99, 0.001
GAMMA = 2.2
"""Of developed pictures, about: a stop of light is less than a stop of their values."""


def match_exposure(
    frames: Tensor, metadata: list[SourceMetadata], names: list[str], *, linear: bool
) -> tuple[list[int], list[str]]:
    """Bring the frames of an exposure bracket to the exposure of frame 0, in place.

    The exposure that the files state is believed only where the frames agree with it: with automatic exposure under
    changing light the stated values differ while the pictures do not.

    Args:
        frames: (l, c, h, w) in [0, 1].

    Returns:
        Indices of the frames kept, and what to say.
    """
    kept, notes = [0], []
    for i in range(1, len(frames)):
        stops = _stops(metadata[i].exposure, metadata[0].exposure)
        if abs(stops) < SAME_EXPOSURE:
            kept.append(i)
            continue
        measured = math.log2(max(_brightness(frames[i]), 1e-6) / max(_brightness(frames[0]), 1e-6))
        measured *= 1 if linear else GAMMA
        if abs(measured) < abs(measured - stops):
            kept.append(i)
            continue
        if not linear:
            if abs(stops) <= BRACKET:  # the alignment matches brightness as measured
                kept.append(i)
                continue
            raise InputError(
                f"{names[i]} is exposed {_side(stops)} than the keyframe {names[0]}: an exposure bracket of developed "
                "pictures cannot be merged, their tone curve is unknown. Give frames of one exposure or the RAW files."
            )
        if stops > 0 and (frames[i] >= CLIPPED).float().mean() > CLIPPED_SHARE:
            notes.append(f"{names[i]} left out: exposed {_side(stops)} than the keyframe, with clipped highlights")
            continue
        frames[i].mul_(2.0**-stops).clamp_(max=1)
        notes.append(f"{names[i]} was exposed {_side(stops)} than the keyframe and has been scaled to it")
        kept.append(i)
    return kept, notes


def _stops(exposure: float | None, reference: float | None) -> float:
    return math.log2(exposure / reference) if exposure and reference else 0.0


def _side(stops: float) -> str:
    return f"{abs(stops):.1f} stops {'brighter' if stops > 0 else 'darker'}"


def _brightness(frame: Tensor) -> float:
    """Level of the darker half of some pixels: enough to tell stops apart, and highlights may clip."""
    step = max(1, math.isqrt(frame[0].numel() // 100_000)) | 1  # odd, so that every site of a mosaic is met
    some = frame[..., ::step, ::step].to(torch.float32).flatten()
    return float(some.quantile(some.new_tensor((0.2, 0.35, 0.5))).mean())
