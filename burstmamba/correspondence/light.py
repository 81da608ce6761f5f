"""Values as light: the sRGB curve, and brightness and colour of frames multiplied in light."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence.bands import bands


def decode_srgb(values: Tensor) -> Tensor:
    """sRGB-encoded values to light."""
    return torch.where(values <= 0.04045, values / 12.92, ((values.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4)


def encode_srgb(light: Tensor) -> Tensor:
    """Light to sRGB-encoded values."""
    return torch.where(light <= 0.0031308, light * 12.92, 1.055 * light.clamp(min=0.0031308) ** (1 / 2.4) - 0.055)


def brighten(frame: Tensor, gain: Tensor, camera: Camera, out: Tensor | None = None) -> Tensor:
    """Multiply a frame's red, green and blue light.

    Args:
        frame: (c, h, w) as in a Burst.
        gain: (3), or (3, h, w) for every pixel.
        camera: says whether the frame is a mosaic and whether it is linear.
        out: where the result goes, as large as the frame; may be the frame.
    """
    if bool((gain == 1).all()):
        return frame if out is None else out.copy_(frame)
    out = torch.empty_like(frame) if out is None else out
    halves = frame.dtype == torch.float16 and frame.device.type == "cpu" and frame[0].numel() > 1 << 16
    if halves and gain.ndim == 1 and not camera.cfa:
        return _brighten_halves(frame, gain, camera, out)
    gain = gain.to(frame.device, torch.float32)
    gain = (gain[:, None, None] if gain.ndim == 1 else gain).expand(3, *frame.shape[-2:])
    for rows in bands(*frame.shape[-2:]):
        out[:, rows] = _brighten(frame[:, rows].float(), gain[:, rows], camera)
    return out


def _brighten(frame: Tensor, gain: Tensor, camera: Camera) -> Tensor:
    """`brighten` for some rows in float32, from an even one on, and gains (3, h, w)."""
    if camera.cfa:
        out = frame.clone()
        for i, colour in enumerate(camera.cfa):
            y, x = divmod(i, 2)
            out[:, y::2, x::2] *= gain["RGB".index(colour), y::2, x::2]
        return out.clamp_(max=1)
    light = gain * (frame if camera.linear else decode_srgb(frame))
    return (light if camera.linear else encode_srgb(light)).clamp_(max=1)


def _brighten_halves(frame: Tensor, gain: Tensor, camera: Camera, out: Tensor) -> Tensor:
    """`brighten` for a large RGB frame in half precision: each of the 65,536 values that there are is computed once."""
    values = torch.from_numpy(np.arange(1 << 16, dtype=np.uint16).view(np.float16)).float()
    table = _brighten(values.expand(3, 1, -1), gain.float()[:, None, None], camera).half().numpy()[:, 0]
    for plane, target, entries in zip(frame.numpy(), out.numpy(), table, strict=True):
        for rows in bands(*plane.shape):
            np.take(entries, plane[rows].view(np.uint16), out=target[rows], mode="wrap")
    return out


def match_exposure(burst: Burst, gains: Tensor) -> Burst:
    """The burst with every frame's light multiplied by its gains (l, 3)."""
    if bool((gains == 1).all()):
        return burst
    frames = torch.empty_like(burst.frames)
    for target, frame, gain in zip(frames, burst.frames, gains, strict=True):
        brighten(frame, gain, burst.camera, out=target)
    return replace(burst, frames=frames)
