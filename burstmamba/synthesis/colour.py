"""Colour and tone: sRGB and linear light, camera colour spaces, tone curves."""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.synthesis.constant import constant
from burstmamba.synthesis.dice import Dice

# Four cameras, XYZ → camera RGB, as listed in the SyntheticBurst generator (from the cameras' DNG colour matrices).
XYZ_TO_CAMERA = (
    ((1.0234, -0.2969, -0.2266), (-0.5625, 1.6328, -0.0469), (-0.0703, 0.2188, 0.6406)),
    ((0.4913, -0.0541, -0.0202), (-0.613, 1.3513, 0.2906), (-0.1564, 0.2151, 0.7183)),
    ((0.838, -0.263, -0.0639), (-0.2887, 1.0725, 0.2496), (-0.0627, 0.1427, 0.5438)),
    ((0.6596, -0.2079, -0.0562), (-0.4782, 1.3016, 0.1933), (-0.097, 0.1581, 0.5181)),
)
SRGB_TO_XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)


def to_linear(image: Tensor) -> Tensor:
    """sRGB-encoded values to linear light (IEC 61966-2-1)."""
    image = image.clamp(min=0)
    return torch.where(image <= 0.04045, image / 12.92, ((image + 0.055) / 1.055) ** 2.4)


def to_srgb(image: Tensor) -> Tensor:
    """Linear light to sRGB-encoded values (IEC 61966-2-1)."""
    return torch.where(image <= 0.0031308, image * 12.92, 1.055 * image.clamp(min=0.0031308) ** (1 / 2.4) - 0.055)


def tone_curve(image: Tensor, strength: Tensor) -> Tensor:
    """Blend towards the smoothstep 3x² − 2x³ by `strength` (broadcast): an S-shaped contrast curve on [0, 1]."""
    return image + strength * (image * image * (3 - 2 * image) - image)


def camera_matrices(dice: Dice, batch: int) -> Tensor:
    """(b, 3, 3) linear sRGB → white-balanced camera RGB: random mixtures of four cameras, rows summing to 1."""
    weights = dice.uniform(batch, 4)
    return mix_cameras(weights)


def mix_cameras(weights: Tensor) -> Tensor:
    """(b, 4) weights of the four cameras → (b, 3, 3) linear sRGB → camera RGB, rows summing to 1."""
    xyz = constant(SRGB_TO_XYZ, weights.device)
    cameras = (constant(XYZ_TO_CAMERA, weights.device)[..., None] * xyz).sum(-2)
    weights = weights / weights.sum(-1, keepdim=True)
    mixed = (weights[:, :, None, None] * cameras).sum(1)
    return mixed / mixed.sum(-1, keepdim=True)


def invert_matrices(matrices: Tensor) -> Tensor:
    """Inverses of (b, 3, 3) by cofactors: no call that waits for the GPU."""
    a, b, c = matrices.unbind(-2)
    columns = torch.stack(
        (torch.linalg.cross(b, c, dim=-1), torch.linalg.cross(c, a, dim=-1), torch.linalg.cross(a, b, dim=-1)), -1
    )
    return columns / (a * columns[..., 0]).sum(-1)[..., None, None]


def apply_matrix(image: Tensor, matrices: Tensor) -> Tensor:
    """Colour matrices (b, 3, 3) on images (b, ..., 3, h, w); elementwise, because TF32 products would tint them."""
    m = matrices.view(len(matrices), *[1] * (image.ndim - 4), 3, 3, 1, 1)
    r, g, b = image[..., None, 0, :, :], image[..., None, 1, :, :], image[..., None, 2, :, :]
    return torch.addcmul(torch.addcmul(m[..., 0, :, :] * r, m[..., 1, :, :], g), m[..., 2, :, :], b)


def safely_divide_gains(image: Tensor, gains: Tensor) -> Tensor:
    """Undo white-balance gains so that blown highlights stay white.

    Args:
        image: (b, 3, h, w) linear.
        gains: (b, 3) multipliers that were applied; the result is image / gains except near white.
    """
    inverse = 1 / gains[:, :, None, None]
    blown = ((image.mean(1, keepdim=True) - 0.9).clamp(min=0) / 0.1) ** 2
    return image * torch.maximum(blown + (1 - blown) * inverse, inverse)
