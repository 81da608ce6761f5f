"""Two streams of work at once: small kernels of one leave room on a GPU for those of the other."""

from __future__ import annotations

import torch
from torch import Tensor


class Beside:
    """A block of work that a captured CUDA graph runs beside the rest; anywhere else it runs in its place.

    with beside: y = f(y)          # may overlap with what comes next outside
    z = z + beside.join(y)         # waits for y
    """

    def __init__(self, shared: Tensor) -> None:
        """Begin with `shared`, which both sides read."""
        self.stream = torch.cuda.Stream(shared.device) if shared.is_cuda and capturing() else None
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
            shared.record_stream(self.stream)
        self.context = torch.cuda.stream(self.stream)

    def __enter__(self) -> None:
        self.context.__enter__()

    def __exit__(self, *error: object) -> None:
        self.context.__exit__(*error)

    def join(self, tensor: Tensor) -> Tensor:
        """`tensor`, made inside, for use outside."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            tensor.record_stream(torch.cuda.current_stream())
        return tensor


def capturing() -> bool:
    """Whether the current stream records a CUDA graph."""
    return not torch.compiler.is_compiling() and torch.cuda.is_current_stream_capturing()
