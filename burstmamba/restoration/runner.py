"""Running the network on one window: device, precision, CUDA graphs, and how large a window fits in memory."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt
from pathlib import Path

import torch
from torch import Tensor, nn

from burstmamba.correspondence.field import Correspondence
from burstmamba.model.config import ModelConfig
from burstmamba.model.keyframe_stream import SelectiveScan2d, channels_last
from burstmamba.model.padding import PaddedConvolution, fill_up
from burstmamba.restoration.tiles import SMALLEST_TILE

LARGEST_TILE = {"cpu": 192, "cuda": 512}
"""Side in LR pixels of the largest windows; on a CPU larger ones are no faster."""
TRIAL = {"cpu": 64, "cuda": 192}
"""Side in LR pixels of the window on which the time is estimated."""


class Runner:
    """Calls `model` on windows, wherever they lie."""

    def __init__(self, model: nn.Module) -> None:
        parameter = next(model.parameters(), None)
        self.device = torch.device("cpu") if parameter is None else parameter.device
        if self.device.type == "cuda":
            model = in_half(model)
        elif any(module.training for module in model.modules()):
            model = copy.deepcopy(model)  # the caller's goes on training
        self.model = model.eval()
        self.graphs = False
        """Whether windows run as CUDA graphs; only ever set for a CUDA device."""
        self.captured: dict[tuple[int, ...], Graph] = {}

    @property
    def precision(self) -> str:
        """The type the network computes in."""
        return "bfloat16" if self.device.type == "cuda" else "float32"

    @torch.inference_mode()
    def __call__(self, frames: Tensor, maps: Correspondence | None) -> Tensor:
        """(1, l, c, h, w) and its maps, on any device → (3, s·h, s·w) float32 on the model's device."""
        if self.device.type != "cuda":
            return self.model(frames, maps)[0].float()
        if not self.graphs:
            frames, maps = frames.to(self.device), None if maps is None else maps.to(self.device)
            with torch.autocast("cuda", torch.bfloat16):
                return self.model(frames, maps)[0].float()
        shape = tuple(frames.shape)
        if shape not in self.captured:
            self.captured[shape] = Graph(self.model, frames, maps, self.device)
        return self.captured[shape](frames, maps)[0].float()

    @contextmanager
    def watched(self, tell: Callable[[float], None]) -> Iterator[None]:
        """Call `tell` with the share of a window that is done, after each stage of the network; it may raise."""
        stages = list(getattr(getattr(self.model, "keyframe", None), "stages", ()))
        shares = [(i + 1) / (len(stages) + 1) for i in range(len(stages))]
        mine = threading.get_ident()  # other threads may run the same network
        hooks = [
            stage.register_forward_hook(lambda *_, share=share: tell(share) if threading.get_ident() == mine else None)
            for stage, share in zip(stages, shares, strict=True)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def near(self, size: int) -> torch.device:
        """Where `size` bytes of frames and maps are kept: on the model's device if that leaves room for its work."""
        return self.device if size < free_memory(self.device) // 4 else torch.device("cpu")

    def release(self) -> None:
        """Give captured graphs and cached GPU memory back, before a retry with smaller windows."""
        self.captured.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def seconds_per_pixel(self, frames: Tensor, maps: Correspondence | None) -> float:
        """Time of one LR pixel of all frames, tried on one window (1, l, c, h, w) without a captured graph."""
        graphs, self.graphs = self.graphs, False
        # The first run imports and compiles: for a CPU any window does, kernels of a GPU depend on its size.
        side = frames.shape[-1] if self.device.type == "cuda" else 16
        self(frames[..., :side, :side], None if maps is None else maps.crop(0, 0, side, side)).cpu()
        start = time.perf_counter()
        self(frames, maps).cpu()
        self.graphs = graphs
        return (time.perf_counter() - start) / (frames.shape[-2] * frames.shape[-1])


@torch.no_grad()
def in_half(model: nn.Module) -> nn.Module:
    """A copy for autocast, with all that depends on weights alone done for good.

    Products and convolutions get bfloat16 weights, which autocast would convert for every window, filled up to
    channels in multiples of 8.
    """
    model = copy.deepcopy(model).requires_grad_(False)
    for module in model.modules():
        if isinstance(module, SelectiveScan2d):
            A, weight = module.fold(gpu=True)
            module.folded = A, None if weight is None else weight.to(torch.bfloat16)
            halves = torch.cat([fill_up(half) for half in module.in_proj.weight.chunk(2)])  # as they are taken apart
            module.in_proj.weight = nn.Parameter(halves, requires_grad=False)
            module.out_proj.weight = nn.Parameter(fill_up(module.out_proj.weight), requires_grad=False)
        if isinstance(module, PaddedConvolution) and module.bias is not None:
            module.weight, module.bias = (
                nn.Parameter(fill_up(tensor), requires_grad=False) for tensor in (module.weight, module.bias)
            )
        if isinstance(module, nn.Linear | nn.Conv2d) and getattr(module, "kernel_size", None) != (1, 1):
            module.to(torch.bfloat16)  # 1×1: channel attention, which sums in float32
    return channels_last(model)


class Graph:
    """The network captured once for one window shape: replaying skips the launch cost of some thousand kernels."""

    def __init__(self, model: nn.Module, frames: Tensor, maps: Correspondence | None, device: torch.device) -> None:
        self.frames = frames.to(device, copy=True)
        self.maps = None if maps is None else maps.apply(lambda tensor: tensor.to(device, copy=True))
        stream = torch.cuda.Stream()  # this graph's own: those recorded on one stream share scratch memory
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            for _ in range(2):  # kernels are compiled and libraries set up before the capture
                model(self.frames, self.maps)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            self.output = model(self.frames, self.maps)

    def __call__(self, frames: Tensor, maps: Correspondence | None) -> Tensor:
        """The same call on other values."""
        self.frames.copy_(frames)
        if self.maps is not None and maps is not None:
            self.maps.to_frame.copy_(maps.to_frame)
            self.maps.to_keyframe.copy_(maps.to_keyframe)
            if self.maps.confidence is not None and maps.confidence is not None:
                self.maps.confidence.copy_(maps.confidence)
        self.graph.replay()
        return self.output


@dataclass(frozen=True)
class Footprint:
    """Memory of the network, in floats per LR pixel: fitted to measured peaks (docs/decisions/0075)."""

    keyframe: float = 30.0
    """Per keyframe channel, beside the burst stream."""
    burst: float = 34.0
    """Per burst channel and frame on a GPU."""
    burst_by_rows: float = 8.0
    """The same on a CPU, where frames exchange messages a few rows at a time."""
    head: float = 144.0
    """Per upsampler channel, when the streams are done."""

    def bytes_per_pixel(self, config: ModelConfig, length: int, device: torch.device) -> float:
        """Peak bytes for each LR pixel of a window of `length` frames, float32."""
        each = self.burst_by_rows if device.type == "cpu" else self.burst
        burst = each * config.burst_channels * length if length > 1 else 0.0
        return 4 * max(self.keyframe * config.channels + burst, self.head * config.head_channels)


def free_memory(device: torch.device) -> int:
    """Bytes that can be allocated on `device` now; a container's limit counts."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = 4 * 2**30  # what is assumed where the system does not say
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip().isdigit():
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return max(free, 0)


def fitting_tile(config: ModelConfig, length: int, device: torch.device) -> int:
    """The side in LR pixels of the largest window that fits in half of the free memory."""
    side = isqrt(int(free_memory(device) / 2 / Footprint().bytes_per_pixel(config, length, device)))
    largest = LARGEST_TILE.get(device.type, LARGEST_TILE["cpu"])
    return max(SMALLEST_TILE, min(largest, side - side % 2))


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a smaller window may help; torch raises a kind of its own, and libraries and the CPU plain ones."""
    words = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)
