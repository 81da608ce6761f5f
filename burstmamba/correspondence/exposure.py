"""Brightness and white balance that drift within a burst: measured where frames overlap, matched to the keyframe."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.correspondence.field import sample_at
from burstmamba.correspondence.homography import GlobalMotion, axes, project
from burstmamba.correspondence.light import decode_srgb
from burstmamba.correspondence.luma import reduce_plane

# Gains closer to 1 than this are measurement error or invisible: frames are then left untouched.
SMALLEST_DRIFT = 0.01
LARGEST_DRIFT = 8.0
MEASURING_SIDE = 256


def measure_gain(keyframe: Tensor, frame: Tensor, camera: Camera, motion: GlobalMotion) -> Tensor:
    """Light of the keyframe over light of the frame, per colour: (3), 1 where nothing drifts.

    Args:
        keyframe: from `measured_light`.
        frame: (c, h, w).
        camera: of the burst.
        motion: the frame's, in the burst's pixels; only overlapping parts are compared.
    """
    pitch = _pitch(frame, camera)
    place = np.array([[pitch, 0, (pitch - 1) / 2], [0, pitch, (pitch - 1) / 2], [0, 0, 1]])
    flow = project(np.linalg.inv(place) @ motion.matrix @ place, *axes((keyframe.shape[-2], keyframe.shape[-1])))
    gain = _ratios(keyframe, sample_at(measured_light(frame, camera)[None], flow[None])[0])
    return gain if float((gain - 1).abs().max()) >= SMALLEST_DRIFT else torch.ones(3)


def measured_light(frame: Tensor, camera: Camera) -> Tensor:
    """A frame (c, h, w) as the small linear RGB picture on which its light is measured."""
    return small_light(frame, camera, _pitch(frame, camera))


def _ratios(keyframe: Tensor, frame: Tensor) -> Tensor:
    """Median of keyframe / frame per colour over pixels that are neither dark nor clipped: (3)."""
    ratios = torch.ones(3)
    for c in range(3):
        a, b = keyframe[c].flatten(), frame[c].flatten()
        usable = (a > 0.01) & (b > 0.01) & (a < 0.9) & (b < 0.9)
        if int(usable.sum()) >= max(16, 0.02 * usable.numel()):
            ratios[c] = (a[usable] / b[usable]).median().clamp(1 / LARGEST_DRIFT, LARGEST_DRIFT)
    return ratios


def _pitch(frame: Tensor, camera: Camera) -> int:
    """Burst pixels per pixel of the small pictures; even for a mosaic."""
    size = frame.shape[-2:]
    pitch = min(max(1, max(size) // MEASURING_SIDE), *size)
    return max(2, pitch - pitch % 2) if camera.cfa else pitch


def small_light(frame: Tensor, camera: Camera, pitch: int) -> Tensor:
    """A frame as a small linear RGB picture (3, h, w) of `pitch` burst pixels a pixel; even for a mosaic."""
    frame = frame.detach().cpu()
    if camera.cfa:
        frame = frame.float()
        h, w = frame.shape[-2:]
        if min(h, w) < 2:
            frame = frame.expand(1, max(h, 2), max(w, 2))
        cells = F.pixel_unshuffle(frame[:, : h // 2 * 2 or 2, : w // 2 * 2 or 2], 2)
        sites = {c: [i for i, s in enumerate(camera.cfa) if s == c] for c in "RGB"}
        frame = torch.stack([cells[sites[c]].mean(0) for c in "RGB"])
        pitch //= 2
    small = torch.stack([reduce_plane(channel, pitch) for channel in frame])
    return small if camera.linear else decode_srgb(small)
