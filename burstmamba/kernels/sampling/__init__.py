"""Bilinear sampling with replicated borders: one public function, one selection table."""

from __future__ import annotations

from torch import Tensor

from burstmamba.errors import InputError
from burstmamba.kernels.backends import Backend, select
from burstmamba.kernels.sampling import cpu_backend, triton_backend
from burstmamba.kernels.sampling.reference import sample_bilinear_reference

__all__ = ["BACKENDS", "sample_bilinear", "select_backend"]


# Fastest first; the reference takes everything.
BACKENDS: tuple[Backend, ...] = (
    Backend("triton", triton_backend.sample, triton_backend.unavailable),
    Backend("cpp", cpu_backend.sample, cpu_backend.unavailable),
    Backend("reference", sample_bilinear_reference, lambda features: None),
)


def sample_bilinear(features: Tensor, displacement: Tensor, *, backend: str | None = None) -> Tensor:
    """Sample `features` bilinearly at u + displacement[u]; beyond the border the nearest pixel counts.

    Args:
        features: (n, c, h, w); fastest where the channels lie next to each other in memory.
        displacement: (n, 2, h', w') pixels, x then y; no gradient flows to it.
        backend: a name out of `BACKENDS`; None takes the fastest that can serve `features`.

    Returns:
        (n, c, h', w') in the dtype of `features`; weights and sums are float32.
    """
    if (
        features.ndim != 4
        or displacement.ndim != 4
        or displacement.shape[1] != 2
        or features.shape[0] != displacement.shape[0]
    ):
        raise InputError(
            "sampling expects features (n, c, h, w) and displacement (n, 2, h', w'), "
            f"got {tuple(features.shape)} and {tuple(displacement.shape)}."
        )
    return select_backend(features, backend).run(features, displacement)


def select_backend(features: Tensor, name: str | None = None) -> Backend:
    """The backend that serves features like these: the named one, or the first of the table that can."""
    return select("sampling", BACKENDS, features, name)
