"""How the sampling kernels are held against the reference: cases and errors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from agreement import relative_error

from burstmamba.kernels.sampling import sample_bilinear

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@dataclass(frozen=True)
class Sampling:
    """One sampling to compare: features (n, c, h, w) at out_h × out_w points."""

    n: int
    c: int
    h: int
    w: int
    out_h: int
    out_w: int
    dtype: torch.dtype = torch.float32
    channels_last: bool = True


SAMPLINGS = (
    Sampling(2, 5, 7, 9, 7, 9),
    Sampling(1, 3, 1, 6, 4, 3, channels_last=False),
    Sampling(3, 20, 8, 1, 8, 8),
    Sampling(2, 77, 6, 5, 6, 5, dtype=torch.bfloat16),
    Sampling(1, 1, 5, 5, 5, 5, dtype=torch.float16, channels_last=False),
)


def errors(sampling: Sampling, backend: str, device: str = "cpu", *, transposed: bool = False) -> dict[str, float]:
    """Error of the sampled values and of the features' gradient, which C++ has none of, relative to the largest value.

    `transposed`: whether the map lies in memory column by column.
    """
    generator = torch.Generator().manual_seed(sampling.c)
    features = torch.randn(sampling.n, sampling.c, sampling.h, sampling.w, generator=generator).to(sampling.dtype)
    if sampling.channels_last:
        features = features.contiguous(memory_format=torch.channels_last)
    displacement = 3 * torch.randn(sampling.n, 2, sampling.out_h, sampling.out_w, generator=generator)
    displacement[:, :, 0, 0] = 1e7
    displacement[:, :, 0, 1] = -2.0  # whole pixels, beyond the border
    displacement[:, :, -1, -1] = -1e7
    if transposed:
        displacement = displacement.mT.contiguous().mT
    upstream = torch.randn(sampling.n, sampling.c, sampling.out_h, sampling.out_w, generator=generator)
    outcome = []
    for name, dtype in (("reference", torch.float64), (backend, sampling.dtype)):
        leaf = features.to(device, dtype).detach().requires_grad_()
        with torch.set_grad_enabled(backend != "cpp"):
            y = sample_bilinear(leaf, displacement.to(device), backend=name)
        assert y.dtype == dtype
        gradient = torch.autograd.grad(y, leaf, upstream.to(device, dtype)) if y.requires_grad else ()
        outcome.append((y.detach(), *gradient))
    names = ("values", "gradient")[: len(outcome[0])]
    return {name: relative_error(found, truth) for name, truth, found in zip(names, *outcome, strict=True)}
