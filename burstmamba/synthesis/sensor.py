"""The sensor: noise, defects, the mosaic, and its interpolation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.errors import InputError
from burstmamba.synthesis.constant import constant
from burstmamba.synthesis.dice import Dice


def add_noise(light: Tensor, shot: Tensor, read: Tensor, dice: Dice) -> Tensor:
    """Gaussian noise of variance x·shot + read.

    Args:
        light: (b, l, c, h, w) linear.
        shot: (b,).
        read: (b,).
    """
    shot, read = shot[:, None, None, None, None], read[:, None, None, None, None]
    deviation = torch.addcmul(read, light.clamp(min=0), shot).sqrt_()
    return torch.addcmul(light, deviation, dice.normal(*light.shape))


def add_hot_pixels(light: Tensor, present: Tensor, dice: Dice, share: float = 2e-3) -> Tensor:
    """Set a few photosites to a bright value, at the same place in every frame: present (b,) bool."""
    b, _, c, h, w = light.shape
    draw = dice.uniform(b, 1, c, h, w)
    hot = (draw < share) & present[:, None, None, None, None]
    return torch.where(hot, 0.3 + 0.7 * draw / share, light)


def mosaic(image: Tensor) -> Tensor:
    """RGGB: the colour that each photosite records, (..., 3, h, w) → (..., 1, h, w)."""
    h, w = image.shape[-2:]
    even_row = (torch.arange(h, device=image.device) % 2 == 0)[:, None]
    even_column = (torch.arange(w, device=image.device) % 2 == 0)[None]
    r, g, b = image.unbind(-3)
    return torch.where(even_row, torch.where(even_column, r, g), torch.where(even_column, g, b)).unsqueeze(-3)


def pack(mosaicked: Tensor) -> Tensor:
    """An RGGB mosaic (..., 1, h, w) as R, Gr, Gb, B planes (..., 4, h/2, w/2)."""
    h, w = mosaicked.shape[-2:]
    if mosaicked.shape[-3] != 1 or h % 2 or w % 2:
        raise InputError(f"packing needs a mosaic (1, h, w) of even size, got {tuple(mosaicked.shape[-3:])}.")
    return F.pixel_unshuffle(mosaicked, 2)


def unpack(packed: Tensor) -> Tensor:
    """R, Gr, Gb, B planes (..., 4, h/2, w/2) as a mosaic (..., 1, h, w)."""
    if packed.shape[-3] != 4:
        raise InputError(f"a packed mosaic has 4 planes (R, Gr, Gb, B), got {packed.shape[-3]}.")
    return F.pixel_shuffle(packed, 2)


# Malvar, He and Cutler's linear interpolation (2004), in eighths: green at red or blue, then a missing colour at
# green in its row, in its column, and red at blue or blue at red.
_GREEN = ((0, 0, -1, 0, 0), (0, 0, 2, 0, 0), (-1, 2, 4, 2, -1), (0, 0, 2, 0, 0), (0, 0, -1, 0, 0))
_ROW = ((0, 0, 0.5, 0, 0), (0, -1, 0, -1, 0), (-1, 4, 5, 4, -1), (0, -1, 0, -1, 0), (0, 0, 0.5, 0, 0))
_COLUMN = tuple(zip(*_ROW, strict=True))
_OPPOSITE = ((0, 0, -1.5, 0, 0), (0, 2, 0, 2, 0), (-1.5, 0, 6, 0, -1.5), (0, 2, 0, 2, 0), (0, 0, -1.5, 0, 0))


def demosaic(mosaicked: Tensor) -> Tensor:
    """Malvar interpolation of an RGGB mosaic, borders mirrored: (..., 1, h, w) → (..., 3, h, w)."""
    h, w = mosaicked.shape[-2:]
    kernels = constant((_GREEN, _ROW, _COLUMN, _OPPOSITE), mosaicked.device)[:, None] / 8
    flat = mosaicked.reshape(-1, 1, h, w)
    green, row, column, opposite = F.conv2d(F.pad(flat, [2] * 4, mode="reflect"), kernels).split(1, dim=1)
    even_row = (torch.arange(h, device=flat.device) % 2 == 0)[:, None]
    even_column = (torch.arange(w, device=flat.device) % 2 == 0)[None]
    at_red, at_blue = even_row & even_column, ~even_row & ~even_column
    # A green site of a red row has red beside it and blue above it; of a blue row the other way round.
    red = torch.where(at_red, flat, torch.where(at_blue, opposite, torch.where(even_row, row, column)))
    blue = torch.where(at_blue, flat, torch.where(at_red, opposite, torch.where(even_row, column, row)))
    rgb = torch.cat((red, torch.where(even_row == even_column, green, flat), blue), 1)
    return rgb.view(*mosaicked.shape[:-3], 3, h, w)
