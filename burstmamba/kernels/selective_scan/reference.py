"""The selective scan, written as its definition; every other backend is tested against this one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PATHS = ("rows", "columns", "rows reversed", "columns reversed")


def selective_scan_reference(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    delta_bias: Tensor,
    paths: tuple[str, ...],
    weight: Tensor | None = None,
) -> Tensor:
    """See `burstmamba.kernels.selective_scan.selective_scan`; the state is float32, or float64 for float64 input."""
    high = torch.float64 if x.dtype == torch.float64 else torch.float32
    output = torch.zeros(x.shape, dtype=high, device=x.device)
    for k, path in enumerate(paths):
        step = F.softplus(delta[:, :, k].to(high) + delta_bias[k].to(high))  # (b, p, i, j, d)
        if weight is not None:
            step = step * weight.detach()[..., None].to(high)
        tokens = [serialise(tensor.to(high), path) for tensor in (x, step, B[:, :, k], C[:, :, k])]
        y = scan_sequence(*tokens, A=A[k].to(high), D=D[k].to(high))  # (b, p, t, d)
        output = output + deserialise(y, path, x.shape[2], x.shape[3])
    return output.to(x.dtype)


def scan_sequence(x: Tensor, step: Tensor, B: Tensor, C: Tensor, A: Tensor, D: Tensor) -> Tensor:
    """state ← exp(ΔA)·state + ΔB·x; y = C·state + D·x, along t.

    Args:
        x, step: (b, p, t, d), step = Δ after softplus.
        B, C: (b, p, t, n).
        A: (d, n), negative. D: (d,).

    Returns:
        (b, p, t, d).
    """
    state = torch.zeros(*x.shape[:2], x.shape[3], B.shape[3], dtype=x.dtype, device=x.device)  # (b, p, d, n)
    outputs = []
    for t in range(x.shape[2]):
        decay = torch.exp(step[:, :, t, :, None] * A)
        state = decay * state + (step[:, :, t] * x[:, :, t])[..., None] * B[:, :, t, None, :]
        outputs.append((state * C[:, :, t, None, :]).sum(-1))
    return torch.stack(outputs, dim=2) + D * x


def serialise(tokens: Tensor, path: str) -> Tensor:
    """Lay a token grid (b, p, i, j, c) out along a path: (b, p, t, c)."""
    if path.startswith("columns"):
        tokens = tokens.transpose(2, 3)
    sequence = tokens.flatten(2, 3)
    return sequence.flip(2) if path.endswith("reversed") else sequence


def deserialise(sequence: Tensor, path: str, rows: int, columns: int) -> Tensor:
    """Undo `serialise`: (b, p, t, c) back to the grid (b, p, i, j, c)."""
    if path.endswith("reversed"):
        sequence = sequence.flip(2)
    if path.startswith("columns"):
        return sequence.unflatten(2, (columns, rows)).transpose(2, 3)
    return sequence.unflatten(2, (rows, columns))
