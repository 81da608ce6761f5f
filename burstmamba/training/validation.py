"""Fixed bursts that a run is watched with: one frame, many frames, and many copies of one frame."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from burstmamba.checkpoint import write_atomically
from burstmamba.correspondence.field import Correspondence
from burstmamba.data.sample import Sample
from burstmamba.model.base_image import base_image
from burstmamba.model.config import ModelConfig

BORDER = 16  # HR pixels not scored on each side
BATCH = 8


@dataclass(frozen=True)
class Scores:
    """Mean PSNR in dB over the validation bursts, in the space of the targets (sRGB, or linear for RAW)."""

    base: float
    """The interpolated keyframe."""
    single: float
    """L = 1: the burst stream is detached."""
    burst: float
    """All frames."""
    copies: float
    """As many copies of the keyframe: a network that gains here does not use the other frames."""


def psnr(image: Tensor, target: Tensor) -> Tensor:
    """PSNR of each image of (b, 3, h, w), pooled over colours, without the border: (b,)."""
    border = min(BORDER, image.shape[-1] // 4)
    window = (..., slice(border, -border), slice(border, -border))
    error = (image.clamp(0, 1) - target)[window].double().square().flatten(1).mean(dim=1)
    return -10 * torch.log10(error.clamp(min=1e-10))


class ValidationSet:
    """The bursts, kept on the device, and what an interpolation makes of them."""

    def __init__(self, sample: Sample | Callable[[], Sample], config: ModelConfig) -> None:
        """Take the bursts, or a function that makes them when they are first asked for."""
        self.source, self.config = sample, config
        self.linear = config.in_channels == 1

    @cached_property
    def sample(self) -> Sample:
        """The bursts with their truth."""
        return self.source if isinstance(self.source, Sample) else self.source()

    @cached_property
    def maps(self) -> Correspondence:
        """The maps that come with the bursts, or the identity."""
        return self.sample.correspondence or Correspondence.identity(self.sample.frames)

    @cached_property
    def base(self) -> Tensor:
        """(b, 3, s·h, s·w): the interpolated keyframes."""
        return base_image(self.sample.frames[:, 0], self.config.scale, self.config.centres)

    @torch.no_grad()
    def score(self, model: nn.Module) -> tuple[Scores, Tensor]:
        """Run the model over all bursts.

        Returns:
            The scores, and a picture (3, h, w) in [0, 1]: rows of interpolation, L = 1, all frames, truth.
        """
        bursts, target, was_training = self.sample.frames, self.sample.target, model.training
        model.eval()
        rows: dict[str, list[Tensor]] = {"single": [], "burst": [], "copies": []}
        for start in range(0, len(bursts), BATCH):
            part = slice(start, start + BATCH)
            frames, maps = bursts[part], self.maps.apply(lambda tensor, part=part: tensor[part])
            copies = frames[:, :1].expand_as(frames).contiguous()
            rows["single"].append(model(frames[:, :1], None).float())
            rows["burst"].append(model(frames, maps).float())
            rows["copies"].append(model(copies, Correspondence.identity(copies)).float())
        model.train(was_training)
        images = {name: torch.cat(parts) for name, parts in rows.items()}
        means = {name: psnr(image, target).mean().item() for name, image in images.items()}
        scores = Scores(base=psnr(self.base, target).mean().item(), **means)
        return scores, self.picture(images["single"], images["burst"])

    def picture(self, single: Tensor, burst: Tensor, count: int = 4) -> Tensor:
        """The first bursts side by side: interpolation, L = 1, all frames, truth; one row each."""
        columns = [image[:count].clamp(0, 1).float() for image in (self.base, single, burst, self.sample.target)]
        sheet = torch.cat([torch.cat(list(column), dim=-2) for column in columns], dim=-1).cpu()
        return sheet ** (1 / 2.2) if self.linear else sheet


def write_picture(path: Path, image: Tensor) -> None:
    """Write (3, h, w) in [0, 1] as PNG, whole or not at all."""
    from PIL import Image

    pixels = (image.clamp(0, 1) * 255 + 0.5).to(torch.uint8).permute(1, 2, 0).numpy()
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG")
    write_atomically(path, content.getvalue())
