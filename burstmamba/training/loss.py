"""What a reconstruction is trained to make small."""

from __future__ import annotations

from typing import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

CHARBONNIER_EPSILON = 1e-3


def charbonnier(output: Tensor, target: Tensor) -> Tensor:
    """Mean of √(error² + ε²), ε = 1e-3: ℓ1 with a smooth bottom.

    Args:
        output: (b, 3, h, w).
        target: (b, 3, h, w).
    """
    return torch.sqrt((output - target) ** 2 + CHARBONNIER_EPSILON**2).mean()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"l1": F.l1_loss, "charbonnier": charbonnier}
