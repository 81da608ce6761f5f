"""Operations of a scan, in the convention that MambaIR's published figures use."""

from __future__ import annotations

from math import prod


def scan_flops(x_shape, delta_shape, A_shape, *_, **__) -> int:
    """9·t·d·n + t·d for every path of every sequence; the arguments are the shapes of the operator's arguments."""
    b, p, k, i, j, d = delta_shape
    return b * p * k * i * j * d * (9 * A_shape[-1] + 1)


def scan_backward_flops(*shapes, **__) -> int:
    """Twice the forward's, as for products."""
    return 2 * scan_flops(*shapes)


def scan_cpu_flops(x_shape, delta_shape, A_shape, B, C, D, bias, weight, codes, delta_weight=None, **__) -> int:
    """The same, and Δ's projection where it happens inside, counted like any product."""
    whole = (*delta_shape[:-1], x_shape[-1])
    return scan_flops(x_shape, whole, A_shape) + (2 * delta_shape[-1] * prod(whole) if delta_weight else 0)
