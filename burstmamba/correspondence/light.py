"""Values as light: the sRGB curve, and brightness and colour of frames multiplied in light."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from burstmamba.burst import Burst, Camera


def decode_srgb(values: Tensor) -> Tensor:
    """sRGB-encoded values to light."""
    return torch.where(values <= 0.04045, values / 12.92, ((values.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4)


def encode_srgb(light: Tensor) -> Tensor:
    """Light to sRGB-encoded values."""
    return torch.where(light <= 0.0031308, light * 12.92, 1.055 * light.clamp(min=0.0031308) ** (1 / 2.4) - 0.055)


def brighten(frame: Tensor, gain: Tensor, camera: Camera) -> Tensor:
    """Multiply a frame's red, green and blue light.

    Args:
        frame: (c, h, w) as in a Burst.
        gain: (3), or (3, h, w) for every pixel.
        camera: says whether the frame is a mosaic and whether it is linear.
    """
    if bool((gain == 1).all()):
        return frame
    gain = gain.to(frame.device, torch.float32)
    gain = (gain[:, None, None] if gain.ndim == 1 else gain).expand(3, *frame.shape[-2:])
    if camera.cfa:
        out = frame.float().clone()
        for i, colour in enumerate(camera.cfa):
            y, x = divmod(i, 2)
            out[:, y::2, x::2] *= gain["RGB".index(colour), y::2, x::2]
        return out.clamp_(max=1).to(frame.dtype)
    light = gain * (frame.float() if camera.linear else decode_srgb(frame.float()))
    return (light if camera.linear else encode_srgb(light)).clamp_(max=1).to(frame.dtype)


def match_exposure(burst: Burst, gains: Tensor) -> Burst:
    """The burst with every frame's light multiplied by its gains (l, 3)."""
    if bool((gains == 1).all()):
        return burst
    frames = [brighten(frame, gain, burst.camera) for frame, gain in zip(burst.frames, gains, strict=True)]
    return replace(burst, frames=torch.stack(frames))
