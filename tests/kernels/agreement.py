"""How far a kernel's result is from the truth."""

import torch
from torch import Tensor


def relative_error(found: Tensor, truth: Tensor, floor: float = 0.0) -> float:
    """The largest error over the largest value, which counts as `floor` at least; infinite where anything is NaN."""
    error = (found.double() - truth).abs().max() / truth.abs().max().clamp_min(floor)
    return error.nan_to_num(torch.inf).item()
