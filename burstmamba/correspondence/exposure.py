"""Brightness and white balance that drift within a burst: measured where frames overlap, matched to the keyframe."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.correspondence.field import sample_at
from burstmamba.correspondence.homography import GlobalMotion

# Gains closer to 1 than this are measurement error or invisible: frames are then left untouched.
SMALLEST_DRIFT = 0.01
LARGEST_DRIFT = 8.0
MEASURING_SIDE = 256


def decode_srgb(values: Tensor) -> Tensor:
    """sRGB-encoded values to light."""
    return torch.where(values <= 0.04045, values / 12.92, ((values.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4)


def encode_srgb(light: Tensor) -> Tensor:
    """Light to sRGB-encoded values."""
    return torch.where(light <= 0.0031308, light * 12.92, 1.055 * light.clamp(min=0.0031308) ** (1 / 2.4) - 0.055)


def measure_gains(burst: Burst, motions: list[GlobalMotion]) -> Tensor:
    """Light of the keyframe over light of each frame, per colour: (l, 3), 1 where nothing drifts.

    Args:
        burst: the frames.
        motions: each frame's motion in the burst's pixels; only overlapping parts are compared.
    """
    small = [_small_light(frame, burst) for frame in burst.frames]
    factor = burst.size[1] / small[0].shape[-1]
    gains = torch.ones(len(burst), 3)
    for i, motion in enumerate(motions[1:], start=1):
        grid = motion.displacement(burst.size)
        flow = F.interpolate(grid[None], small[0].shape[-2:], mode="bilinear") / factor
        there = sample_at(small[i][None], flow)[0]
        gains[i] = _ratios(small[0], there)
    return torch.where((gains - 1).abs().amax(1, keepdim=True) < SMALLEST_DRIFT, 1.0, gains)


def _ratios(keyframe: Tensor, frame: Tensor) -> Tensor:
    """Median of keyframe / frame per colour over pixels that are neither dark nor clipped: (3)."""
    ratios = torch.ones(3)
    for c in range(3):
        a, b = keyframe[c].flatten(), frame[c].flatten()
        usable = (a > 0.02) & (b > 0.02) & (a < 0.9) & (b < 0.9)
        if int(usable.sum()) >= max(16, 0.02 * usable.numel()):
            ratios[c] = (a[usable] / b[usable]).median().clamp(1 / LARGEST_DRIFT, LARGEST_DRIFT)
    return ratios


def _small_light(frame: Tensor, burst: Burst) -> Tensor:
    """A frame as a small linear RGB picture (3, h, w)."""
    if burst.camera.cfa:
        h, w = (max(2, n // 2 * 2) for n in frame.shape[-2:])
        frame = F.pad(frame[None], (0, max(0, 2 - frame.shape[-1]), 0, max(0, 2 - frame.shape[-2])), mode="replicate")[
            0
        ]
        cells = F.pixel_unshuffle(frame[:, :h, :w], 2)
        sites = {c: [i for i, s in enumerate(burst.camera.cfa) if s == c] for c in "RGB"}
        frame = torch.stack([cells[sites[c]].mean(0) for c in "RGB"])
    factor = max(1, max(frame.shape[-2:]) // MEASURING_SIDE)
    factor = min(factor, *frame.shape[-2:])
    frame = F.avg_pool2d(frame[None].float(), factor)[0]
    return frame if burst.camera.linear else decode_srgb(frame)


def match_exposure(burst: Burst, gains: Tensor) -> Burst:
    """The burst with every frame's light multiplied by its gains (l, 3)."""
    if bool((gains == 1).all()):
        return burst
    frames = burst.frames.clone()
    for i, gain in enumerate(gains):
        if bool((gain != 1).any()):
            frames[i] = _brighten(frames[i], gain.to(frames), burst)
    return replace(burst, frames=frames)


def _brighten(frame: Tensor, gain: Tensor, burst: Burst) -> Tensor:
    if burst.camera.cfa:
        frame = frame.clone()
        for i, colour in enumerate(burst.camera.cfa):
            y, x = divmod(i, 2)
            frame[:, y::2, x::2] *= gain["RGB".index(colour)]
        return frame.clamp(max=1)
    gain = gain.view(3, 1, 1)
    light = gain * (frame if burst.camera.linear else decode_srgb(frame))
    return (light if burst.camera.linear else encode_srgb(light)).clamp(max=1)
