"""Make a burst ready for the network: choose the keyframe, align, match exposure, leave out what would harm."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.correspondence import confidence as trust
from burstmamba.correspondence.estimate import (
    SMALLEST_CORRELATION,
    SMALLEST_TRUST,
    Keyframe,
    estimate,
    estimate_frame,
    prepare_keyframe,
)
from burstmamba.correspondence.field import Correspondence
from burstmamba.correspondence.homography import GlobalMotion
from burstmamba.correspondence.light import brighten
from burstmamba.correspondence.light import match_exposure as apply_gains
from burstmamba.correspondence.luma import luma
from burstmamba.correspondence.noise import FINE, details
from burstmamba.correspondence.relight import apply_change, can_compare, find_change, lit, relight
from burstmamba.errors import InputError

log = logging.getLogger(__name__)

SMALLEST_CONFIDENCE = 0.2
SMALLEST_SHARPNESS = 0.62
SMALLEST_OVERLAP = 0.25
ENOUGH_PIXELS = 1_000_000
"""Of a frame, for the numbers of its report."""


@dataclass(frozen=True)
class FrameReport:
    """What was found about one frame; the keyframe comes first, the others in the order they were given."""

    name: str
    index: int
    """Place in the burst as it was given."""
    kept: bool
    reason: str
    """Why it was left out; empty when kept."""
    confidence: float
    """Mean over the keyframe's pixels that the frame sees, in [0, 1]."""
    motion: tuple[float, float]
    """Mean displacement from the keyframe in pixels, x to the right, y down."""
    sharpness: float
    """Contrast of fine details relative to the keyframe's."""
    overlap: float
    """Share of the keyframe that the frame sees."""
    correlation: float
    """Of the details, noise apart."""
    model: str
    """Global motion: "homography", "affine", "similarity", "translation", "identity" or "given"."""
    gains: tuple[float, float, float]
    """What its red, green and blue light was multiplied with to match the keyframe."""
    relit: float = 0.0
    """Share of the keyframe that it saw in another light, matched place by place."""


@dataclass(frozen=True)
class Alignment:
    """A burst that is ready for the network."""

    burst: Burst
    """The kept frames, keyframe first."""
    correspondence: Correspondence
    """Maps and confidence of the kept frames."""
    frames: tuple[FrameReport, ...]
    """Every frame, kept or not, keyframe first."""
    notes: tuple[str, ...]
    """Sentences a user should read."""

    def maps_of_all_frames(self) -> Correspondence:
        """Maps that fit the burst as it was given, keyframe first: those left out have no motion and confidence 0."""
        kept = [i for i, frame in enumerate(self.frames) if frame.kept]
        maps = self.correspondence
        confidence = torch.ones_like(maps.to_frame[:, :, :1]) if maps.confidence is None else maps.confidence
        if len(kept) == len(self.frames):
            return Correspondence(maps.to_frame, maps.to_keyframe, confidence)
        whole = []
        for part in (maps.to_frame, maps.to_keyframe, confidence):
            whole.append(part.new_zeros(1, len(self.frames), *part.shape[2:]))
            whole[-1][:, kept] = part
        return Correspondence(*whole)


