"""Light that changes in places from frame to frame, as of coloured lamps: brought to the keyframe's, place by place."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import torch
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence.confidence import in_view
from burstmamba.correspondence.exposure import small_light
from burstmamba.correspondence.field import Correspondence, sample_at
from burstmamba.correspondence.light import brighten, encode_srgb
from burstmamba.correspondence.luma import LONGEST_SIDE, enlarge, reduce_plane, smooth

WIDTH = 2.0
"""Gaussian width of what counts as light, in pixels of the small pictures; finer structures are details."""
# Differences of encoded values that nobody sees.
INVISIBLE = 0.004
# Light changed where the squared difference is beyond this many times the one that noise and maps explain.
SIGNIFICANT = 4.0
LARGEST_CHANGE = 3.0
DARK = 0.002
"""Light that is added on both sides of a ratio, so that black has none."""
ROUNDING = 1e-5
"""Gains that differ less from 1 are 1."""
SMALLEST_SHARE = 0.01
"""Frames of which less is lit otherwise are left untouched."""


def relight(burst: Burst, maps: Correspondence) -> tuple[Burst, list[float]]:
    """The burst with its frames' light matched to the keyframe's where it differs beyond noise.

    Args:
        burst: frames of matched exposure, keyframe first.
        maps: of these frames, for a batch of 1.

    Returns:
        The burst, and for each frame the share of the keyframe that it saw in another light; 0: frame left untouched.
    """
    shares = [0.0] * len(burst)
    if not can_compare(burst.size):
        return burst, shares
    frames = burst.frames
    keyframe = lit(frames[0], burst.camera)
    for i in range(1, len(burst)):
        change, share = find_change(keyframe, frames[i], burst.camera, maps, i)
        if change is None:
            continue
        if frames is burst.frames:
            frames = frames.clone()
        apply_change(frames[i], change, burst.camera, out=frames[i])
        shares[i] = share
    return (burst if frames is burst.frames else replace(burst, frames=frames)), shares


def can_compare(size: tuple[int, int]) -> bool:
    """Whether frames of this size (h, w) are large enough for their light to be compared place by place."""
    return min(size) >= max(16, 2 * _pitch(size))


def lit(frame: Tensor, camera: Camera) -> Tensor:
    """A frame (c, h, w) as the small linear picture (3, h', w') on which its light is compared."""
    return _small(frame, camera, _pitch(frame.shape[-2:]))


def find_change(
    keyframe: Tensor, frame: Tensor, camera: Camera, maps: Correspondence, index: int
) -> tuple[Tensor | None, float]:
    """By what a frame's light is to be multiplied place by place, in small, and the share that is; None: by nothing.

    Args:
        keyframe: from `lit`.
        frame: (c, h, w), frame `index` of `maps`.
    """
    pitch = _pitch(frame.shape[-2:])
    there, back = (_shrink(m[0, index].cpu(), pitch) / pitch for m in (maps.to_frame, maps.to_keyframe))
    gain, share = _gain(keyframe, lit(frame, camera), there)
    return (None, 0.0) if share < SMALLEST_SHARE else (sample_at(gain[None], back[None])[0], share)


def apply_change(frame: Tensor, change: Tensor, camera: Camera, out: Tensor) -> None:
    """Multiply a frame's light by what `find_change` found; `out` may be the frame."""
    size = (frame.shape[-2], frame.shape[-1])
    for rows, gain in enlarge(change[None], _pitch(size), size):
        untouched = float((gain - 1).abs().max()) < ROUNDING
        brighten(frame[:, rows], torch.ones(3) if untouched else gain[0], camera, out=out[:, rows])


def _pitch(size: tuple[int, ...]) -> int:
    """Pixels of frames of this size per pixel of the small pictures; even."""
    return 2 * -(-max(size) // LONGEST_SIDE)


def _gain(keyframe: Tensor, frame: Tensor, there: Tensor) -> tuple[Tensor, float]:
    """Light of the keyframe over the frame's, in the keyframe's view, and the share where it differs.

    Args:
        keyframe: (3, h, w) linear.
        frame: (3, h, w) linear.
        there: (2, h, w) δ⁰→ˡ.

    Returns:
        (3, h, w), 1 where noise explains the difference, and a number in [0, 1].
    """
    # What lies past a frame's border repeats it.
    view = torch.from_numpy(cv2.erode(in_view(there).float().numpy(), np.ones((3, 3), np.uint8), borderValue=1))
    warped = sample_at(frame[None], there[None])[0]
    a, b = (_mean(light, view, WIDTH) + DARK for light in (keyframe, warped))
    gain = (a / b).clamp(1 / LARGEST_CHANGE, LARGEST_CHANGE)
    encoded = encode_srgb(keyframe)
    difference = _mean(encoded - encode_srgb(warped), view, WIDTH)
    # Noise, aliasing and wrong maps leave details that differ in any light.
    rest = encoded - encode_srgb(gain * warped)
    rest = _mean(rest, view, WIDTH / 2) - _mean(rest, view, WIDTH)
    expected = _mean(rest.square(), view, 2 * WIDTH) + INVISIBLE**2
    excess = smooth(difference.square().sum(0), WIDTH) / smooth(expected.sum(0), WIDTH)
    changed = (1 - SIGNIFICANT / excess.clamp(min=SIGNIFICANT)) * view
    return 1 + changed * (gain - 1), float((changed > 0.5).float().mean())


def _small(frame: Tensor, camera: Camera, pitch: int) -> Tensor:
    """A small linear picture (3, h, w); smoothed first, so that fine textures do not turn into coarse ones."""
    if camera.cfa:
        return small_light(frame, camera, pitch)
    planes = (reduce_plane(plane, pitch // 2) for plane in frame.detach().cpu())
    return small_light(torch.stack([smooth(plane, 1.2) for plane in planes]), camera, 2)


def _mean(planes: Tensor, weight: Tensor, sigma: float) -> Tensor:
    """Gaussian means of (c, h, w) over the pixels with a weight (h, w)."""
    whole = smooth(weight, sigma).clamp(min=1e-3)
    return torch.stack([smooth(plane * weight, sigma) / whole for plane in planes])


def _shrink(maps: Tensor, pitch: int) -> Tensor:
    """Maps (2, h, w) at the centres of blocks of even size: between the two pixels in the middle of each."""
    h, w = (side // pitch * pitch for side in maps.shape[-2:])
    before, after = (maps[:, i:h:pitch, i:w:pitch].float() for i in (pitch // 2 - 1, pitch // 2))
    return (before + after).div_(2)
