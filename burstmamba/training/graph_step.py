"""The training step as CUDA graphs: one captured for each burst length, all in one pool of memory."""

# torch._foreach_… and the like have no public name.
# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from burstmamba.training.precompile import compile_blocks, precompile
from burstmamba.training.step import Inputs, TrainStep

logger = logging.getLogger(__name__)

WARM_UP_STEPS = 3


class GraphStep(TrainStep):
    """A `TrainStep` whose body is replayed instead of launched: thousands of kernels for one call."""

    graphs: dict[int, torch.cuda.CUDAGraph]
    buffers: dict[int, Inputs]
    stream: torch.cuda.Stream

    def prepare(self, examples: Callable[[], list[Inputs]]) -> None:
        """Capture a graph for each example's burst length; weights and optimiser come out unchanged.

        Args:
            examples: makes a real batch for each burst length that will come.
        """
        begun = time.perf_counter()
        self.graphs, self.buffers = {}, {}
        # Of this step alone: graphs recorded on one stream share scratch memory, and batches are made at the same time.
        self.stream = torch.cuda.Stream()
        found = sorted(examples(), key=lambda inputs: -inputs.frames.shape[1])
        self.buffers = {example.frames.shape[1]: example.clone() for example in found}
        with self.preserved():
            if self.processes.first:
                precompile(self.recipe, found, self.device)
                logger.info("compiled the parts, %.0f s after the start", time.perf_counter() - begun)
            compile_blocks(self.model)
            for length, inputs in self.buffers.items():
                self.warm_up(inputs)
                logger.info("compiled the step for L = %d, %.0f s after the start", length, time.perf_counter() - begun)
            pool = torch.cuda.graph_pool_handle()
            # The longest first: the others then fit into the memory that it took.
            for length, inputs in self.buffers.items():
                for parameter in self.trainable:
                    parameter.grad = None
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=self.stream):
                    self.compute(inputs)
                self.graphs[length] = graph
                logger.info("captured the step for L = %d, %.0f s after the start", length, time.perf_counter() - begun)

    def warm_up(self, inputs: Inputs) -> None:
        """Run the body on a side stream, so that kernels are compiled and libraries set up before the capture."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # AdamW wonders why a capturable step is not captured: soon
            for _ in range(WARM_UP_STEPS):
                self.compute(inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        torch.cuda.synchronize()

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Put everything that a step changes back as it was."""
        changing: list[Tensor] = [*self.weights, *self.averages, *self.state().values()]
        changing += [self.sums, self.last_skipped, self.skip]
        before = [tensor.detach().clone() for tensor in changing]
        yield
        torch.cuda.synchronize()
        with torch.no_grad():
            for tensor, value in zip(changing, before, strict=True):
                tensor.copy_(value)

    def run(self, inputs: Inputs, *, number: int, rate: float, ema_weight: float) -> None:
        """Take one step with the graph of the batch's burst length."""
        length = inputs.frames.shape[1]
        self.rate.fill_(rate)
        self.ema_weight.fill_(ema_weight)
        self.number.fill_(number)
        torch._foreach_copy_(self.buffers[length].tensors(), inputs.tensors())
        self.replay(length)

    def replay(self, length: int) -> None:
        """Take the captured step on whatever its buffers hold."""
        self.graphs[length].replay()
