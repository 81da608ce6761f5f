"""The Triton scan's entry in the selection table; Triton is imported at the first call."""

from __future__ import annotations

from torch import Tensor

from burstmamba.kernels.triton_support import triton_unavailable as unavailable

__all__ = ["scan", "unavailable"]


def scan(*args) -> Tensor:
    """`selective_scan_triton`, imported when first needed."""
    from burstmamba.kernels.selective_scan.triton_op import selective_scan_triton

    return selective_scan_triton(*args)
