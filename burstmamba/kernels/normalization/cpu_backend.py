"""Calling the C++ kernels; results without gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from burstmamba.kernels.cpu.library import RowsProblem, call, library
from burstmamba.kernels.normalization import reference
from burstmamba.kernels.normalization.reference import gate
from burstmamba.kernels.normalization.rows import as_rows

__all__ = ["advance", "advance_and_normalize", "gate", "normalize", "serves"]


def serves(*tensors: Tensor | None) -> bool:
    """Whether the library is there and takes such tensors: float32 on a CPU."""
    known = (tensor for tensor in tensors if tensor is not None)
    return all(t.device.type == "cpu" and t.dtype == torch.float32 for t in known) and library() is not None


def normalize(tokens: Tensor, norm: nn.LayerNorm, gate: Tensor | None, width: int | None) -> Tensor:
    """See `burstmamba.kernels.normalization.normalize`."""
    if not serves(tokens, gate) or width not in (None, tokens.shape[-1]):
        return reference.normalize(tokens, norm, gate, width)
    return run(tokens, norm=norm, gate=gate)[1]


def advance(tokens: Tensor, skip: Tensor, update: Tensor, gate: Tensor | None) -> Tensor:
    """See `burstmamba.kernels.normalization.advance`."""
    if not serves(tokens, update, gate):
        return reference.advance(tokens, skip, update, gate)
    return run(tokens, (skip, update), gate)[0]


def advance_and_normalize(
    tokens: Tensor, skip: Tensor, update: Tensor, norm: nn.LayerNorm, width: int | None
) -> tuple[Tensor, Tensor]:
    """See `burstmamba.kernels.normalization.advance_and_normalize`."""
    if not serves(tokens, update) or width not in (None, tokens.shape[-1]):
        return reference.advance_and_normalize(tokens, skip, update, norm, width)
    return run(tokens, (skip, update), norm=norm)


def run(
    tokens: Tensor,
    change: tuple[Tensor, Tensor] | None = None,
    gates: Tensor | None = None,
    norm: nn.LayerNorm | None = None,
    gate: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """tokens · skip + update · gates, the first two being `change`, and its norm times silu(gate).

    Without a change tokens are taken as they are; a result that is not asked for has no values.
    """
    x = as_rows(tokens)
    rows, c = x.shape
    problem = RowsProblem(rows, c, max(1, rows // len(tokens)), x_stride=x.stride(0))
    total, normal = (x.new_empty(tokens.shape if wanted else (0,)) for wanted in (change is not None, norm is not None))
    alive = {"x": x}
    if change is not None:
        alive |= {"skip": change[0].contiguous(), "update": as_rows(change[1]), "sum": total}
        problem.update_stride = alive["update"].stride(0)
    if gates is not None:
        alive["gates"] = gates.contiguous()
    if norm is not None:
        alive |= {"weight": norm.weight, "bias": norm.bias, "normal": normal}
        problem.epsilon = norm.eps
    if gate is not None:
        alive["gate"] = as_rows(gate)
        problem.gate_stride = alive["gate"].stride(0)
    for name, tensor in alive.items():
        problem.point(name, tensor)
    if rows:
        call("normalize_rows", problem)
    return total, normal
