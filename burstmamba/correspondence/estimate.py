"""Correspondence of a whole burst by a named method."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.correspondence import confidence as trust
from burstmamba.correspondence.dense import (
    Flow,
    compose_to_frame,
    compose_to_keyframe,
    dis_flow,
    feather,
    round_trip,
)
from burstmamba.correspondence.exposure import measure_gains
from burstmamba.correspondence.field import Correspondence, sample_at
from burstmamba.correspondence.homography import GlobalMotion, estimate_global_motion
from burstmamba.correspondence.luma import Luma, luma
from burstmamba.correspondence.noise import NO_NOISE, Noise, common_noise, measure_noise
from burstmamba.errors import InputError

METHODS = ("auto", "homography", "dense", "raft-small", "raft-large", "identity")
# A frame whose details correlate less and of which less than half is trusted shows something else: it is given no
# confidence at all. A large moving object alone lowers the correlation too, but leaves the rest trusted.
SMALLEST_CORRELATION = 0.5
SMALLEST_TRUST = 0.5
# `auto` looks for local motion when more than this share of the view contradicts the homography.
LOCAL_SHARE = 0.005


@dataclass(frozen=True)
class Estimate:
    """A burst's correspondence and what was learnt on the way."""

    correspondence: Correspondence
    motions: tuple[GlobalMotion, ...]
    """Global motion of each frame in the burst's pixels."""
    likeness: tuple[trust.Likeness, ...]
    gains: Tensor
    """(l, 3): light of the keyframe over light of the frame, per colour."""
    measured: bool = True
    """Whether the frames' light was measured; the caller's maps are taken without."""


def estimate_correspondence(
    burst: Burst, method: str | Path | Correspondence = "auto", *, raft_weights: str | Path | None = None
) -> Correspondence:
    """Where each keyframe pixel lies in every frame, and back, with a confidence.

    Args:
        burst: the frames, keyframe first.
        method: one of METHODS, a file written by `save_maps`, or the maps themselves (then only checked).
        raft_weights: file with RAFT's weights; torchvision's published ones are used without.

    Returns:
        Maps (1, l, 2, h, w) in pixels and confidence (1, l, 1, h, w).
    """
    return estimate(burst, method, raft_weights=raft_weights).correspondence


def estimate(
    burst: Burst, method: str | Path | Correspondence = "auto", *, raft_weights: str | Path | None = None
) -> Estimate:
    """`estimate_correspondence` with the global motions, the likeness of the frames and their exposure."""
    if isinstance(method, Correspondence) or str(method).endswith(".safetensors"):
        return _given(burst, method)
    if method not in METHODS:
        raise InputError(
            f"unknown correspondence method {str(method)!r}: use one of {', '.join(METHODS)}, "
            "or a .safetensors file of maps."
        )
    if method == "identity":
        return _unmoved(burst)
    flow: Flow = dis_flow
    if str(method).startswith("raft"):
        from burstmamba.correspondence.raft import load_raft

        flow = load_raft(str(method), raft_weights)
    planes = luma(burst)
    motions = estimate_global_motion(planes)
    in_burst = [GlobalMotion(planes.matrix_in_burst_pixels(m.matrix), m.model) for m in motions]
    gains = measure_gains(burst, in_burst)
    matched = luma(burst, gains, plain=planes) if bool((gains != 1).any()) else planes
    seen = [_look(plane, motion) for plane, motion in zip(matched.planes, motions, strict=True)]
    noise = _burst_noise(seen)
    maps = Correspondence(*(torch.empty(1, len(burst), channels, *burst.size) for channels in (2, 2, 1)))
    likeness = []
    for index, motion in enumerate(motions):
        found = _frame(matched.planes[index], motion, seen, index, noise, str(method), flow)
        _write(maps, index, found, in_burst[index], matched)
        likeness.append(found.likeness)
    return Estimate(maps.to(burst.frames.device), tuple(in_burst), tuple(likeness), gains)


def _unmoved(burst: Burst) -> Estimate:
    """The caller says that nothing moves: taken at their word, with full confidence."""
    still = Correspondence.identity(burst.frames[None])
    maps = Correspondence(still.to_frame, still.to_keyframe, torch.ones_like(still.to_frame[:, :, :1]))
    motions = (GlobalMotion(np.eye(3), "identity"),) * len(burst)
    return Estimate(maps, motions, (trust.SAME,) * len(burst), torch.ones(len(burst), 3), measured=False)


@dataclass(frozen=True)
class _Seen:
    """A plane in the keyframe's view."""

    plane: Tensor
    """(h, w)."""
    view: Tensor
    """(h, w) bool: what the frame sees of the keyframe."""


@dataclass(frozen=True)
class _Found:
    """What was found about a frame, on its plane."""

    there: Tensor | None
    """What is to be added to the global motion's δ⁰→ˡ (2, h, w); None where nothing moves by itself."""
    back: Tensor | None
    """And to its δˡ→⁰."""
    confidence: Tensor
    """(h, w)."""
    likeness: trust.Likeness


