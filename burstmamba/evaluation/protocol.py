"""The burst benchmarks' scoring rules by name: border, quantisation, space, averaging.

Two projects that print "PSNR" rarely print the same quantity; a score without its protocol's name means little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from burstmamba.errors import InputError
from burstmamba.evaluation.color_alignment import align_to_target
from burstmamba.evaluation.lpips import Lpips
from burstmamba.evaluation.metrics import check_pair, psnr, size_text, ssim, ssim_map

METRICS = ("psnr", "ssim", "lpips")


@dataclass(frozen=True)
class Protocol:
    """How a prediction is prepared, compared and averaged."""

    name: str
    summary: str
    """What is scored, in words."""
    border: int
    """HR pixels dropped on each side."""
    levels: int | None = None
    """Quantisation of the prediction: 2¹⁴ truncates, 255 rounds, None keeps it as it is."""
    display: bool = False
    """Score after FBANet's display pipeline (white balance, exposure, gamma, tone curve, 8 bits)."""
    aligned: bool = False
    """Warp and colour-match the prediction to the target first, and score only where that worked."""
    channel_mean: bool = False
    """Average the three channels' PSNRs instead of pooling the squared error."""
    signed_lpips: bool = False
    """Feed LPIPS [-1, 1] as its authors do; the burst benchmarks feed [0, 1]."""
    batch: int = 1
    """Images averaged together first; the mean of those means is reported."""


SYNBURST = Protocol("synburst-linear", "linear sensor RGB, 14-bit truncation, border 40", border=40, levels=2**14)
REALBSR_RGB = Protocol("realbsr-rgb", "sRGB, pooled over channels, border 40", border=40)
REALBSR_RGB_FBANET = Protocol(
    "realbsr-rgb-fbanet", "sRGB, mean of three channel PSNRs, averaged by batches of 16, border 40",
    border=40, channel_mean=True, batch=16,
)  # fmt: skip
REALBSR_RAW_LINEAR = Protocol("realbsr-raw-linear", "linear camera RGB, border 40", border=40)
REALBSR_RAW_VIS = Protocol("realbsr-raw-vis", "after the display pipeline, 8 bits, border 40", border=40, display=True)
BURSTSR_ALIGNED = Protocol(
    "burstsr-aligned", "linear, warped and colour-matched to the target, valid pixels, 14 bits, border 40",
    border=40, levels=2**14, aligned=True,
)  # fmt: skip
OPENBURST = Protocol(
    "openburst", "sRGB rounded to 8 bits, pooled, border 16", border=16, levels=255, signed_lpips=True
)  # fmt: skip
OPENBURST_RAW = Protocol("openburst-raw", "linear camera RGB, pooled, border 16", border=16)

PROTOCOLS = {
    p.name: p
    for p in (
        SYNBURST, REALBSR_RGB, REALBSR_RGB_FBANET, REALBSR_RAW_LINEAR, REALBSR_RAW_VIS, BURSTSR_ALIGNED,
        OPENBURST, OPENBURST_RAW,
    )
}  # fmt: skip


