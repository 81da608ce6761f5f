"""Methods as data, and how each turns a batch of bursts into pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence.field import Correspondence
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.evaluation.alignment_cache import AlignedBurst
from burstmamba.evaluation.baselines import bicubic, nearest
from burstmamba.evaluation.classical import SYNBURST_OPTICS, ClassicalSettings, solve
from burstmamba.evaluation.treatment import TREATMENTS, treat
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.restoration.runner import Footprint, free_memory

KNOWN_MAPS = ("identity", "exact", "given")
"""Correspondence that needs no estimator: nothing moves; the synthesis's truth; what the data set carries."""
LARGEST_BATCH = 16


@dataclass(frozen=True)
class Method:
    """One way of making the picture; its name is the row of the table."""

    kind: str
    """`network`, `bicubic`, `nearest`, `classical` or `outputs`."""
    frames: int = 1
    correspondence: str = "auto"
    treatment: str = "none"
    folder: Path | None = None
    """Where another method's pictures lie."""

    def __post_init__(self) -> None:
        if self.treatment not in TREATMENTS:
            raise InputError(f"unknown treatment {self.treatment!r}; the known ones are {', '.join(TREATMENTS)}.")
        if self.frames < 1:
            raise InputError(f"a burst length must be at least 1, got {self.frames}.")

    @property
    def label(self) -> str:
        """Its name in tables: `L=14`, `L=14 identity`, `L=14 exact, rounded`, `classical`."""
        if self.kind == "outputs":
            return str(self.folder.name if self.folder else "outputs")
        if self.kind in ("bicubic", "nearest"):
            return self.kind
        name = f"L={self.frames}" if self.kind == "network" else f"classical L={self.frames}"
        if self.frames == 1:
            return name
        extra = [] if self.correspondence == "auto" or self.treatment == "copies" else [self.correspondence]
        extra += [] if self.treatment == "none" else [self.treatment]
        return " ".join((name, ", ".join(extra))).strip()

    @property
    def folder_name(self) -> str:
        """Its name as a folder of pictures: `L=14-exact-rounded`."""
        return self.label.replace(",", "").replace(" ", "-")

    @property
    def needs_estimate(self) -> bool:
        """Whether maps have to be estimated for it."""
        uses_maps = self.kind in ("network", "classical") and self.frames > 1 and self.treatment != "copies"
        return uses_maps and self.correspondence not in KNOWN_MAPS


def frames_and_maps(
    sample: Sample, method: Method, estimated: Callable[[str], AlignedBurst]
) -> tuple[Tensor, Correspondence | None]:
    """What the method sees of one burst.

    Args:
        sample: the burst.
        method: says how many frames, and which maps.
        estimated: gives the maps of the burst by an estimator's name.

    Returns:
        Frames (1, l, c, h, w) and their maps; None means the identity.
    """
    there = sample.frames.shape[1]
    if method.frames == 1 or method.kind in ("bicubic", "nearest"):
        return sample.frames[:, :1], None
    if method.frames > there:
        raise InputError(f"its bursts have {there} frames; choose a --burst-length of at most that.")
    further = range(there - method.frames + 1, there) if method.treatment == "others" else range(1, method.frames)
    if method.treatment == "copies" or method.correspondence == "identity":
        return treat(sample.frames[:, [0, *further]], None, method.treatment)
    if method.correspondence in ("exact", "given"):
        maps = sample.exact if method.correspondence == "exact" else sample.correspondence
        if maps is None:
            raise InputError(
                f"the bursts carry no {method.correspondence} maps; estimate them with --correspondence auto."
            )
        aligned = AlignedBurst(list(range(there)), maps)
    else:
        aligned = estimated(method.correspondence)
    kept, maps = aligned.among(further)
    return treat(sample.frames[:, kept], maps, method.treatment)