def _look(plane: Tensor, motion: GlobalMotion, there: Tensor | None = None) -> _Seen:
    """A frame's plane in the keyframe's view, after its global motion and the residual flow."""
    way = motion.displacement(plane.shape) if there is None else compose_to_frame(motion.matrix, there)
    return _Seen(sample_at(plane[None, None], way[None])[0, 0], trust.in_view(way))


def _burst_noise(seen: list[_Seen]) -> Noise:
    """By how much the frames differ where they are aligned."""
    pairs = [measure_noise(seen[0].plane, other.plane, other.view) for other in seen[1:]]
    return common_noise(pairs) if pairs else NO_NOISE


def _frame(
    plane: Tensor, motion: GlobalMotion, seen: list[_Seen], index: int, noise: Noise, method: str, flow: Flow
) -> _Found:
    """Local motion, confidence and likeness of one frame."""
    keyframe, warped = seen[0].plane, seen[index]
    if index == 0:
        return _Found(None, None, torch.ones_like(keyframe), trust.SAME)
    doubt = trust.disagreement(keyframe, warped.plane, noise)
    there = back = trip = None
    if _needs_flow(method, motion, warped, doubt):
        there, back = flow(keyframe, warped.plane), flow(warped.plane, keyframe)
        followed = _look(plane, motion, there)
        explained = trust.disagreement(keyframe, followed.plane, noise)
        if method == "auto":  # only where the global motion is contradicted and the flow explains more
            share = feather((doubt > 0.8) & (explained < 0.7 * doubt), 2.0)
            there, back = there * share, back * sample_at(share[None, None], back[None])[0, 0]
            followed = _look(plane, motion, there)
            explained = trust.disagreement(keyframe, followed.plane, noise)
        warped, doubt, trip = followed, explained, round_trip(there, back)
        there = compose_to_frame(motion.matrix, there) - motion.displacement(plane.shape)
        back = compose_to_keyframe(motion.matrix, back) - motion.inverse_displacement(plane.shape)
    likeness = trust.compare(keyframe, warped.plane, warped.view, noise)
    confidence = trust.trust(doubt, trip) * warped.view
    if likeness.correlation < SMALLEST_CORRELATION and not float(confidence[warped.view].mean()) > SMALLEST_TRUST:
        confidence = torch.zeros_like(confidence)
    return _Found(there, back, confidence, likeness)


def _needs_flow(method: str, motion: GlobalMotion, warped: _Seen, doubt: Tensor) -> bool:
    """Whether local motion is looked for: always, never, or for `auto` where the global motion is contradicted."""
    if method == "homography" or min(doubt.shape) < 16:
        return False
    if method != "auto":
        return True
    contradicted = int(((doubt > trust.HALF_TRUST) & warped.view).sum())
    return motion.model != "identity" and contradicted > LOCAL_SHARE * int(warped.view.sum())


def _write(maps: Correspondence, index: int, found: _Found, motion: GlobalMotion, planes: Luma) -> None:
    """Write one frame's maps and confidence at the burst's pixels."""
    to_frame, to_keyframe = maps.to_frame[0, index], maps.to_keyframe[0, index]
    size = (to_frame.shape[-2], to_frame.shape[-1])
    assert maps.confidence is not None
    maps.confidence[0, index] = planes.on_burst_pixels(found.confidence[None, None], size)[0]
    motion.displacement(size, out=to_frame)
    motion.inverse_displacement(size, out=to_keyframe)
    if found.there is not None and found.back is not None:
        to_frame += planes.map_in_burst_pixels(found.there[None], size)[0]
        to_keyframe += planes.map_in_burst_pixels(found.back[None], size)[0]


def _given(burst: Burst, maps: str | Path | Correspondence) -> Estimate:
    """Maps of the caller, checked against the burst."""
    if not isinstance(maps, Correspondence):
        from burstmamba.correspondence.maps import load_maps

        maps = load_maps(maps)
    expected = (1, len(burst), 2, *burst.size)
    if tuple(maps.to_frame.shape) != expected:
        raise InputError(
            f"the given maps must be {expected} to fit the burst, got {tuple(maps.to_frame.shape)}; "
            "estimate them on these frames."
        )
    planes = luma(burst)
    small = F.interpolate(maps.to_frame[0].cpu(), planes.planes.shape[-2:], mode="bilinear") / planes.pitch
    warped = sample_at(planes.planes[:, None], small)[:, 0]
    views = [trust.in_view(flow) for flow in small]
    pairs = [measure_noise(warped[0], w, view) for w, view in zip(warped[1:], views[1:], strict=True)]
    noise = common_noise(pairs) if pairs else NO_NOISE
    likeness = [trust.compare(warped[0], w, view, noise) for w, view in zip(warped, views, strict=True)]
    still = GlobalMotion(np.eye(3), "given")
    gains = torch.ones(len(burst), 3)
    return Estimate(maps, (still,) * len(burst), tuple(likeness), gains, measured=False)