def protocol(name: str) -> Protocol:
    """The protocol of this name."""
    if name not in PROTOCOLS:
        raise InputError(f"unknown protocol {name!r}; the known ones are {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]


@torch.no_grad()
def score(
    prediction: Tensor,
    target: Tensor,
    rules: Protocol,
    *,
    lpips: Lpips | None = None,
    white_balance: Sequence[tuple[float, float, float]] | None = None,
    keyframe: Tensor | None = None,
) -> dict[str, Tensor]:
    """Score predictions one by one under a protocol.

    Args:
        prediction: (b, 3, h, w), not yet clamped.
        target: (b, 3, h, w) in [0, 1].
        rules: the protocol.
        lpips: the network for "lpips"; left out of the result when None.
        white_balance: R, G, B gains of each image, for a protocol with the display pipeline.
        keyframe: (b, 3, h', w') linear RGB of the LR keyframe, for the aligned protocol.

    Returns:
        "psnr", "ssim" and perhaps "lpips", each (b,).
    """
    check_pair(prediction, target)
    if min(target.shape[-2:]) < 2 * rules.border + 11:
        raise InputError(
            f"{rules.name} drops {rules.border} pixels on each side and needs at least 11 more, "
            f"got {size_text(target)}."
        )
    if not torch.isfinite(prediction).all():
        raise InputError("the prediction contains NaN or infinite values; it cannot be scored.")
    prediction = quantise(prediction.float().clamp(0, 1), rules.levels)  # first: the benchmarks score files
    target = target.float()
    valid = None
    if rules.display:
        if white_balance is None:
            raise InputError(f"{rules.name} needs the white balance of each image; the data set gave none.")
        prediction, target = display(prediction, white_balance), display(target, white_balance)
    if rules.aligned:
        if keyframe is None:
            raise InputError(f"{rules.name} needs the LR keyframe beside the prediction; the data set gave none.")
        prediction, valid = align_to_target(prediction, target, keyframe)
    prediction, target = (crop_border(image, rules.border) for image in (prediction, target))
    if valid is not None:
        scores = _masked_scores(prediction, target, crop_border(valid, rules.border))
    else:
        scores = {
            "psnr": psnr(prediction, target, channel_mean=rules.channel_mean),
            "ssim": ssim(prediction, target),
        }
    if lpips is not None:
        scores["lpips"] = lpips(prediction, target, signed=rules.signed_lpips).double()
    return scores


def average(values: Sequence[float], rules: Protocol) -> float:
    """The protocol's mean of per-image scores; infinite and undefined ones are skipped."""
    means = []
    for start in range(0, len(values), rules.batch):
        finite = [v for v in values[start : start + rules.batch] if math.isfinite(v)]
        if finite:
            means.append(math.fsum(finite) / len(finite))
    return math.fsum(means) / len(means) if means else math.nan


def quantise(image: Tensor, levels: int | None) -> Tensor:
    """Values in [0, 1] on the grid of a file format: 255 rounds as an 8-bit writer does, 2¹⁴ truncates as DBSR does."""
    if levels is None:
        return image
    if levels == 255:
        return (image * 255).round() / 255
    return (image * levels).floor() / levels


def crop_border(image: Tensor, border: int) -> Tensor:
    """(..., h, w) without `border` pixels on each side."""
    return image[..., border : image.shape[-2] - border, border : image.shape[-1] - border]


def display(image: Tensor, white_balance: Sequence[tuple[float, float, float]]) -> Tensor:
    """FBANet's display pipeline: white balance, exposure to a mean of 1/5, gamma 2.2, smoothstep, 8 bits.

    Each image is exposed by its own mean, so a wrong overall brightness costs nothing here.
    """
    gains = torch.tensor(white_balance, dtype=image.dtype, device=image.device).view(-1, 3, 1, 1)
    image = image * gains / gains[:, 1:2]
    image = (image / (5 * image.mean(dim=(1, 2, 3), keepdim=True)).clamp_min(1e-12)).clamp(0, 1)
    image = image ** (1 / 2.2)
    image = 3 * image**2 - 2 * image**3
    return (image * 255).floor() / 255


def _masked_scores(prediction: Tensor, target: Tensor, valid: Tensor) -> dict[str, Tensor]:
    """PSNR over the valid pixels and SSIM over the windows centred on them; `valid` is (b, 1, h, w) bool."""
    squared = (prediction.double() - target.double()).square() * valid
    count = valid.sum(dim=(1, 2, 3)) * prediction.shape[1]
    similarity = ssim_map(prediction, target)
    centres = crop_border(valid, 5).expand_as(similarity)
    return {
        "psnr": -10 * (squared.sum(dim=(1, 2, 3)) / count).log10(),
        "ssim": (similarity * centres).sum(dim=(1, 2, 3)) / centres.sum(dim=(1, 2, 3)),
    }
