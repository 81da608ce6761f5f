"""What a burst is: frames of one scene, keyframe first, and the camera that took them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from burstmamba.errors import InputError

CFA_ORDERS = ("RGGB", "BGGR", "GRBG", "GBRG")


@dataclass(frozen=True)
class Camera:
    """What is known of the camera; the defaults describe developed sRGB frames."""

    cfa: str | None = None
    """Mosaic by its top-left 2×2, row by row (`"RGGB"`), or None for RGB frames."""
    linear: bool = False
    """Whether values are proportional to light; sRGB-encoded otherwise."""
    white_balance: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Gains that make grey equal in R, G and B; green is 1."""
    color_matrix: tuple[tuple[float, float, float], ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    """White-balanced camera RGB to linear sRGB, rows sum to 1."""
    noise: tuple[float, float] | None = None
    """(shot, read): the variance of a value x is x·shot + read, in [0, 1] units; None when unknown."""

    def __post_init__(self) -> None:
        if self.cfa is not None and self.cfa not in CFA_ORDERS:
            raise InputError(f"cfa must be one of {', '.join(CFA_ORDERS)} or None, got {self.cfa!r}.")


@dataclass(frozen=True)
class Burst:
    """Frames of one scene. Frame 0 is the keyframe, the one that is reconstructed."""

    frames: Tensor
    """(l, c, h, w) float in [0, 1]; c = 3 for RGB, 1 for a mosaic."""
    camera: Camera = field(default_factory=Camera)
    names: tuple[str, ...] = ()
    """Where each frame came from, for messages; empty when unknown."""

    def __post_init__(self) -> None:
        check_frames(self.frames, rank=4)
        channels = 1 if self.camera.cfa else 3
        if self.frames.shape[1] != channels:
            kind = f"a {self.camera.cfa} mosaic" if self.camera.cfa else "RGB frames"
            raise InputError(f"{kind} must have {channels} channel(s), got {self.frames.shape[1]}.")
        if not self.names:
            object.__setattr__(self, "names", tuple(f"frame {i}" for i in range(len(self))))
        if len(self.names) != len(self):
            raise InputError(f"expected a name for each of {len(self)} frames, got {len(self.names)}.")

    @classmethod
    def from_arrays(
        cls, pictures: Sequence[np.ndarray], camera: Camera | None = None, names: tuple[str, ...] = ()
    ) -> Burst:
        """A burst of pictures as OpenCV-like libraries hold them, but red first; the keyframe is the first.

        Args:
            pictures: (h, w, 3) uint8, uint16 or float in [0, 1], all of one size; for a mosaic (h, w) float.
            camera: of a mosaic; developed sRGB otherwise.
        """
        frames = [_as_frame(np.asarray(picture), i) for i, picture in enumerate(pictures)]
        if not frames:
            raise InputError("a burst needs at least one picture.")
        for i, frame in enumerate(frames):
            if frame.shape != frames[0].shape:
                expected, got = (tuple(f.shape[1:]) + (f.shape[0],) for f in (frames[0], frame))
                raise InputError(f"all pictures must have one shape: the first is {expected}, number {i} is {got}.")
        return cls(torch.stack(frames), camera or Camera(), names)

    def __len__(self) -> int:
        return self.frames.shape[0]

    @property
    def size(self) -> tuple[int, int]:
        """(h, w) in pixels."""
        return self.frames.shape[-2], self.frames.shape[-1]

    def select(self, indices: list[int]) -> Burst:
        """The burst of these frames in this order; the first one becomes the keyframe."""
        return replace(self, frames=self.frames[indices], names=tuple(self.names[i] for i in indices))


def _as_frame(picture: np.ndarray, index: int) -> Tensor:
    """(h, w[, c]) → (c, h, w) float32 in [0, 1]."""
    if picture.ndim == 2:
        picture = picture[..., None]
    white = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}.get(picture.dtype.newbyteorder("="))
    if picture.ndim != 3 or (white is None and picture.dtype.kind != "f"):
        raise InputError(
            f"picture {index} must be an array (h, w, 3) of uint8, uint16 or float in [0, 1], "
            f"got {picture.dtype} {picture.shape}."
        )
    if white is not None and picture.shape[2] == 1:
        raise InputError(
            f"picture {index} is a mosaic of {picture.dtype}: give (value - black) / (white - black) as float; "
            "a grey picture needs three channels."
        )
    frame = torch.from_numpy(picture.astype(np.float32)).permute(2, 0, 1).contiguous() / (white or 1)
    if frame.numel() and (float(frame.max()) > 1 or float(frame.min()) < 0):
        raise InputError(
            f"picture {index} must lie in [0, 1], got {float(frame.min()):.3g} to {float(frame.max()):.3g}; "
            "divide by the white level."
        )
    return frame


def check_frames(frames: Tensor, rank: int) -> None:
    """Raise InputError unless `frames` is a finite floating-point (b, l, c, h, w) or (l, c, h, w) tensor."""
    layout = "(b, l, c, h, w)" if rank == 5 else "(l, c, h, w)"
    if not isinstance(frames, Tensor):
        raise InputError(f"frames must be a tensor {layout}, got {type(frames).__name__}; use torch.as_tensor.")
    if frames.ndim != rank:
        raise InputError(f"frames must have {rank} dimensions {layout}, got shape {tuple(frames.shape)}.")
    if not frames.is_floating_point():
        raise InputError(f"frames must be floating point in [0, 1], got {frames.dtype}; divide by the white level.")
    if 0 in frames.shape:
        raise InputError(f"a burst needs at least one frame of at least 1×1 pixels, got shape {tuple(frames.shape)}.")
    # Looked at on the CPU alone, where the answer costs no synchronisation, and frame by frame, to save memory.
    if frames.device.type != "cpu" or torch.compiler.is_compiling():
        return
    # The extremes tell: NaN anywhere makes both NaN, and finding them takes a tenth of the time of isfinite.
    if not all(math.isfinite(value) for frame in frames.detach().flatten(0, rank - 4) for value in frame.aminmax()):
        raise InputError("frames contain NaN or infinite values; clean them before the network.")
