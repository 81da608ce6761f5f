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
    local_motion,
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
    device = burst.frames.device
    burst = Burst(burst.frames.detach().cpu(), burst.camera, burst.names)
    if isinstance(method, Correspondence) or str(method).endswith(".safetensors"):
        return _given(burst, method)
    if method not in METHODS:
        raise InputError(
            f"unknown correspondence method {str(method)!r}: use one of {', '.join(METHODS)}, "
            "or a .safetensors file of maps."
        )
    if method == "identity":
        return _unmoved(burst, device)
    flow: Flow = dis_flow
    if str(method).startswith("raft"):
        from burstmamba.correspondence.raft import load_raft

        flow = load_raft(str(method), raft_weights)
    planes = luma(burst)
    motions = estimate_global_motion(planes)
    in_burst = [GlobalMotion(planes.matrix_in_burst_pixels(m.matrix), m.model) for m in motions]
    gains = measure_gains(burst, in_burst)
    matched = luma(burst, gains) if bool((gains != 1).any()) else planes
    noise = _burst_noise(matched, motions)
    maps, likeness = [], []
    for index, motion in enumerate(motions):
        views = _frame_maps(matched, noise, index, motion, in_burst[index], str(method), flow, burst.size)
        maps.append(views[:3])
        likeness.append(views[3])
    to_frame, to_keyframe, confidence = (torch.stack(m)[None] for m in zip(*maps, strict=True))
    found = Correspondence(to_frame, to_keyframe, confidence).to(device)
    return Estimate(found, tuple(in_burst), tuple(likeness), gains)


def _unmoved(burst: Burst, device: torch.device) -> Estimate:
    """The caller says that nothing moves: taken at their word, with full confidence."""
    still = Correspondence.identity(burst.frames[None])
    confidence = torch.ones_like(still.to_frame[:, :, :1])
    maps = Correspondence(still.to_frame, still.to_keyframe, confidence).to(device)
    motions = (GlobalMotion(np.eye(3), "identity"),) * len(burst)
    return Estimate(maps, motions, (trust.Likeness(1.0, 1.0, 1.0),) * len(burst), torch.ones(len(burst), 3))


def _burst_noise(planes: Luma, motions: list[GlobalMotion]) -> Noise:
    """By how much the frames differ where they are aligned."""
    pairs = []
    for motion, frame in zip(motions[1:], planes.planes[1:], strict=True):
        whole = motion.displacement(tuple(frame.shape))
        warped = sample_at(frame[None, None], whole[None])[0, 0]
        pairs.append(measure_noise(planes.planes[0], warped, trust.in_view(whole)))
    return common_noise(pairs) if pairs else NO_NOISE


def _frame_maps(
    planes: Luma,
    noise: Noise,
    index: int,
    motion: GlobalMotion,
    in_burst: GlobalMotion,
    method: str,
    flow: Flow,
    size: tuple[int, int],
) -> tuple[Tensor, Tensor, Tensor, trust.Likeness]:
    """δ⁰→ˡ, δˡ→⁰ (2, h, w), confidence (1, h, w) and likeness of one frame."""
    if index == 0:
        zero = torch.zeros(2, *size)
        return zero, zero, torch.ones(1, *size), trust.Likeness(1.0, 1.0, 1.0)
    keyframe, frame = planes.planes[0], planes.planes[index]
    f, g, doubt = _local(keyframe, frame, motion, method, flow, noise)
    plane_map = compose_to_frame(motion.matrix, f) if f is not None else motion.displacement(tuple(frame.shape))
    warped = sample_at(frame[None, None], plane_map[None])[0, 0]
    view = trust.in_view(plane_map)
    likeness = trust.compare(keyframe, warped, view, noise)
    trip = round_trip(f, g) if f is not None and g is not None else None
    certainty = trust.trust(doubt, trip) * view
    if likeness.correlation < SMALLEST_CORRELATION and not float(certainty[view].mean()) > SMALLEST_TRUST:
        certainty = torch.zeros_like(certainty)
    certainty = planes.on_burst_pixels(certainty[None, None], size)[0]
    if f is None or g is None:
        return in_burst.displacement(size), in_burst.inverse_displacement(size), certainty, likeness
    f, g = (planes.map_in_burst_pixels(m[None], size)[0] for m in (f, g))
    return compose_to_frame(in_burst.matrix, f), compose_to_keyframe(in_burst.matrix, g), certainty, likeness


def _local(
    keyframe: Tensor, frame: Tensor, motion: GlobalMotion, method: str, flow: Flow, noise: Noise
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Residual flow there and back, or None where the global motion is all there is; and the disagreement left."""
    whole = motion.displacement(tuple(frame.shape))
    warped = sample_at(frame[None, None], whole[None])[0, 0]
    doubt = trust.disagreement(keyframe, warped, noise)
    if method == "homography" or min(frame.shape) < 16:
        return None, None, doubt
    if method == "auto":
        contradicted = float((doubt[trust.in_view(whole)] > trust.HALF_TRUST).float().mean())
        if motion.model == "identity" or not contradicted > LOCAL_SHARE:
            return None, None, doubt
    f, g = local_motion(keyframe, frame, motion, flow)
    followed = sample_at(frame[None, None], compose_to_frame(motion.matrix, f)[None])[0, 0]
    doubt_local = trust.disagreement(keyframe, followed, noise)
    if method != "auto":
        return f, g, doubt_local
    there = feather((doubt > 0.8) & (doubt_local < 0.7 * doubt), 2.0)
    back = sample_at(there[None, None], g[None])[0, 0]
    f, g = f * there, g * back
    followed = sample_at(frame[None, None], compose_to_frame(motion.matrix, f)[None])[0, 0]
    return f, g, trust.disagreement(keyframe, followed, noise)


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
    return Estimate(maps, (still,) * len(burst), tuple(likeness), torch.ones(len(burst), 3))
