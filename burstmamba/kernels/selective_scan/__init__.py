"""Selective state-space scan: one public function, one selection table."""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.errors import InputError
from burstmamba.kernels.backends import Backend, select
from burstmamba.kernels.selective_scan import cpu_backend, triton_backend
from burstmamba.kernels.selective_scan.reference import PATHS, selective_scan_reference
from burstmamba.kernels.triton_support import INSTALLED

__all__ = ["BACKENDS", "PATHS", "register_operators", "select_backend", "selective_scan"]

MOST_PATHS = 8


# Fastest first; the reference takes everything.
BACKENDS: tuple[Backend, ...] = (
    Backend("triton", triton_backend.scan, triton_backend.unavailable),
    Backend("cpp", cpu_backend.scan, cpu_backend.unavailable, widens=True),
    Backend("reference", selective_scan_reference, lambda x: None),
)


def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    delta_bias: Tensor,
    *,
    paths: tuple[str, ...],
    weight: Tensor | None = None,
    delta_weight: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Run the selective scan over a grid of tokens along k paths and sum the outputs in grid order.

    Per path: Δ = softplus(delta + delta_bias)·weight; state ← exp(ΔA)·state + ΔB·x; y = C·state + D·x.

    Args:
        x: (b, p, i, j, d) tokens. An image is p = 1, (i, j) = (h, w); a burst is p = h·w pixels, i = l, j = 1.
        delta: (b, p, k, i, j, d) before softplus.
        A: (k, d, n), negative.
        B: (b, p, k, i, j, n).
        C: (b, p, k, i, j, n).
        D: (k, d).
        delta_bias: (k, d).
        paths: k names out of `PATHS`: the order in which path k visits the grid.
        weight: (b, p, i, j) in [0, 1] or None; scales Δ, so that a token of weight 0 leaves the state untouched.
            No gradient flows to it.
        delta_weight: (k, d, r); then `delta` is (b, p, k, i, j, r), and its product with this counts.
        backend: a name out of `BACKENDS`; None takes the fastest that can serve `x`.

    Returns:
        (b, p, i, j, d) in the dtype of x. The state is float32 whatever the dtype of the inputs.
    """
    check_shapes(x, delta, A, B, C, D, delta_bias, paths, weight, delta_weight)
    chosen = select_backend(x, backend)
    if delta_weight is None:
        return chosen.run(x, delta, A, B, C, D, delta_bias, paths, weight)
    if chosen.widens and not torch.is_grad_enabled():
        return chosen.run(x, delta, A, B, C, D, delta_bias, paths, weight, delta_weight)
    delta = torch.einsum("bpkijr,kdr->bpkijd", delta, delta_weight)
    return chosen.run(x, delta, A, B, C, D, delta_bias, paths, weight)


def select_backend(x: Tensor, name: str | None = None) -> Backend:
    """The backend that serves a tensor like `x`: the named one, or the first of the table that can."""
    return select("scan", BACKENDS, x, name)


def register_operators() -> None:
    """Make the operators known to PyTorch before the first scan: a FLOP counter knows those that it found when made."""
    from burstmamba.kernels.selective_scan import cpu_op  # noqa: F401 (importing it registers)

    if INSTALLED and torch.cuda.is_available():
        from burstmamba.kernels.selective_scan import triton_op  # noqa: F401 (importing it registers)


def check_shapes(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    delta_bias: Tensor,
    paths: tuple[str, ...],
    weight: Tensor | None,
    delta_weight: Tensor | None,
) -> None:
    """Raise InputError when the shapes of a scan do not belong together."""
    if x.ndim != 5:
        raise InputError(f"scan tokens must be (b, p, i, j, d), got {tuple(x.shape)}.")
    unknown = [path for path in paths if path not in PATHS]
    if unknown or not 1 <= len(paths) <= MOST_PATHS:
        raise InputError(f"scan paths must be one to {MOST_PATHS} of {', '.join(PATHS)}, got {paths}.")
    b, p, i, j, d = x.shape
    k, n = len(paths), A.shape[-1]
    rank = d if delta_weight is None else delta_weight.shape[-1]
    expected = {
        "delta": (delta, (b, p, k, i, j, rank)),
        "A": (A, (k, d, n)),
        "B": (B, (b, p, k, i, j, n)),
        "C": (C, (b, p, k, i, j, n)),
        "D": (D, (k, d)),
        "delta_bias": (delta_bias, (k, d)),
    }
    if weight is not None:
        expected["weight"] = (weight, (b, p, i, j))
    if delta_weight is not None:
        expected["delta_weight"] = (delta_weight, (k, d, rank))
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise InputError(f"scan argument {name} must be {shape} for {k} path(s), got {tuple(tensor.shape)}.")
