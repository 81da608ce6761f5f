"""Resolution as a lens tester measures it: slanted-edge MTF50 and the Siemens star's limit.

Frequencies are in cycles per HR pixel; at scale 4 one LR frame alone holds up to 0.125 of them along rows and columns
and up to 0.177 along diagonals.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

EDGE_ANGLE = math.radians(5.0)
SPOKES = 36
SUPERSAMPLING = 8


def slanted_edge(size: int, dark: float = 0.2, bright: float = 0.8, angle: float = EDGE_ANGLE) -> Tensor:
    """A nearly vertical edge through the centre, (1, 3, size, size): area-sampled linear light."""

    def side(x: Tensor, y: Tensor) -> Tensor:
        return dark + (bright - dark) * (x * math.cos(angle) + y * math.sin(angle) > 0).float()

    return _render(size, side)


def siemens_star(size: int, dark: float = 0.2, bright: float = 0.8, spokes: int = SPOKES) -> Tensor:
    """Sinusoidal spokes around the centre, (1, 3, size, size): area-sampled linear light."""

    def wave(x: Tensor, y: Tensor) -> Tensor:
        return (dark + bright) / 2 + (bright - dark) / 2 * torch.sin(spokes * torch.atan2(y, x))

    return _render(size, wave)


def edge_mtf(image: Tensor, angle: float = EDGE_ANGLE) -> tuple[Tensor, Tensor]:
    """Modulation transfer across a slanted edge (the method of ISO 12233).

    Args:
        image: (h, w) linear light; the edge runs through the centre.
        angle: of the edge's normal against the x axis, radians.

    Returns:
        Frequencies in cycles per pixel and the transfer, 1 at frequency 0.
    """
    h, w = image.shape
    y, x = _centred(h, w, image.device)
    distance = (x * math.cos(angle) + y * math.sin(angle)).flatten()
    reach = min(h, w) / 2 - 8
    bins = 4  # for each pixel
    index = ((distance + reach) * bins).round().long()
    inside = (index >= 0) & (index < int(2 * reach * bins))
    index, values = index[inside], image.double().flatten()[inside]
    count = torch.zeros(int(2 * reach * bins), dtype=torch.float64, device=image.device)
    total = torch.zeros_like(count).index_add_(0, index, values)
    count = count.index_add_(0, index, torch.ones_like(values))
    spread = total / count.clamp_min(1)  # the edge spread function
    line = spread[2:] - spread[:-2]
    peak = int(line.abs().argmax())
    half = min(peak, len(line) - 1 - peak, 24 * bins)
    # Flat over the edge and fading at the ends, so that noise far away is cut and a soft edge is not.
    outward = torch.linspace(-1, 1, 2 * half + 1, dtype=line.dtype, device=line.device).abs()
    line = line[peak - half : peak + half + 1] * torch.cos(math.pi / 2 * (4 * outward - 3).clamp_min(0)).square()
    length = 4096
    transfer = torch.fft.rfft(line, length).abs()
    frequency = torch.fft.rfftfreq(length, 1 / bins, dtype=torch.float64, device=line.device)
    # Differences over two bins damp high frequencies by a known sinc; undo it.
    damping = torch.sinc(2 * frequency / bins).abs().clamp_min(0.1)
    transfer = transfer / transfer[0] / damping
    keep = frequency <= 0.5
    return frequency[keep], transfer[keep]


def mtf50(image: Tensor, angle: float = EDGE_ANGLE) -> float:
    """The frequency in cycles per pixel at which half of the contrast is left; 0.5 when it never falls so low."""
    frequency, transfer = edge_mtf(image, angle)
    below = (transfer < 0.5).nonzero()
    if len(below) == 0:
        return 0.5
    i = int(below[0])
    a, b = transfer[i - 1].item(), transfer[i].item()
    step = (frequency[i] - frequency[i - 1]).item()
    return frequency[i - 1].item() + step * (a - 0.5) / (a - b)


def star_contrast(image: Tensor, dark: float = 0.2, bright: float = 0.8, spokes: int = SPOKES) -> tuple[Tensor, Tensor]:
    """Contrast left on circles around the star's centre.

    Args:
        image: (h, w) linear light.
        dark, bright: of the ideal star.
        spokes: periods around the circle.

    Returns:
        Frequencies in cycles per pixel, rising, and the contrast with the right phase: below 0 it is reversed.
    """
    h, w = image.shape
    radii = torch.arange(min(h, w) / 2 - 4, spokes / (2 * math.pi * 0.5), -0.5, device=image.device)
    angles = torch.arange(16 * spokes, device=image.device) * (2 * math.pi / (16 * spokes))
    x = radii[:, None] * torch.cos(angles) / ((w - 1) / 2)
    y = radii[:, None] * torch.sin(angles) / ((h - 1) / 2)
    grid = torch.stack((x, y), dim=-1)[None].float()
    circles = F.grid_sample(image[None, None].float(), grid, mode="bicubic", align_corners=True)[0, 0]
    wave = torch.sin(spokes * angles)
    contrast = 2 * (circles * wave).mean(dim=1) / ((bright - dark) / 2)
    return spokes / (2 * math.pi * radii), contrast


def star_limit(image: Tensor, threshold: float = 0.1) -> float:
    """The highest frequency in cycles per pixel up to which the star keeps `threshold` of its contrast."""
    frequency, contrast = star_contrast(image)
    below = (contrast < threshold).nonzero()
    return frequency[int(below[0]) if len(below) else -1].item()


def _render(size: int, scene) -> Tensor:
    """Area-sample a scene, given as a function of centred coordinates in pixels."""
    y, x = _centred(size * SUPERSAMPLING, size * SUPERSAMPLING, torch.device("cpu"))
    fine = scene(x / SUPERSAMPLING, y / SUPERSAMPLING)
    return F.avg_pool2d(fine[None, None], SUPERSAMPLING).expand(1, 3, size, size).contiguous()


def _centred(h: int, w: int, device: torch.device) -> tuple[Tensor, Tensor]:
    y, x = torch.meshgrid(
        torch.arange(h, device=device) - (h - 1) / 2, torch.arange(w, device=device) - (w - 1) / 2, indexing="ij"
    )
    return y, x
