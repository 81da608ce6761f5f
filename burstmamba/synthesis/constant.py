"""Small constant tensors, copied to each device once."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=256)
def constant(values: tuple, device: torch.device) -> Tensor:
    """A float32 tensor of these (nested) numbers on this device; do not write into it."""
    return torch.tensor(values, dtype=torch.float32).to(device)
