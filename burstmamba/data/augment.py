"""Augmentation of frames, maps and target together: turns, crops, frame order, burst length."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable

import torch
from torch import Tensor

from burstmamba.correspondence.field import Correspondence, pixel_grid
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError


def turn(sample: Sample, kind: int) -> Sample:
    """One of the eight flips and rotations.

    Bit 0 mirrors left and right, bit 1 top and bottom, bit 2 exchanges x and y (last). A mirrored RGGB mosaic, or a
    corner-aligned target, loses one LR pixel on each side of the mirrored axis so that its phase stays.
    """
    if not 0 <= kind < 8:
        raise InputError(f"a turn is a number from 0 to 7, got {kind}.")
    for bit, axis in ((1, -1), (2, -2)):
        if kind & bit:
            sample = _mirror(sample, axis)
    return _exchange(sample) if kind & 4 else sample


def _mirror(sample: Sample, axis: int) -> Sample:
    channel = 0 if axis == -1 else 1
    sign = torch.ones(2, 1, 1, device=sample.frames.device)
    sign[channel] = -1

    def flip_map(tensor: Tensor) -> Tensor:
        return tensor.flip(axis) * (sign if tensor.shape[2] == 2 else 1)

    mirrored = _changed(sample, lambda t: t.flip(axis), lambda t: t.flip(axis), flip_map)
    if sample.frames.shape[2] != 1 and sample.centres == "half-pixel":
        return mirrored
    size = sample.frames.shape[axis] - 2
    if size < 1:
        raise InputError("a mosaic needs at least 4×4 pixels to be mirrored.")
    # Mirrored, LR pixel i lies on s·i + s−1 of a corner-aligned target.
    late = sample.scale - 1 if sample.centres == "corner" else 0
    start = sample.scale + late
    return _changed(
        mirrored,
        lambda t: t.narrow(axis, 1, size),
        lambda t: t.narrow(axis, start, sample.scale * size),
        lambda t: t.narrow(axis, 1, size),
        in_view=True,
    )


def _exchange(sample: Sample) -> Sample:
    def exchange_map(tensor: Tensor) -> Tensor:
        return tensor.mT.flip(2) if tensor.shape[2] == 2 else tensor.mT

    return _changed(sample, lambda t: t.mT, lambda t: t.mT, exchange_map)


def crop(sample: Sample, top: int, left: int, height: int, width: int) -> Sample:
    """A window of LR pixels, cut at the same place from every frame; mosaics at even offsets only."""
    h, w = sample.frames.shape[-2:]
    if top < 0 or left < 0 or top + height > h or left + width > w or min(height, width) < 1:
        raise InputError(f"a window of {width}×{height} at ({left}, {top}) does not fit frames of {w}×{h}.")
    if sample.frames.shape[2] == 1 and (top % 2 or left % 2 or height % 2 or width % 2):
        raise InputError(f"a mosaic is cut at even places and sizes, got {width}×{height} at ({left}, {top}).")

    def cut(t: Tensor) -> Tensor:
        return t[..., top : top + height, left : left + width]

    s = sample.scale

    def cut_target(t: Tensor) -> Tensor:
        return t[..., s * top : s * (top + height), s * left : s * (left + width)]

    return _changed(sample, cut, cut_target, cut, in_view=True)


def take(sample: Sample, order: list[int]) -> Sample:
    """These frames in this order; the keyframe stays first."""
    if not order or order[0] != 0:
        raise InputError(f"the keyframe (frame 0) must stay first, got the order {order}.")
    return _changed(sample, lambda t: t[:, order], lambda t: t, lambda t: t[:, order])


def augment(
    sample: Sample, generator: torch.Generator, *, size: int | None = None, lengths: tuple[int, ...] = ()
) -> Sample:
    """A random crop, turn, burst length and order of the later frames.

    Args:
        sample: the bursts.
        generator: on the CPU.
        size: side of the crop in LR pixels (after the turn); None keeps everything.
        lengths: burst lengths to choose from; none keeps all frames.
    """

    def below(limit: int) -> int:
        return int(torch.randint(limit, (), generator=generator))

    sample = turn(sample, below(8))
    if size is not None:
        h, w = sample.frames.shape[-2:]
        if size > min(h, w):
            raise InputError(f"crops of {size}×{size} do not fit frames of {w}×{h}; ask for smaller ones.")
        step = 2 if sample.frames.shape[2] == 1 else 1
        top, left = (step * below((side - size) // step + 1) for side in (h, w))
        sample = crop(sample, top, left, size, size)
    frames = sample.frames.shape[1]
    length = min(frames, lengths[below(len(lengths))]) if lengths else frames
    others = (torch.randperm(frames - 1, generator=generator) + 1).tolist()
    return take(sample, [0, *others[: length - 1]])


def _changed(
    sample: Sample,
    frames: Callable[[Tensor], Tensor],
    target: Callable[[Tensor], Tensor],
    maps: Callable[[Tensor], Tensor],
    *,
    in_view: bool = False,
) -> Sample:
    """The sample with a function applied to each of its parts; with `in_view`, the frames' edges have moved in."""
    changed = [None if m is None else m.apply(maps) for m in (sample.correspondence, sample.exact)]
    if in_view:
        changed = [None if m is None else _seen(m) for m in changed]
    return replace(
        sample,
        frames=frames(sample.frames),
        target=target(sample.target),
        correspondence=changed[0],
        exact=changed[1],
    )


def _seen(maps: Correspondence) -> Correspondence:
    """Confidence 0 for matches that now lie outside their frame."""
    if maps.confidence is None:
        return maps
    h, w = maps.to_frame.shape[-2:]
    x, y = (pixel_grid(maps.to_frame)[:, None] + maps.to_frame).unbind(2)
    inside = (x > -1) & (x < w) & (y > -1) & (y < h)
    return replace(maps, confidence=maps.confidence * inside[:, :, None])
