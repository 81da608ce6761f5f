"""What every dataset and the synthesis yield: one batch of bursts with its ground truth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError


@dataclass(frozen=True)
class Sample:
    """Bursts, the photographs they should become and the maps the network is given.

    RGB values are sRGB-encoded, RAW values (frames and target) linear camera values, both in [0, 1].
    """

    frames: Tensor
    """(b, l, c, h, w); frame 0 is the keyframe; c = 3, or 1 for an RGGB mosaic."""
    target: Tensor
    """(b, 3, s·h, s·w): the keyframe's view at high resolution."""
    correspondence: Correspondence | None = None
    """What the network is given: possibly wrong in places, with a confidence. None: to be estimated."""
    exact: Correspondence | None = None
    """The truth, where it is known; confidence 0 where a keyframe pixel is not visible in a frame."""
    cameras: tuple[Camera, ...] = ()
    """One for each burst, or empty when nobody asked for them."""
    names: tuple[str, ...] = ()
    """One for each burst, or empty."""
    centres: str = "half-pixel"
    """LR pixel i covers target pixels s·i…s·i+s−1 (`"half-pixel"`), or lies on s·i (`"corner"`)."""

    def __post_init__(self) -> None:
        if self.frames.ndim != 5 or self.target.ndim != 4:
            raise InputError(
                "a sample needs frames (b, l, c, h, w) and a target (b, 3, s*h, s*w), "
                f"got {tuple(self.frames.shape)} and {tuple(self.target.shape)}."
            )
        b, _, _, h, w = self.frames.shape
        tb, _, th, tw = self.target.shape
        if tb != b or th % h or tw % w or th // h != tw // w:
            raise InputError(
                f"the target must be a whole multiple of the {b} burst(s) of {w}×{h} pixels, got {tb} of {tw}×{th}."
            )

    @property
    def scale(self) -> int:
        """How many target pixels a frame pixel covers in each direction."""
        return self.target.shape[-1] // self.frames.shape[-1]

    def burst(self, index: int = 0) -> Burst:
        """One burst of the batch, without its maps."""
        camera = self.cameras[index] if self.cameras else Camera()
        if not self.cameras and self.frames.shape[2] == 1:
            camera = Camera(cfa="RGGB", linear=True)
        return Burst(self.frames[index], camera)

    def to(self, device: torch.device | str) -> Sample:
        """The sample on another device."""
        maps = [None if m is None else m.to(device) for m in (self.correspondence, self.exact)]
        return replace(
            self, frames=self.frames.to(device), target=self.target.to(device), correspondence=maps[0], exact=maps[1]
        )

    @staticmethod
    def collate(samples: list[Sample]) -> Sample:
        """One batch of samples of the same size and length."""
        if len({tuple(s.frames.shape[1:]) for s in samples}) > 1:
            shapes = sorted({tuple(s.frames.shape[1:]) for s in samples})
            raise InputError(f"samples of one batch must have one shape (l, c, h, w), got {shapes}; crop them first.")
        return Sample(
            torch.cat([s.frames for s in samples]),
            torch.cat([s.target for s in samples]),
            collate_maps([s.correspondence for s in samples]),
            collate_maps([s.exact for s in samples]),
            sum((s.cameras for s in samples), ()),
            sum((s.names for s in samples), ()),
            samples[0].centres,
        )


def collate_maps(maps: list[Correspondence | None]) -> Correspondence | None:
    """One batch of maps; None where one of the bursts has none."""
    known = [m for m in maps if m is not None]
    if len(known) < len(maps):
        return None
    confidence = [m.confidence for m in known if m.confidence is not None]
    return Correspondence(
        torch.cat([m.to_frame for m in known]),
        torch.cat([m.to_keyframe for m in known]),
        torch.cat(confidence) if len(confidence) == len(known) else None,
    )
