"""Whether Triton kernels can run, decided without importing Triton; asked inside compiled code, too."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch
from torch import Tensor

INSTALLED = find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def triton_unavailable(tensor: Tensor) -> str | None:
    """Why Triton kernels cannot take a tensor like this one; None when they can."""
    if not INSTALLED:
        return "Triton is not installed"
    if tensor.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"it takes float32, bfloat16 or float16, not {str(tensor.dtype).removeprefix('torch.')}"
    if INTERPRETED:
        return None if tensor.device.type == "cpu" else "Triton's interpreter is on and takes CPU tensors only"
    return None if tensor.device.type == "cuda" else f"it needs a CUDA tensor, not one on {tensor.device.type}"
