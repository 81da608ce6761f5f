"""The selection of a backend: by what it can do, before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from torch import Tensor

from burstmamba.errors import InputError


@dataclass(frozen=True)
class Backend:
    """One implementation of an operator, and why it may not be usable here."""

    name: str
    run: Callable[..., Tensor]
    unavailable: Callable[[Tensor], str | None]
    """The reason why this backend cannot take a tensor like this one; None when it can."""
    widens: bool = False
    """Whether a scan takes a Δ as narrow as its rank, and its projection, where no gradient is kept."""


def select(operator: str, backends: tuple[Backend, ...], tensor: Tensor, name: str | None) -> Backend:
    """The backend of an operator that serves a tensor like this one: the named one, or the first that can."""
    if name is None:
        return next(backend for backend in backends if backend.unavailable(tensor) is None)
    for backend in backends:
        if backend.name == name:
            reason = backend.unavailable(tensor)
            if reason is not None:
                raise InputError(f"{operator} backend {name!r} cannot run here: {reason}.")
            return backend
    raise InputError(f"unknown {operator} backend {name!r}; known: {', '.join(backend.name for backend in backends)}.")
