"""A function of random draws alone, recorded once as a CUDA graph: hundreds of small kernels for one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch

T = TypeVar("T")

WARM_UP = 3


class Replay(Generic[T]):
    """Calling it gives what `make` would give, draw for draw; the values are overwritten by the next call.

    The generators are read when it is called: seed them before, as for `make` itself.
    """

    def __init__(
        self,
        make: Callable[[], T],
        generators: Sequence[torch.Generator],
        device: torch.device,
        *,
        like: Replay[T] | None = None,
    ) -> None:
        """Record.

        Args:
            make: launches kernels on `device`, always of the same shapes, and never waits for them.
            generators: those that `make` draws from; recording advances them.
            device: a GPU.
            like: another replay whose values are never needed at the same time: memory is shared with it.
        """
        # Graphs recorded on one stream share the scratch memory of matrix products, and PyTorch records on one stream
        # unless told otherwise: two graphs that run at the same time could spoil each other's sums.
        self.stream = torch.cuda.Stream(device) if like is None else like.stream
        self.pool = torch.cuda.graph_pool_handle() if like is None else like.pool
        self.stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UP):
                make()
        torch.cuda.current_stream(device).wait_stream(self.stream)
        self.graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self.graph.register_generator_state(generator)
        with torch.cuda.graph(self.graph, pool=self.pool, stream=self.stream):
            self.values = make()

    def __call__(self) -> T:
        self.graph.replay()
        return self.values
