"""Whether the Triton scan can run, decided without importing Triton; the kernels are imported at the first call."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch
from torch import Tensor


def unavailable(x: Tensor) -> str | None:
    """Why the Triton scan cannot take a tensor like `x`; None when it can."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"it takes float32, bfloat16 or float16, not {str(x.dtype).removeprefix('torch.')}"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return None if x.device.type == "cpu" else "Triton's interpreter is on and takes CPU tensors only"
    return None if x.device.type == "cuda" else f"it needs a CUDA tensor, not one on {x.device.type}"


def scan(*args) -> Tensor:
    """`selective_scan_triton`, imported when first needed."""
    from burstmamba.kernels.selective_scan.triton_op import selective_scan_triton

    return selective_scan_triton(*args)
