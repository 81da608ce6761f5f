"""Whether the Triton sampling can run, decided without importing Triton; the kernels are imported at the first call."""

from __future__ import annotations

from torch import Tensor

from burstmamba.kernels.triton_support import triton_unavailable as unavailable

__all__ = ["sample", "unavailable"]


def sample(features: Tensor, displacement: Tensor) -> Tensor:
    """`sample_bilinear_triton`, imported when first needed."""
    from burstmamba.kernels.sampling.triton_op import sample_bilinear_triton

    return sample_bilinear_triton(features, displacement)