@torch.no_grad()
def reconstruct(
    method: Method,
    frames: Tensor,
    maps: Correspondence | None,
    *,
    model: BurstMamba | None,
    scale: int,
    centres: str,
    linear: bool,
    classical: ClassicalSettings | None = None,
) -> Tensor:
    """Pictures of a batch of bursts of one shape.

    Args:
        method: what to do.
        frames: (b, l, c, h, w) on the device to compute on.
        maps: of all frames, or None for identity.
        model: the network, for the kind `network`.
        scale: output pixels for each input pixel.
        centres: `half-pixel` or `corner`.
        linear: whether values are linear light.
        classical: constants of the classical solver; None takes the benchmark's optics.

    Returns:
        (b, 3, scale·h, scale·w) float32, not clamped.
    """
    if method.kind == "bicubic":
        return bicubic(frames[:, 0], scale, centres)
    if method.kind == "nearest":
        return nearest(frames[:, 0], scale, centres)
    if method.kind == "classical":
        known = maps or Correspondence.identity(frames)
        settings = classical or (SYNBURST_OPTICS if centres == "corner" else ClassicalSettings())
        return solve(frames, known, linear=linear, scale=scale, centres=centres, settings=settings)
    if model is None:
        raise InputError("this method needs a network; give its weights.")
    picture = run_network(model, frames, maps)
    return picture if centres == model.config.centres else move_centres(picture, scale, centres)


def move_centres(picture: Tensor, scale: int, centres: str) -> Tensor:
    """A picture written for the other pixel centres, resampled to these: (b, 3, h, w).

    With `corner` centres LR pixel i lies on HR pixel scale·i, with `half-pixel` ones (scale - 1) / 2 further.
    """
    shift = (scale - 1) / 2 if centres == "corner" else -(scale - 1) / 2
    rows, columns = (lanczos_shift(size, shift).to(picture) for size in picture.shape[-2:])
    return rows @ picture @ columns.T


def lanczos_shift(size: int, shift: float) -> Tensor:
    """(size, size): weights that look up every pixel's value `shift` pixels further, by eight taps; ends replicated."""
    place = torch.arange(size, dtype=torch.float64) + shift
    index = place.floor()[:, None] + torch.arange(-3, 5)
    distance = place[:, None] - index
    taps = torch.sinc(distance) * torch.sinc(distance / 4)
    taps = taps / taps.sum(dim=1, keepdim=True)
    return torch.zeros(size, size, dtype=torch.float64).scatter_add_(1, index.clamp(0, size - 1).long(), taps)


@torch.inference_mode()
def run_network(model: BurstMamba, frames: Tensor, maps: Correspondence | None) -> Tensor:
    """The network on whole images, in windows only where one image does not fit: (b, 3, s·h, s·w) float32."""
    if batch_size(model, frames.shape) == 0:
        from burstmamba.restoration.restore import restore_burst

        camera = Camera("RGGB", linear=True) if frames.shape[2] == 1 else Camera()
        pictures = []
        for index in range(len(frames)):
            its_maps = None if maps is None else maps.apply(lambda tensor, i=index: tensor[i : i + 1])
            burst = Burst(frames[index].cpu(), camera)
            known = its_maps or Correspondence.identity(frames[index : index + 1])
            pictures.append(restore_burst(model, burst, correspondence=known).to(frames.device))
        return torch.stack(pictures)
    with torch.autocast(frames.device.type, torch.bfloat16, enabled=frames.device.type == "cuda"):
        return model(frames, maps).float()


def batch_size(model: BurstMamba | None, shape: torch.Size | tuple[int, ...]) -> int:
    """How many bursts of (b, l, c, h, w) fit at once; 0 when one is too large."""
    if model is None:
        return LARGEST_BATCH
    where = next(model.parameters()).device
    needed = Footprint().bytes_per_pixel(model.config, shape[1], where) * shape[-2] * shape[-1]
    fitting = int(free_memory(where) * 0.6 / needed)
    return min(LARGEST_BATCH if where.type == "cuda" else 1, fitting)
