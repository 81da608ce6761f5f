"""Correspondence of a whole burst by a named method."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence import confidence as trust
from burstmamba.correspondence.dense import (
    Flow,
    compose_to_frame,
    compose_to_keyframe,
    dis_flow,
    feather,
    round_trip,
)
from burstmamba.correspondence.exposure import measure_gain, measured_light
from burstmamba.correspondence.field import Correspondence, sample_at
from burstmamba.correspondence.homography import STILL, GlobalMotion, Target, find_motion, prepare
from burstmamba.correspondence.light import brighten
from burstmamba.correspondence.luma import Luma, grey, luma, luma_of, reduce_frame
from burstmamba.correspondence.noise import Noise, Structure, common_noise, measure_noise
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
    if method == "identity":
        return _unmoved(burst)
    keyframe = prepare_keyframe(burst, str(method), raft_weights)
    views = [_look_at(keyframe, frame, index) for index, frame in enumerate(burst.frames[1:], start=1)]
    noise = common_noise([view.noise for view in views])
    maps = Correspondence(*(torch.empty(1, len(burst), channels, *burst.size) for channels in (2, 2, 1)))
    write_still(maps)
    motions = (STILL, *(keyframe.in_burst(view.motion) for view in views))
    gains = torch.stack([torch.ones(3), *(view.gain for view in views)])
    likeness = [trust.SAME]
    for index in range(1, len(burst)):  # each view's memory is free when the maps of the next frame are written
        likeness.append(_finish(keyframe, views.pop(0), noise, maps, index))
    return Estimate(maps.to(burst.frames.device), motions, tuple(likeness), gains)


def estimate_frame(
    keyframe: Keyframe, frame: Tensor, index: int, maps: Correspondence
) -> tuple[GlobalMotion, trust.Likeness, Tensor]:
    """`estimate` for a burst of the keyframe and one frame (c, h, w), which is frame `index` of `maps`.

    Returns:
        Its motion in the burst's pixels, its likeness and its gains (3); its maps are written.
    """
    view = _look_at(keyframe, frame, index)
    likeness = _finish(keyframe, view, common_noise([view.noise]), maps, index)
    return keyframe.in_burst(view.motion), likeness, view.gain


def write_still(maps: Correspondence) -> None:
    """Write the keyframe's maps: it does not move and is trusted."""
    assert maps.confidence is not None
    maps.to_frame[:, 0], maps.to_keyframe[:, 0], maps.confidence[:, 0] = 0, 0, 1


def _unmoved(burst: Burst) -> Estimate:
    """The caller says that nothing moves: taken at their word, with full confidence; such maps take no memory."""
    zero, one = torch.zeros(1, device=burst.frames.device), torch.ones(1, device=burst.frames.device)
    still = zero.expand(1, len(burst), 2, *burst.size)
    maps = Correspondence(still, still, one.expand(1, len(burst), 1, *burst.size))
    return Estimate(maps, (STILL,) * len(burst), (trust.SAME,) * len(burst), torch.ones(len(burst), 3), measured=False)


@dataclass(frozen=True)
class Keyframe:
    """What every frame is compared with, prepared once for the whole burst."""

    camera: Camera
    method: str
    flow: Flow
    luma: Luma
    """Its plane alone."""
    target: Target | None
    structure: Structure
    light: Tensor
    """(3, h, w): the small picture on which light is measured."""

    def in_burst(self, motion: GlobalMotion) -> GlobalMotion:
        """A motion of the planes in the burst's pixels."""
        return (
            motion if motion is STILL else GlobalMotion(self.luma.matrix_in_burst_pixels(motion.matrix), motion.model)
        )


def prepare_keyframe(burst: Burst, method: str, raft_weights: str | Path | None = None) -> Keyframe:
    """The first frame of a burst, to be compared with the others by one of METHODS."""
    if method not in METHODS:
        raise InputError(
            f"unknown correspondence method {method!r}: use one of {', '.join(METHODS)}, "
            "or a .safetensors file of maps."
        )
    flow: Flow = dis_flow
    if method.startswith("raft"):
        from burstmamba.correspondence.raft import load_raft

        flow = load_raft(method, raft_weights)
    luma = luma_of(burst.frames[:1], burst.camera)
    plane, light = luma.planes[0], measured_light(burst.frames[0], burst.camera)
    return Keyframe(burst.camera, method, flow, luma, prepare(plane, luma.noise), Structure.of(plane), light)


@dataclass(frozen=True)
class _Seen:
    """A frame in the keyframe's view."""

    structure: Structure
    """Of the plane."""
    view: Tensor
    """(h, w) bool: what the frame sees of the keyframe."""


@dataclass(frozen=True)
class _View:
    """What is known of a frame before its noise is compared with the burst's."""

    plane: Tensor
    """(h, w), of the keyframe's light."""
    motion: GlobalMotion
    """Between the planes."""
    gain: Tensor
    """(3)."""
    seen: _Seen
    noise: Noise


def _look_at(keyframe: Keyframe, frame: Tensor, index: int) -> _View:
    """Global motion, light and noise of a frame (c, h, w)."""
    camera, factor = keyframe.camera, round(keyframe.luma.pitch)
    small = reduce_frame(frame, camera, factor)
    plane = grey(small, camera, factor)
    motion = find_motion(keyframe.target, plane, index)
    gain = measure_gain(keyframe.light, frame, camera, keyframe.in_burst(motion))
    if bool((gain != 1).any()):
        plane = grey(brighten(small, gain, camera), camera, factor)
    seen = _follow(plane, motion)
    return _View(plane, motion, gain, seen, measure_noise(keyframe.structure, seen.structure, seen.view))