def align_burst(
    burst: Burst,
    method: str | Path | Correspondence = "auto",
    *,
    keyframe: str | int = "first",
    match_exposure: bool = True,
    smallest_confidence: float = SMALLEST_CONFIDENCE,
    raft_weights: str | Path | None = None,
) -> Alignment:
    """Align a burst and leave out the frames that cannot be used.

    Args:
        burst: frames in any order.
        method: as in `estimate_correspondence`.
        keyframe: "first", "sharpest" or the index of the frame to reconstruct.
        match_exposure: whether frames of other brightness or colour are matched to the keyframe in the result;
            for the estimation they always are.
        smallest_confidence: frames whose mean confidence is below are left out.
        raft_weights: file with RAFT's weights.
    """
    chosen = choose_keyframe(burst, keyframe)
    order = [chosen] + [i for i in range(len(burst)) if i != chosen]
    notes = []
    if chosen != 0:
        notes.append(f"{burst.names[chosen]} is the keyframe.")
    burst = _select(burst, order)
    found = estimate(burst, method, raft_weights=raft_weights)
    maps = found.correspondence
    reports = [
        _report(burst.names[i], order[i], i, maps, motion, likeness, gain, smallest_confidence)
        for i, (motion, likeness, gain) in enumerate(zip(found.motions, found.likeness, found.gains, strict=True))
    ]
    if match_exposure:
        burst = apply_gains(burst, found.gains)
    kept = [i for i, report in enumerate(reports) if report.kept]
    maps = maps if len(kept) == len(burst) else maps.select(kept)
    burst = _select(burst, kept)
    if match_exposure and found.measured:
        burst, shares = relight(burst, maps)
        for i, share in zip(kept, shares, strict=True):
            reports[i] = replace(reports[i], relit=share)
    notes += describe(reports, match_exposure)
    for note in notes:
        log.info(note)
    return Alignment(burst, maps, tuple(reports), tuple(notes))


@dataclass(frozen=True)
class Anchor:
    """The keyframe as `align_frame` needs it, prepared once for the whole burst."""

    keyframe: Keyframe
    light: Tensor | None
    """(3, h, w): the small picture with which the light of frames is compared; None for small frames."""

    @classmethod
    def of(cls, burst: Burst, method: str) -> Anchor:
        """The first frame of a burst; `method` is one of METHODS but "identity"."""
        return cls(
            prepare_keyframe(burst, method), lit(burst.frames[0], burst.camera) if can_compare(burst.size) else None
        )


def align_frame(anchor: Anchor, burst: Burst, index: int, maps: Correspondence, frames: Tensor) -> FrameReport:
    """`align_burst` of the keyframe and one other frame alone, written into the place of that frame.

    Args:
        anchor: of the burst.
        burst: keyframe first.
        index: of the other frame.
        maps: of the whole burst, in any precision.
        frames: (l, c, h, w): where the frame goes if its light changes; see `changed`.
    """
    frame, camera = burst.frames[index], burst.camera
    motion, likeness, gain = estimate_frame(anchor.keyframe, frame, index, maps)
    report = _report(burst.names[index], index, index, maps, motion, likeness, gain, SMALLEST_CONFIDENCE)
    if not report.kept:
        return report
    if changed(report):
        frame = brighten(frame, gain, camera, out=frames[index])
    if anchor.light is None:
        return report
    change, share = find_change(anchor.light, frame, camera, maps, index)
    if change is not None:
        apply_change(frame, change, camera, out=frames[index])
    return replace(report, relit=share)


def keyframe_report(burst: Burst) -> FrameReport:
    """Of the keyframe, first in the burst."""
    same = {"confidence": 1.0, "sharpness": 1.0, "overlap": 1.0, "correlation": 1.0}
    still = {"motion": (0.0, 0.0), "model": "identity", "gains": (1.0, 1.0, 1.0)}
    return FrameReport(name=burst.names[0], index=0, kept=True, reason="", **same, **still)


def changed(report: FrameReport) -> bool:
    """Whether a frame that is kept was matched to the keyframe's light."""
    return report.kept and (report.relit > 0 or any(gain != 1 for gain in report.gains))


def _select(burst: Burst, indices: list[int]) -> Burst:
    """`burst.select` without a copy where nothing changes: large bursts weigh gigabytes."""
    return burst if indices == list(range(len(burst))) else burst.select(indices)


def choose_keyframe(burst: Burst, keyframe: str | int) -> int:
    """Index of the frame to reconstruct."""
    if keyframe == "first":
        return 0
    if keyframe == "sharpest":
        return int(np.argmax(sharpness(burst)))
    if isinstance(keyframe, int) and 0 <= keyframe < len(burst):
        return keyframe
    raise InputError(f'keyframe must be "first", "sharpest" or an index from 0 to {len(burst) - 1}, got {keyframe!r}.')


