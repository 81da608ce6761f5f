"""Bilinear sampling with replicated borders: one public function, one selection table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from torch import Tensor

from burstmamba.errors import InputError
from burstmamba.kernels.sampling import cpu_backend, triton_backend
from burstmamba.kernels.sampling.reference import sample_bilinear_reference

__all__ = ["BACKENDS", "Backend", "sample_bilinear", "select_backend"]


@dataclass(frozen=True)
class Backend:
    """One implementation of the sampling, and why it may not be usable here."""

    name: str
    sample: Callable[[Tensor, Tensor], Tensor]
    unavailable: Callable[[Tensor], str | None]
    """The reason why this backend cannot take features like these; None when it can."""


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
    return select_backend(features, backend).sample(features, displacement)


def select_backend(features: Tensor, name: str | None = None) -> Backend:
    """The backend that serves features like these: the named one, or the first of the table that can."""
    if name is None:
        return next(backend for backend in BACKENDS if backend.unavailable(features) is None)
    for backend in BACKENDS:
        if backend.name == name:
            reason = backend.unavailable(features)
            if reason is not None:
                raise InputError(f"sampling backend {name!r} cannot run here: {reason}.")
            return backend
    raise InputError(f"unknown sampling backend {name!r}; known: {', '.join(backend.name for backend in BACKENDS)}.")
