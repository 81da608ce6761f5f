"""The classical multi-frame solver: the photograph that explains all frames best, and is smooth otherwise.

Known optics (Gaussian lens, square pixels), estimated maps, Huber data term, bilateral total variation, Adam.
Its constants were chosen on validation photographs, never on the benchmark (docs/decisions/0061).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.correspondence.field import Correspondence, pixel_grid
from burstmamba.evaluation.baselines import bicubic
from burstmamba.model.base_image import color_masks
from burstmamba.synthesis.colour import to_linear, to_srgb


@dataclass(frozen=True)
class ClassicalSettings:
    """Constants of the solver; lengths in HR pixels, values in the frames' own encoding."""

    lens: float = 0.85
    """Sigma of the lens blur."""
    pixel: int = 4
    """Side of a sensor pixel."""
    iterations: int = 50
    rate: float = 0.03
    prior: float = 4.0
    """Strength of the smoothness term against the noise variance."""
    model_error: float = 0.01
    """Standard deviation of what noise does not explain: optics and maps that are slightly wrong."""
    huber: float = 2.0
    """Residuals beyond so many standard deviations count linearly."""
    reach: int = 1
    """Largest shift of the bilateral total variation."""
    decay: float = 0.6
    """Weight of a shift by one more pixel."""


SYNBURST_OPTICS = ClassicalSettings(lens=0.45, pixel=2)
"""SyntheticBurst has no lens and averages the central 2×2 of each 4×4 after a bilinear warp."""


def solve(
    frames: Tensor,
    correspondence: Correspondence,
    *,
    linear: bool = False,
    scale: int = 4,
    centres: str = "half-pixel",
    settings: ClassicalSettings | None = None,
) -> Tensor:
    """Reconstruct the keyframe without learning.

    Args:
        frames: (b, l, 3, h, w), or (b, l, 1, h, w) RGGB mosaics; keyframe first.
        correspondence: maps of all frames; low confidence lowers a pixel's weight.
        linear: whether the values are linear light; sRGB-encoded otherwise.
        scale: output pixels for each input pixel.
        centres: as in `bicubic`.
        settings: the solver's constants.

    Returns:
        (b, 3, scale·h, scale·w) in [0, 1], encoded like the frames.
    """
    settings = settings or ClassicalSettings()
    b, l, c, h, w = frames.shape
    camera = _Camera(correspondence, settings, scale, centres, linear=linear, mosaic=c == 1)
    observed = frames.transpose(1, 2).reshape(b, c, l * h, w)
    sigma = noise_level(frames[:, 0])
    variance = (sigma.square() + settings.model_error**2).view(b, 1, 1, 1)
    limit = settings.huber * variance.sqrt()
    image = bicubic(frames[:, 0], scale, centres).clamp(0, 1).requires_grad_(True)
    optimiser = torch.optim.Adam([image], lr=settings.rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.iterations, settings.rate / 20)
    with torch.enable_grad():
        for _ in range(settings.iterations):
            residual = (camera(image) - observed).abs()
            data = torch.where(residual < limit, residual.square() / 2, limit * (residual - limit / 2))
            smoothness = bilateral_variation(image, settings.reach, settings.decay)
            loss = (data * camera.weights).sum() + settings.prior * (variance.flatten() * smoothness).sum()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                image.clamp_(0, 1)
    return image.detach()