def _follow(plane: Tensor, motion: GlobalMotion, there: Tensor | None = None) -> _Seen:
    """A frame's plane in the keyframe's view, after its global motion and the residual flow."""
    way = motion.displacement(plane.shape) if there is None else compose_to_frame(motion.matrix, there)
    return _Seen(Structure.of(sample_at(plane[None, None], way[None])[0, 0]), trust.in_view(way))


def _finish(keyframe: Keyframe, view: _View, noise: Noise, maps: Correspondence, index: int) -> trust.Likeness:
    """Local motion, confidence and likeness of one frame; its maps are written."""
    plane, motion, seen = view.plane, view.motion, view.seen
    doubt = trust.disagreement(keyframe.structure, seen.structure, noise)
    there = back = trip = None
    if _needs_flow(keyframe.method, motion, seen.view, doubt):
        first, second = keyframe.structure.plane, seen.structure.plane
        there, back = keyframe.flow(first, second), keyframe.flow(second, first)
        followed = _follow(plane, motion, there)
        explained = trust.disagreement(keyframe.structure, followed.structure, noise)
        if keyframe.method == "auto":  # only where the global motion is contradicted and the flow explains more
            share = feather((doubt > 0.8) & (explained < 0.7 * doubt), 2.0)
            there, back = there * share, back * sample_at(share[None, None], back[None])[0, 0]
            followed = _follow(plane, motion, there)
            explained = trust.disagreement(keyframe.structure, followed.structure, noise)
        seen, doubt, trip = followed, explained, round_trip(there, back)
        there = compose_to_frame(motion.matrix, there) - motion.displacement(plane.shape)
        back = compose_to_keyframe(motion.matrix, back) - motion.inverse_displacement(plane.shape)
    likeness = trust.compare(keyframe.structure, seen.structure, seen.view, noise)
    confidence = trust.trust(doubt, trip).mul_(seen.view)
    pixels = int(seen.view.sum())
    if likeness.correlation < SMALLEST_CORRELATION and not float(confidence.sum()) > SMALLEST_TRUST * pixels:
        confidence.zero_()
    _write(maps, index, keyframe, motion, confidence, there, back)
    return likeness


def _needs_flow(method: str, motion: GlobalMotion, view: Tensor, doubt: Tensor) -> bool:
    """Whether local motion is looked for: always, never, or for `auto` where the global motion is contradicted."""
    if method == "homography" or min(doubt.shape) < 16:
        return False
    if method != "auto":
        return True
    contradicted = int(((doubt > trust.HALF_TRUST) & view).sum())
    return motion.model != "identity" and contradicted > LOCAL_SHARE * int(view.sum())


def _write(
    maps: Correspondence,
    index: int,
    keyframe: Keyframe,
    motion: GlobalMotion,
    confidence: Tensor,
    there: Tensor | None,
    back: Tensor | None,
) -> None:
    """Write one frame's maps and confidence at the burst's pixels, in the precision of `maps`.

    Args:
        motion: of the planes.
        confidence: (h, w) on the plane.
        there: what is to be added to the global motion's δ⁰→ˡ (2, h, w); None where nothing moves by itself.
        back: and to its δˡ→⁰.
    """
    to_frame, to_keyframe = maps.to_frame[0, index], maps.to_keyframe[0, index]
    size = (to_frame.shape[-2], to_frame.shape[-1])
    motion, luma = keyframe.in_burst(motion), keyframe.luma
    assert maps.confidence is not None
    for rows, band in luma.bands_on_burst_pixels(confidence[None, None], size):
        maps.confidence[0, index, :, rows] = band[0]
    for way, flow, target in ((motion.displacement, there, to_frame), (motion.inverse_displacement, back, to_keyframe)):
        if flow is None:
            way(size, out=target)
            continue
        whole = way(size)
        for rows, band in luma.bands_on_burst_pixels(luma.pitch * flow[None], size):
            target[:, rows] = band[0].add_(whole[:, rows])


def _given(burst: Burst, maps: str | Path | Correspondence) -> Estimate:
    """Maps of the caller, checked against the burst."""
    if not isinstance(maps, Correspondence):
        from burstmamba.correspondence.maps import load_maps, mapped_frames

        file, maps = maps, load_maps(maps)
        names = mapped_frames(file)
        if names != list(burst.names) and sorted(names) == sorted(burst.names):
            raise InputError(
                f"{Path(file).name} was made for these frames with {names[0]} as keyframe, or in another order; here "
                f"{burst.names[0]} is the first. Estimate the maps again."
            )
    expected = (1, len(burst), 2, *burst.size)
    if tuple(maps.to_frame.shape) != expected:
        raise InputError(
            f"the given maps must be {expected} to fit the burst, got {tuple(maps.to_frame.shape)}; "
            "estimate them on these frames."
        )
    planes = luma(burst)
    small = F.interpolate(maps.to_frame[0].cpu(), planes.planes.shape[-2:], mode="bilinear") / planes.pitch
    warped = [Structure.of(plane) for plane in sample_at(planes.planes[:, None], small)[:, 0]]
    views = [trust.in_view(flow) for flow in small]
    pairs = [measure_noise(warped[0], w, view) for w, view in zip(warped[1:], views[1:], strict=True)]
    noise = common_noise(pairs)
    likeness = [trust.compare(warped[0], w, view, noise) for w, view in zip(warped, views, strict=True)]
    still = GlobalMotion(np.eye(3), "given")
    gains = torch.ones(len(burst), 3)
    return Estimate(maps, (still,) * len(burst), tuple(likeness), gains, measured=False)
