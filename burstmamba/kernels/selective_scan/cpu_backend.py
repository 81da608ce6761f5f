"""The C++ scan's entry in the selection table."""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.kernels.cpu.library import absent


def unavailable(x: Tensor) -> str | None:
    """Why the C++ scan cannot take a tensor like `x`; None when it can."""
    if x.device.type != "cpu":
        return f"it needs a CPU tensor, not one on {x.device.type}"
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"it takes float32, bfloat16 or float16, not {str(x.dtype).removeprefix('torch.')}"
    return absent()


def scan(*args) -> Tensor:
    """`selective_scan_cpu`, imported when first needed."""
    from burstmamba.kernels.selective_scan.cpu_op import selective_scan_cpu

    return selective_scan_cpu(*args)
