"""How the kernels between products are held against plain PyTorch in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from agreement import relative_error

from burstmamba.kernels import normalization
from burstmamba.kernels.normalization import reference

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@dataclass(frozen=True)
class Tokens:
    """Tokens (b, h, w, c) to compare; what is added to them has the type of a product's result."""

    b: int
    h: int
    w: int
    c: int
    dtype: torch.dtype = torch.float32
    halves: bool = False
    """Whether updates and gates are the halves of one projection, with a gap between rows."""


TOKENS = (
    Tokens(2, 3, 5, 48),
    Tokens(1, 7, 2, 45, halves=True),
    Tokens(3, 1, 4, 180, torch.bfloat16, halves=True),
    Tokens(1, 2, 2, 360, torch.float16),
    Tokens(2, 1, 1, 1),
)


def errors(tokens: Tokens, device: str = "cpu") -> dict[str, float]:
    """Error of each result relative to the largest value; infinite where a type or a shape is not the expected one."""
    generator = torch.Generator().manual_seed(tokens.c)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    shape = tokens.b, tokens.h, tokens.w, tokens.c
    x = (3 + 10 * numbers(*shape)).to(device)
    both = numbers(*shape[:3], 2 * tokens.c).to(device, tokens.dtype)
    update, gate = both.chunk(2, dim=-1) if tokens.halves else (half.contiguous() for half in both.chunk(2, dim=-1))
    skip, open_by = numbers(tokens.c).to(device), torch.sigmoid(numbers(tokens.b, tokens.c)).to(device)
    reduce, expand = torch.nn.Conv2d(tokens.c, 3, 1, device=device), torch.nn.Conv2d(3, tokens.c, 1, device=device)
    norm = torch.nn.LayerNorm(tokens.c, device=device)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    exact = torch.nn.LayerNorm(tokens.c, device=device, dtype=torch.float64)
    exact.load_state_dict(norm.state_dict())
    with torch.no_grad():
        assert normalization.serving(x) is not reference
        found = {
            "norm": normalization.normalize(x, norm),
            "gated": normalization.normalize(update, norm, gate),
            "sum": normalization.advance(x, skip, update, open_by),
            "wide": normalization.normalize(x, norm, width=tokens.c + 3),
            "gates": normalization.gate(open_by, reduce, expand),
        }
        found["plain sum"], found["its norm"] = normalization.advance_and_normalize(x, skip, update, norm)
        _, found["its wide norm"] = normalization.advance_and_normalize(x, skip, update, norm, width=tokens.c + 3)
        x, skip, update, gate, open_by = (tensor.double() for tensor in (x, skip, update, gate, open_by))
        truth = {
            "norm": reference.normalize(x, exact, None, None),
            "gated": reference.normalize(update, exact, gate, None),
            "sum": reference.advance(x, skip, update, open_by),
            "wide": reference.normalize(x, exact, None, tokens.c + 3),
            "gates": reference.gate(open_by, reduce.double(), expand.double()),
            "plain sum": reference.advance(x, skip, update, None),
        }
        truth["its norm"] = exact(truth["plain sum"])
        truth["its wide norm"] = torch.nn.functional.pad(truth["its norm"], (0, 3))
    types = {name: tokens.dtype if name == "gated" else torch.float32 for name in truth}
    return {
        name: relative_error(found[name], value)
        if found[name].dtype == types[name] and found[name].is_contiguous()
        else torch.inf
        for name, value in truth.items()
    }


def errors_under_autocast(device: str = "cpu") -> dict[str, float]:
    """Products take bfloat16 there, so norms give it; the sum keeps its type."""
    x, update = torch.randn(2, 3, 4, 48, device=device), torch.randn(2, 3, 4, 48, device=device).bfloat16()
    norm = torch.nn.LayerNorm(48, device=device)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        total, normal = normalization.advance_and_normalize(x, torch.ones(48, device=device), update, norm)
        assert normal.dtype == normalization.normalize(x, norm).dtype == torch.bfloat16
        assert total.dtype == torch.float32
        expected = norm(x + update)
    return {"sum": (total - x - update).abs().max().item(), "norm": (normal - expected).abs().max().item()}
