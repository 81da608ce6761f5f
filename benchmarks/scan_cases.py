"""The scans that are timed, with inputs laid out as the network hands them over."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from burstmamba.kernels.selective_scan import PATHS
from burstmamba.kernels.selective_scan.flops import scan_backward_flops, scan_flops

TWO = ("rows", "rows reversed")


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    b: int
    p: int
    i: int
    j: int
    d: int
    n: int
    paths: tuple[str, ...]
    bar_ms: float | None = None
    """The time to reach on an H200."""
    backward: bool = True

    @property
    def tokens(self) -> int:
        """Length of a path."""
        return self.i * self.j

    @property
    def elements(self) -> int:
        """State updates: one exponential each in the forward."""
        return self.b * self.p * self.i * self.j * self.d * self.n * len(self.paths)

    @property
    def operations(self) -> int:
        """Of the forward, and of the backward where it is timed."""
        shapes = None, (self.b, self.p, len(self.paths), self.i, self.j, self.d), (self.n,)
        return scan_flops(*shapes) + (scan_backward_flops(*shapes) if self.backward else 0)

    def bytes_moved(self, itemsize: int) -> tuple[int, int]:
        """Bytes that forward and backward cannot avoid: every input read once, every output written once."""
        tokens, k = self.b * self.p * self.i * self.j, len(self.paths)
        inputs = tokens * (self.d + k * (self.d + 2 * self.n))
        return itemsize * (inputs + tokens * self.d), itemsize * (2 * inputs + tokens * self.d)


CASES = (
    Case("paper training, 20×40×40", 20, 1, 40, 40, 360, 16, PATHS, 2.2),
    Case("paper tile, 48×48", 1, 1, 48, 48, 360, 16, PATHS),
    Case("paper tile, 256×256, forward", 1, 1, 256, 256, 360, 16, PATHS, 2.0, backward=False),
    Case("light training, 24×32×32", 24, 1, 32, 32, 96, 8, PATHS, 0.4),
    Case("burst, 18,000 pixels × 14 frames", 20, 900, 14, 1, 90, 16, TWO, 2.5),
    Case("light burst tile, 48×48 × 14 frames", 1, 2304, 14, 1, 48, 8, TWO),
    Case("light burst, 24,576 pixels × 14 frames", 24, 1024, 14, 1, 48, 8, TWO),
)


def make_inputs(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> list[Tensor]:
    """x, delta, A, B, C, D, delta_bias; delta, B and C are views of one projection, tokens before paths."""
    generator = torch.Generator(device).manual_seed(seed)
    k, tokens = len(case.paths), (case.i, case.p) if case.p > 1 else (case.i, case.j)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def grid(tensor: Tensor) -> Tensor:
        """(b, tokens…, k, c) → (b, p, k, i, j, c), or without k."""
        tensor = tensor.transpose(1, 2).unsqueeze(3) if case.p > 1 else tensor.unsqueeze(1)  # (b, p, i, j, …)
        return tensor.permute(0, 1, 4, 2, 3, 5) if tensor.ndim == 6 else tensor

    projection = random(case.b, *tokens, k, case.d + 2 * case.n).to(dtype)
    delta, B, C = (grid(part) for part in projection.split([case.d, case.n, case.n], dim=-1))
    x = grid(random(case.b, *tokens, case.d).to(dtype))
    A = -torch.arange(1, case.n + 1, device=device).float().expand(k, case.d, case.n).contiguous()
    D = torch.ones(k, case.d, device=device)
    delta_bias = random(k, case.d) - 4.6
    return [x, delta, A, B, C, D, delta_bias]
