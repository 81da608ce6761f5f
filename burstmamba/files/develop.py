"""Developing linear camera colours to a neutral, pleasant sRGB picture."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.errors import InputError

LUMINANCE = (0.2126, 0.7152, 0.0722)
MIDDLE, BRIGHTEST, MOST_STOPS = 0.13, 1.6, 4.0
"""Automatic exposure: the log-average goes to the first unless the 99th percentile would exceed the second."""
NEAR_CLIP = 0.9
"""Sensor level, of 1, from which a channel counts as gradually clipped."""
SHOULDER, WHITE = 0.6, 3.0
"""Light up to the first is kept; from there to the second, which becomes white, it is compressed."""
CONTRAST = 0.25
ROWS = 64


def develop(
    image: Tensor,
    camera: Camera,
    *,
    exposure: float | None = None,
    look: Literal["neutral", "linear"] = "neutral",
    out: Tensor | None = None,
) -> Tensor:
    """Develop linear camera RGB: white balance, highlights, colour matrix, exposure, gamut, tone curve, sRGB encoding.

    Args:
        image: (3, h, w) linear camera RGB in [0, 1], not white-balanced; 1 is where the sensor clips.
        camera: whose white balance and colour matrix apply.
        exposure: stops added; None chooses them from the picture ("linear": 0).
        look: "neutral", or "linear" for light proportional to the scene: no tone curve, not sRGB-encoded.
        out: where the result goes; it may be `image` itself, which saves the memory of a second picture.

    Returns:
        (3, h, w) in [0, 1], float32.
    """
    if image.ndim != 3 or image.shape[0] != 3 or not image.is_floating_point():
        raise InputError(
            f"develop expects floating-point camera RGB (3, h, w), got {image.dtype} {tuple(image.shape)}."
        )
    if not camera.linear:
        raise InputError("these colours are developed already (the camera is not linear); save them as they are.")
    if look not in ("neutral", "linear"):
        raise InputError(f'look must be "neutral" or "linear", got {look!r}.')
    if exposure is None:
        exposure = automatic_exposure(image, camera) if look == "neutral" else 0.0
    developed = torch.empty(image.shape, dtype=torch.float32, device=image.device) if out is None else out
    for top in range(0, image.shape[1], ROWS):  # strips that stay in the cache, whatever the picture's size
        light = to_srgb_light(image[:, top : top + ROWS], camera) * 2.0**exposure
        light = into_gamut(light)
        developed[:, top : top + ROWS] = light.clamp(0, 1) if look == "linear" else tone(light)
    return developed


def automatic_exposure(image: Tensor, camera: Camera) -> float:
    """Stops, 0 to 4, that bring the middle of the picture to middle grey without washing out its highlights."""
    step = max(1, int(math.sqrt(image.shape[1] * image.shape[2] / 250_000)))
    light = to_srgb_light(image[:, ::step, ::step], camera)
    luminance = _luminance(light).clamp(min=1e-4)
    middle = float(luminance.log().mean().exp())
    bright = float(luminance.flatten().quantile(0.99))
    return min(max(math.log2(min(MIDDLE / middle, BRIGHTEST / bright)), 0.0), MOST_STOPS)


def to_srgb_light(image: Tensor, camera: Camera) -> Tensor:
    """Linear camera RGB (3, h, w) → linear sRGB, unbounded: white balance, clipped highlights, colour matrix."""
    sensor = image.float()
    gains = sensor.new_tensor(camera.white_balance).view(3, 1, 1)
    matrix = sensor.new_tensor(camera.color_matrix)
    balanced = _with_neutral_highlights(sensor, sensor * gains)
    return torch.einsum("dc,chw->dhw", matrix, balanced)


def _with_neutral_highlights(sensor: Tensor, balanced: Tensor) -> Tensor:
    """Lift clipped channels to what the others say, and whiten where all are clipped.

    A clipped channel says only "at least this much". Left alone, white clouds turn magenta, since green clips first.
    """
    near = ((sensor - NEAR_CLIP) / (1 - NEAR_CLIP)).clamp(0, 1)
    clipped = near * near * (3 - 2 * near)
    others = (balanced.sum(0, keepdim=True) - balanced) / 2
    lifted = balanced + clipped * (others - balanced).clamp(min=0)
    everywhere = clipped.min(dim=0, keepdim=True).values
    return torch.lerp(lifted, lifted.max(dim=0, keepdim=True).values.expand_as(lifted), everywhere)


def into_gamut(light: Tensor) -> Tensor:
    """Pull colours with negative channels towards grey of the same luminance, just far enough."""
    grey = _luminance(light).clamp(min=0)
    lowest = light.min(dim=0, keepdim=True).values
    keep = torch.where(lowest < 0, grey / (grey - lowest).clamp(min=1e-9), torch.ones_like(grey))
    return (grey + (light - grey) * keep).clamp(min=0)


def tone(light: Tensor) -> Tensor:
    """Linear sRGB ≥ 0 → encoded sRGB in [0, 1]: a shoulder that reaches white at three times diffuse white, and a
    little contrast around middle grey."""
    u = ((light - SHOULDER) / (1 - SHOULDER)).clamp(min=0)
    end = (WHITE - SHOULDER) / (1 - SHOULDER)
    # Slope 1 at the shoulder, value 1 at the white point.
    compressed = light.clamp(max=SHOULDER) + (1 - SHOULDER) * u * (1 + u / end**2) / (1 + u)
    encoded = encode_srgb(compressed.clamp(0, 1))
    return (encoded + CONTRAST * encoded * (1 - encoded) * (2 * encoded - 1)).clamp(0, 1)


def encode_srgb(light: Tensor) -> Tensor:
    """Linear sRGB in [0, 1] → sRGB values (IEC 61966-2-1)."""
    return torch.where(light <= 0.0031308, 12.92 * light, 1.055 * light.clamp(min=0.0031308) ** (1 / 2.4) - 0.055)


def decode_srgb(values: Tensor) -> Tensor:
    """sRGB values in [0, 1] → linear sRGB; the inverse of `encode_srgb`."""
    return torch.where(values <= 0.04045, values / 12.92, ((values.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4)


def _luminance(light: Tensor) -> Tensor:
    weights = light.new_tensor(LUMINANCE).view(3, 1, 1)
    return (light * weights).sum(0, keepdim=True)
