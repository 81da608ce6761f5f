"""What a reconstruction is trained to make small."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.synthesis.colour import to_linear, to_srgb
from burstmamba.training.recipe import Recipe

CHARBONNIER_EPSILON = 1e-3

Loss = Callable[[Tensor, Tensor], Tensor]


def charbonnier(output: Tensor, target: Tensor) -> Tensor:
    """Mean of √(error² + ε²), ε = 1e-3: ℓ1 with a smooth bottom.

    Args:
        output: (b, 3, h, w).
        target: (b, 3, h, w).
    """
    return torch.sqrt((output - target) ** 2 + CHARBONNIER_EPSILON**2).mean()


LOSSES: dict[str, Loss] = {"l1": F.l1_loss, "charbonnier": charbonnier}


def loss_of(recipe: Recipe) -> Loss:
    """The recipe's loss of (output, target), both as the network writes them: sRGB, or linear light for RAW."""
    distance = LOSSES[recipe.loss]
    written = "linear" if recipe.model.in_channels == 1 else "srgb"
    if recipe.loss_space in ("given", written):
        return distance
    curve = to_srgb if recipe.loss_space == "srgb" else to_linear
    return lambda output, target: distance(signed(curve, output), signed(curve, target))


def signed(curve: Callable[[Tensor], Tensor], image: Tensor) -> Tensor:
    """A tone curve of [0, 1] continued below 0 by its mirror image, so that an output there still learns."""
    return torch.copysign(curve(image.abs()), image)
