"""Correspondence maps, and the one place where pixel coordinates are defined.

Displacements are in LR pixels, channel 0 = x to the right, channel 1 = y down; pixel centres lie on integers.
Sampling is bilinear with replicated borders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import torch
from torch import Tensor

from burstmamba.errors import InputError
from burstmamba.kernels.sampling import sample_bilinear


def sample_at(features: Tensor, displacement: Tensor) -> Tensor:
    """Sample `features` bilinearly at u + displacement[u]: the paper's W(f, Π[u]).

    Args:
        features: (n, c, h, w).
        displacement: (n, 2, h', w') pixels, x then y; the output has its size.

    Returns:
        (n, c, h', w'), in the dtype of `features`.
    """
    if features.ndim != 4 or displacement.ndim != 4 or displacement.shape[1] != 2:
        raise InputError(
            "sample_at expects features (n, c, h, w) and displacement (n, 2, h, w), "
            f"got {tuple(features.shape)} and {tuple(displacement.shape)}."
        )
    return sample_bilinear(features, displacement)


def pixel_grid(like: Tensor) -> Tensor:
    """(1, 2, h, w) float32: the x and y of every pixel of a map shaped (..., h, w)."""
    h, w = like.shape[-2:]
    y, x = torch.meshgrid(
        torch.arange(h, dtype=torch.float32, device=like.device),
        torch.arange(w, dtype=torch.float32, device=like.device),
        indexing="ij",
    )
    return torch.stack((x, y))[None]


@dataclass(frozen=True)
class Correspondence:
    """Where each keyframe pixel lies in every frame, and back. Frame 0 maps to itself."""

    to_frame: Tensor
    """δ⁰→ˡ (b, l, 2, h, w): a pixel u of the keyframe is seen in frame l at u + δ⁰→ˡ[u]."""
    to_keyframe: Tensor
    """δˡ→⁰ (b, l, 2, h, w): a pixel v of frame l is seen in the keyframe at v + δˡ→⁰[v]."""
    confidence: Tensor | None = None
    """(b, l, 1, h, w) in [0, 1], in the keyframe's view: how far each match can be trusted; None = fully."""

    def __post_init__(self) -> None:
        shape = tuple(self.to_frame.shape)
        if len(shape) != 5 or shape[2] != 2:
            raise InputError(f"correspondence maps must be (b, l, 2, h, w), got {shape}.")
        if tuple(self.to_keyframe.shape) != shape:
            raise InputError(
                f"both maps must have one shape, got to_frame {shape} and to_keyframe {tuple(self.to_keyframe.shape)}."
            )
        expected = (*shape[:2], 1, *shape[3:])
        if self.confidence is not None and tuple(self.confidence.shape) != expected:
            raise InputError(f"confidence must be {expected}, got {tuple(self.confidence.shape)}.")

    @classmethod
    def identity(cls, frames: Tensor) -> Correspondence:
        """Zero displacement for frames (b, l, c, h, w)."""
        b, l, _, h, w = frames.shape
        zero = torch.zeros(b, l, 2, h, w, device=frames.device)
        return cls(zero, zero)

    def gather(self, features: Tensor) -> Tensor:
        """Every frame's features at the keyframe's pixels: (b, l, c, h, w) in native views → keyframe view."""
        return sample_at(features.flatten(0, 1), self.to_frame.flatten(0, 1)).unflatten(0, features.shape[:2])

    def scatter(self, features: Tensor) -> Tensor:
        """Features of the keyframe's view (b, l, c, h, w), brought back to each frame's native view."""
        return sample_at(features.flatten(0, 1), self.to_keyframe.flatten(0, 1)).unflatten(0, features.shape[:2])

    def apply(self, function: Callable[[Tensor], Tensor]) -> Correspondence:
        """The correspondence with `function` applied to each of its tensors (device moves, slices)."""
        confidence = None if self.confidence is None else function(self.confidence)
        return Correspondence(function(self.to_frame), function(self.to_keyframe), confidence)

    def to(self, device: torch.device | str) -> Correspondence:
        """The correspondence on another device."""
        return self.apply(lambda tensor: tensor.to(device))

    def select(self, indices: list[int] | slice) -> Correspondence:
        """The maps of these frames, in this order; the keyframe must stay first."""
        return self.apply(lambda tensor: tensor[:, indices])

    def rounded(self) -> Correspondence:
        """Maps rounded to whole pixels: the paper's "integer GAS"."""
        return Correspondence(self.to_frame.round(), self.to_keyframe.round(), self.confidence)

    def crop(self, top: int, left: int, height: int, width: int) -> Correspondence:
        """The maps of one window, cut from the keyframe and from every frame at the same place."""
        return self.apply(lambda tensor: tensor[..., top : top + height, left : left + width])