def sharpness(burst: Burst) -> list[float]:
    """Variance of each frame's fine details over its brightness squared, with what noise adds taken off."""
    planes = luma(burst)
    # White noise behind the difference of Gaussians of widths s and 2s: 1/4πs² + 1/16πs² − 1/5πs².
    floor = planes.noise**2 * (1 / 4 + 1 / 16 - 1 / 5) / (np.pi * FINE**2)
    energy = [float(details(plane, FINE).square().mean()) - floor for plane in planes.planes]
    return [e / max(float(plane.mean()) ** 2, 1e-6) for e, plane in zip(energy, planes.planes, strict=True)]


def _report(
    name: str,
    index: int,
    place: int,
    maps: Correspondence,
    motion: GlobalMotion,
    likeness: trust.Likeness,
    gain: Tensor,
    smallest_confidence: float,
) -> FrameReport:
    """What was found about the frame whose maps have this place; `index` is the one it was given at."""
    flow, confidence = maps.to_frame[0, place], maps.confidence
    step = max(1, int((flow[0].numel() / ENOUGH_PIXELS) ** 0.5))  # of a large frame every n-th row and column will do
    view = trust.in_view(flow, step)
    pixels = int(view.count_nonzero())
    overlap = pixels / view.numel()
    sure = 1.0 if confidence is None else float(trust.thin(confidence[0, place], step).float().sum()) / max(pixels, 1)
    x, y = trust.thin(flow, step).float().mean((1, 2))
    reason = "" if place == 0 else _reason(likeness, overlap, sure, smallest_confidence)
    return FrameReport(
        name=name,
        index=index,
        kept=not reason,
        reason=reason,
        confidence=min(sure, 1.0),
        motion=(float(x), float(y)),
        sharpness=likeness.sharpness,
        overlap=overlap,
        correlation=likeness.correlation,
        model=motion.model,
        gains=(float(gain[0]), float(gain[1]), float(gain[2])),
    )


def _reason(likeness: trust.Likeness, overlap: float, confidence: float, smallest_confidence: float) -> str:
    """Why a frame is left out, or an empty string."""
    if overlap < SMALLEST_OVERLAP:
        return f"it sees only {overlap:.0%} of the keyframe"
    if likeness.correlation < SMALLEST_CORRELATION and confidence < SMALLEST_TRUST:
        return f"it does not show the keyframe's scene (correlation {likeness.correlation:.2f})"
    if confidence < smallest_confidence:
        return f"it could not be aligned (confidence {confidence:.2f})"
    if likeness.sharpness < SMALLEST_SHARPNESS:
        return f"it is blurred (its details have {likeness.sharpness:.0%} of the keyframe's contrast)"
    return ""


def describe(reports: list[FrameReport], match_exposure: bool) -> list[str]:
    """Sentences about what a user would not expect."""
    notes = [f"{r.name} is left out: {r.reason}." for r in reports if not r.kept]
    others = reports[1:]
    if others and not any(r.kept for r in others):
        notes.append("No other frame can be used: the keyframe alone is reconstructed.")
    for model in ("affine", "similarity", "translation"):
        names = [r.name for r in others if r.kept and r.model == model]
        if names:
            notes.append(f"Too little texture for a homography, aligned by {model}: {_list(names)}.")
    still = [r.name for r in others if r.kept and r.model == "identity"]
    if still:
        notes.append(f"Taken as they are, without motion: {_list(still)}.")
    drifted = [r.name for r in others if r.kept and any(g != 1 for g in r.gains)]
    if drifted:
        done = "matched to the keyframe" if match_exposure else "not matched, as asked"
        notes.append(f"Brightness or colour differs and is {done}: {_list(drifted)}.")
    relit = [r.name for r in others if r.relit > 0]
    if relit:
        notes.append(f"The light differs in places and is matched to the keyframe: {_list(relit)}.")
    sharper = [r for r in others if r.kept and r.sharpness > 1 / SMALLEST_SHARPNESS]
    if sharper:
        best = max(sharper, key=lambda r: r.sharpness)
        notes.append(f'The keyframe is blurred; {best.name} is sharper: choose keyframe="sharpest".')
    return notes


def _list(names: list[str]) -> str:
    """The names, or their number when they are many."""
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} frames, {names[0]} to {names[-1]}"
