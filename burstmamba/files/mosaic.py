"""Bayer mosaics: upright, shifted to RGGB by cropping, packed to four planes and back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from burstmamba.burst import CFA_ORDERS
from burstmamba.errors import InputError


def rggb_offset(cfa: str) -> tuple[int, int]:
    """(rows, columns) to cut from the top and the left so that a `cfa` mosaic starts with its red pixel."""
    if cfa not in CFA_ORDERS:
        raise InputError(f"cfa must be one of {', '.join(CFA_ORDERS)}, got {cfa!r}.")
    return divmod(cfa.index("R"), 2)


def shift_to_rggb(mosaic: np.ndarray, cfa: str) -> np.ndarray:
    """Crop a mosaic so that it reads RGGB and has even sides; nothing is interpolated.

    Args:
        mosaic: (h, w) in the order `cfa`.

    Returns:
        (h', w') view: at most one row and one column are lost on each side.
    """
    top, left = rggb_offset(cfa)
    height, width = (mosaic.shape[0] - top) // 2 * 2, (mosaic.shape[1] - left) // 2 * 2
    if height < 2 or width < 2:
        raise InputError(
            f"a {cfa} mosaic needs at least {2 + top}×{2 + left} pixels, got {mosaic.shape[0]}×{mosaic.shape[1]}."
        )
    return mosaic[top : top + height, left : left + width]


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turn pixels (h, w[, c]) as the EXIF orientation (1 to 8) asks, so that orientation 1 describes the result."""
    turned = {
        2: lambda p: p[:, ::-1],
        3: lambda p: p[::-1, ::-1],
        4: lambda p: p[::-1],
        5: lambda p: p.swapaxes(0, 1),
        6: lambda p: p[::-1].swapaxes(0, 1),
        7: lambda p: p[::-1, ::-1].swapaxes(0, 1),
        8: lambda p: p[:, ::-1].swapaxes(0, 1),
    }.get(orientation, lambda p: p)(pixels)
    return np.ascontiguousarray(turned)


def upright_mosaic(mosaic: np.ndarray, cfa: str, orientation: int) -> tuple[np.ndarray, str]:
    """Turn a mosaic (h, w) upright; its order turns with it.

    Returns:
        The turned mosaic and its new order.
    """
    if mosaic.ndim != 2 or min(mosaic.shape) < 2:
        raise InputError(f"a mosaic must be (h, w) of at least 2×2 pixels, got shape {mosaic.shape}.")
    # An even size first: the 2×2 tile in the corner that becomes the top left is then a whole one.
    even = mosaic[: mosaic.shape[0] // 2 * 2, : mosaic.shape[1] // 2 * 2]
    pattern = upright(np.array(list(cfa)).reshape(2, 2), orientation)
    return upright(even, orientation), "".join(pattern.ravel())


def pack(mosaic: Tensor) -> Tensor:
    """(..., 1, h, w) mosaic → (..., 4, h/2, w/2): the four sites of each 2×2 tile, row by row."""
    if mosaic.shape[-3] != 1 or mosaic.shape[-1] % 2 or mosaic.shape[-2] % 2:
        raise InputError(f"pack expects (..., 1, h, w) with even h and w, got {tuple(mosaic.shape)}.")
    return torch.nn.functional.pixel_unshuffle(mosaic, 2)


def unpack(planes: Tensor) -> Tensor:
    """(..., 4, h, w) planes → (..., 1, 2h, 2w) mosaic; the inverse of `pack`."""
    if planes.shape[-3] != 4:
        raise InputError(f"unpack expects (..., 4, h, w), got {tuple(planes.shape)}.")
    return torch.nn.functional.pixel_shuffle(planes, 2)


def mosaic_to_rgb(mosaic: Tensor) -> Tensor:
    """Bilinear demosaicking for previews and tests: (..., 1, h, w) RGGB → (..., 3, h, w)."""
    height, width = mosaic.shape[-2:]
    if height % 2 or width % 2:
        raise InputError(f"an RGGB mosaic must have even sides, got {height}×{width}.")
    kernel = mosaic.new_tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]])[None, None]
    flat = mosaic.reshape(-1, 1, height, width)
    channels = []
    for sites in (((0, 0),), ((0, 1), (1, 0)), ((1, 1),)):
        mask = torch.zeros_like(flat[:1])
        for y, x in sites:
            mask[..., y::2, x::2] = 1
        # Normalised convolution: the weights of the sites that exist, at the border too, sum to one.
        total = torch.nn.functional.conv2d(mask, kernel, padding=1)
        value = torch.nn.functional.conv2d(flat * mask, kernel, padding=1) / total
        channels.append(torch.where(mask.bool(), flat, value))
    return torch.cat(channels, dim=1).reshape(*mosaic.shape[:-3], 3, height, width)