class _Camera:
    """Predicts every frame from an HR image: blur once in the keyframe's view, then look up each frame's pixels."""

    def __init__(
        self,
        correspondence: Correspondence,
        settings: ClassicalSettings,
        scale: int,
        centres: str,
        *,
        linear: bool,
        mosaic: bool,
    ) -> None:
        maps = correspondence.to_keyframe.float()
        b, l, _, h, w = maps.shape
        self.linear, self.mosaic, self.pixel = linear, mosaic, settings.pixel
        self.kernel = point_spread(settings.lens, settings.pixel).to(maps.device)
        place = pixel_grid(maps) + maps.flatten(0, 1)  # (b*l, 2, h, w): LR pixels of the keyframe
        size = torch.tensor((w, h), device=maps.device).view(1, 2, 1, 1)
        inside = ((place > -0.5) & (place < size - 0.5)).all(dim=1).view(b, l, h, w)
        centre = (scale - 1) / 2 if centres == "half-pixel" else 0.0
        target = scale * place + centre - (settings.pixel - 1) / 2
        extent = (scale * size - 1).clamp_min(1)
        self.grid = (2 * target / extent - 1).permute(0, 2, 3, 1).reshape(b, l * h, w, 2)
        weights = inside.float()
        if correspondence.confidence is not None:
            weights = weights * correspondence.scatter(correspondence.confidence.float())[:, :, 0]
        weights[:, 0] = 1
        self.weights = weights.view(b, 1, l * h, w)
        if mosaic:
            self.colours = color_masks(maps).repeat(1, 1, l, 1)

    def __call__(self, image: Tensor) -> Tensor:
        """(b, 3, H, W) → (b, c, l·h, w): the noise-free frames below each other."""
        light = image if self.linear else to_linear(image)
        seen = F.grid_sample(self._blur(light), self.grid, "bilinear", "border", align_corners=True)
        if self.mosaic:
            seen = (seen * self.colours).sum(dim=1, keepdim=True)
        return seen if self.linear else to_srgb(seen)

    def _blur(self, image: Tensor) -> Tensor:
        """Sample k of the result is centred (pixel - 1) / 2 after HR pixel k."""
        taps = len(self.kernel)
        before = (taps - self.pixel) // 2
        image = F.pad(image, (before, taps - 1 - before) * 2, mode="replicate")
        kernel = self.kernel.expand(3, 1, taps)
        image = F.conv2d(image, kernel[..., None], groups=3)
        return F.conv2d(image, kernel[:, :, None], groups=3)


def point_spread(lens: float, pixel: int) -> Tensor:
    """The 1-D response of a pixel `pixel` wide behind a Gaussian lens; sums to 1."""
    radius = max(1, round(3.5 * lens))
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float32)
    gaussian = torch.exp(-offsets.square() / (2 * lens**2)) if lens > 0 else (offsets == 0).float()
    kernel = F.conv1d(gaussian.view(1, 1, -1), torch.ones(1, 1, pixel), padding=pixel - 1).flatten()
    return kernel / kernel.sum()


def bilateral_variation(image: Tensor, reach: int, decay: float) -> Tensor:
    """Absolute differences to the neighbours up to `reach` pixels away, less for further ones: (b, 3, h, w) → (b,)."""
    total = image.new_zeros(len(image))
    h, w = image.shape[-2:]
    for dy in range(reach + 1):
        for dx in range(-reach, reach + 1):
            if dy == 0 and dx <= 0:
                continue
            a = image[..., dy:, max(dx, 0) : w + min(dx, 0)]
            b = image[..., : h - dy, max(-dx, 0) : w - max(dx, 0)]
            # Colours share their edges: one norm over the channels.
            change = ((a - b).square().sum(dim=1) + 1e-6).sqrt()
            total = total + decay ** (abs(dx) + dy) * change.sum(dim=(1, 2))
    return total


def noise_level(image: Tensor) -> Tensor:
    """Robust standard deviation of the noise of each image (b, c, h, w): (b,); texture makes it slightly high."""
    if image.shape[1] == 1:  # a mosaic: neighbours of the same colour
        image = F.pixel_unshuffle(image[..., : image.shape[-2] // 2 * 2, : image.shape[-1] // 2 * 2], 2)
    mask = torch.tensor([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]], device=image.device) / 6
    channels = image.shape[1]
    response = F.conv2d(image.float(), mask.expand(channels, 1, 3, 3), groups=channels)
    # The lower quartile rather than the median: half of a detailed picture may be texture.
    return response.abs().flatten(1).quantile(0.25, dim=1) / 0.3186
