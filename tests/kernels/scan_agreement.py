"""How the scan's backends are held against the reference: inputs, cases, and the one tolerance table."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from agreement import relative_error
from torch import Tensor

from burstmamba.kernels.selective_scan import PATHS, selective_scan

# Largest error of any result, relative to the largest value of that result (but at least FLOOR of it).
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
FLOOR = 1e-2
NAMES = ("y", "x", "delta", "A", "B", "C", "D", "delta_bias")
BURST = ("rows", "rows reversed")


@dataclass(frozen=True)
class Scan:
    """One scan to compare."""

    i: int
    j: int = 1
    d: int = 5
    n: int = 4
    paths: tuple[str, ...] = ("rows",)
    b: int = 1
    p: int = 1
    dtype: torch.dtype = torch.float32
    weighted: bool = False
    layout: str = "contiguous"
    """Or "network" (views of one projection), "columns" (paths next to each other in memory), "expanded", or "strided":
    channels far apart."""
    mixed: bool = False
    """Whether B and C are float32 whatever the dtype of the tokens."""
    shift: float = -1.0
    """Added to delta: far from 0 it underflows or overflows softplus and exp."""

    def __str__(self) -> str:
        kind = f"{self.layout} {str(self.dtype).removeprefix('torch.')} delta {self.shift:+g}"
        return f"{self.b}x{self.p}x{self.i}x{self.j} d{self.d} n{self.n} k{len(self.paths)} {kind}" + (
            " weighted" * self.weighted + " mixed" * self.mixed
        )


def arrange(tensor: Tensor, layout: str) -> Tensor:
    """The same values with other strides."""
    if layout == "strided":
        return tensor.movedim(-1, 0).contiguous().movedim(0, -1)
    if layout == "network":  # tokens before paths, next to other channels
        tokens_first = tensor.movedim(2, -2) if tensor.ndim == 6 else tensor
        wide = torch.cat((torch.full_like(tokens_first, torch.nan), tokens_first), dim=-1)
        view = wide[..., tokens_first.shape[-1] :]
        return view.movedim(-2, 2) if tensor.ndim == 6 else view
    if layout == "columns":
        return tensor.transpose(1, -2).contiguous().transpose(1, -2)
    if layout == "expanded":
        return tensor[:1].expand(tensor.shape)
    return tensor


def make_inputs(scan: Scan, device: str = "cpu") -> tuple[list[Tensor], Tensor | None]:
    """x, delta, A, B, C, D, delta_bias, and the weight."""
    generator = torch.Generator().manual_seed(scan.i * 1000 + scan.d)
    k, grid = len(scan.paths), (scan.i, scan.j)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def tokens(*shape: int, shift: float = 0.0, dtype: torch.dtype = scan.dtype) -> Tensor:
        return arrange((random(*shape) + shift).to(device, dtype), scan.layout)

    x = tokens(scan.b, scan.p, *grid, scan.d)
    delta = tokens(scan.b, scan.p, k, *grid, scan.d, shift=scan.shift)
    dtype = torch.float32 if scan.mixed else scan.dtype
    B, C = (tokens(scan.b, scan.p, k, *grid, scan.n, dtype=dtype) for _ in range(2))
    A = -torch.rand(k, scan.d, scan.n, generator=generator) * 4 - 0.01
    parameters = [tensor.to(device) for tensor in (A, random(k, scan.d), 0.3 * random(k, scan.d))]
    weight = torch.rand(scan.b, scan.p, *grid, generator=generator).to(device) if scan.weighted else None
    return [x, delta, parameters[0], B, C, parameters[1], parameters[2]], weight


def results(inputs: list[Tensor], weight: Tensor | None, scan: Scan, backend: str) -> list[Tensor]:
    """The output, and the gradient of each input."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    y = selective_scan(*leaves, paths=scan.paths, weight=weight, backend=backend)
    upstream = torch.sin(torch.arange(y.numel(), device=y.device).view(y.shape)).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves, upstream)]


def errors(scan: Scan, backend: str, device: str = "cpu") -> dict[str, float]:
    """Relative error of the output and of every gradient, by name; the reference runs in float64 of the same values."""
    inputs, weight = make_inputs(scan, device)
    truth = results([tensor.double() for tensor in inputs], weight, scan, "reference")
    found = results(inputs, weight, scan, backend)
    assert all(a.dtype == t.dtype for a, t in zip(found[1:], inputs, strict=True))
    return {name: relative_error(a, b, FLOOR) for name, a, b in zip(NAMES, found, truth, strict=True)}


def too_far(scan: Scan, found: dict[str, float]) -> dict[str, float]:
    """The errors that the tolerance table does not allow."""
    return {name: error for name, error in found.items() if not error <= TOLERANCE[scan.dtype]}


SMALL = (
    Scan(1),
    Scan(1, 1, d=5, n=16, paths=PATHS),
    Scan(2, paths=BURST, p=3),
    Scan(14, d=6, paths=BURST, b=2, p=3, weighted=True, layout="network"),
    Scan(16, d=9, n=8, paths=BURST, p=2),
    Scan(17, d=3, paths=BURST, p=2),
    Scan(7, 9, d=10, n=8, paths=PATHS, layout="network"),
    Scan(9, 7, d=10, n=5, paths=("columns reversed", "rows"), b=2, weighted=True),
    Scan(3, 21, d=33, n=16, paths=("columns",), layout="strided"),
    Scan(5, 5, paths=PATHS, b=2, layout="expanded"),
    Scan(6, 4, paths=PATHS, shift=-60.0),
    Scan(6, 4, paths=PATHS, shift=-200.0),
    Scan(6, 4, paths=PATHS, shift=40.0),
    Scan(6, 4, paths=PATHS, shift=3000.0),
    Scan(6, 4, paths=PATHS, shift=1e30),
    Scan(6, 4, paths=("rows", "columns"), dtype=torch.bfloat16),
    Scan(14, paths=BURST, p=2, dtype=torch.float16, weighted=True),
    Scan(257, d=4),
    Scan(1, 19, d=9, n=8, paths=BURST, b=2, p=3, layout="columns"),
    Scan(19, 1, d=9, n=8, paths=BURST, b=2, p=3, layout="network", dtype=torch.bfloat16, mixed=True),
    Scan(3, d=20, n=300),
)
# For Triton's interpreter, which takes some 10 ms a token: one to three groups of 32 channels, in chunks where they are
# long; n that is no power of two, and more than fit in a lane; extreme delta.
TINY = (
    Scan(1, d=3, paths=("columns",)),
    Scan(2, paths=BURST),
    Scan(14, d=40, paths=("rows reversed",), weighted=True, layout="network"),
    Scan(2, 3, n=5, paths=PATHS, layout="network"),
    Scan(4, 7, d=70, paths=("columns reversed",), weighted=True),
    Scan(9, 7, d=4, n=8, paths=("columns reversed",), layout="strided", weighted=True),
    Scan(1, 18, d=3, n=16),
    Scan(1, 18, d=3, n=2, paths=BURST, p=2, layout="columns", dtype=torch.bfloat16, mixed=True),
    Scan(2, 2, d=3, n=18),
    Scan(3, 6, d=3, n=2, shift=-200.0),
    Scan(3, 6, d=3, n=2, paths=("columns",), shift=1e30),
    Scan(17, d=3, dtype=torch.bfloat16),
)
LARGE = (
    Scan(64, 64, d=19, n=16, paths=("columns reversed",), layout="network"),
    Scan(14, d=90, n=16, paths=BURST, b=2, p=50, layout="network", weighted=True),
)
