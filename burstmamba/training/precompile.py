"""Compile the parts of a training step in processes of their own, all at once.

PyTorch compiles in one process on about one core, part after part, and keeps what it has compiled on disk: here other
processes do that work, each for one part, and this one then finds it done. Meanwhile it runs the network as it is, so
that the scans and samplings, which stand between the compiled parts, are found too, and the libraries are set up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import torch
from torch import Tensor

from burstmamba.correspondence.field import Correspondence
from burstmamba.data.decoding import own_cores
from burstmamba.model.burst_stream import BurstStage
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import ModelConfig
from burstmamba.model.keyframe_stream import Block, channels_last
from burstmamba.training.recipe import Recipe
from burstmamba.training.step import Inputs, autocast_of

Layouts = list[tuple[tuple[int, ...], tuple[int, ...]]]

FEWEST_CORES = 8
"""With fewer the processes would wait for each other."""
LONGEST = 300
"""Seconds after which the rest is compiled in the training process itself."""


def precompile(recipe: Recipe, examples: list[Inputs], device: torch.device) -> None:
    """Compile for steps on such bursts, and wait; whatever fails is left for the first step, which says why."""
    if own_cores() < FEWEST_CORES:
        return
    parts = parts_of(recipe.model, examples)
    threads = max(1, own_cores() // len(parts))
    processes = [start(recipe, example, part, device, threads) for example, part in parts]
    try:
        import torch._dynamo  # four seconds that are free now

        for example in examples:
            compile_part(recipe.model, recipe.precision, "nothing", device, layouts_of(example))
        torch.cuda.empty_cache()
        for process in processes:
            process.wait(LONGEST)
    except subprocess.TimeoutExpired:
        pass  # this process compiles the rest itself
    finally:
        for process in processes:
            process.kill()


def parts_of(config: ModelConfig, examples: list[Inputs]) -> list[tuple[Inputs, str]]:
    """What is compiled by itself: a keyframe block, and a burst stage for each burst length."""
    lengths = [example for example in examples if example.frames.shape[1] > 1 and config.burst_channels]
    return [(examples[0], "keyframe"), *((example, "burst") for example in lengths)]


def layouts_of(example: Inputs) -> Layouts:
    """Shape and strides of each tensor of a batch."""
    return [(tuple(tensor.shape), tensor.stride()) for tensor in example.tensors()]


def start(
    recipe: Recipe, example: Inputs, part: str, device: torch.device, threads: int = 1
) -> subprocess.Popen[bytes]:
    """Begin compiling a part for bursts laid out like `example`."""
    arguments = (recipe.model.to_json(), recipe.precision, part, str(device), json.dumps(layouts_of(example)))
    command = [sys.executable, "-m", "burstmamba.training.precompile", *arguments]
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def compile_blocks(model: torch.nn.Module, kinds: tuple[type[torch.nn.Module], ...] = (Block, BurstStage)) -> None:
    """Fuse what lies between the matrix products and scans of each repeated block; equal blocks compile once."""
    import torch._dynamo  # two seconds that a run without a GPU need not spend
    import torch._inductor.config

    torch.set_float32_matmul_precision("high")  # like all here, compiled code is only found under the same settings
    torch._dynamo.config.recompile_limit = 64  # one for each burst length
    torch._inductor.config.comprehensive_padding = False  # scans read any strides; padded ones would be copied first
    for module in model.modules():
        if isinstance(module, kinds):
            module.compile(dynamic=False)


def compile_part(config: ModelConfig, precision: str, part: str, device: torch.device, layouts: Layouts) -> None:
    """Forward and backward of a network of one stage and one block, of which one (or nothing) is compiled."""
    tensors = [torch.empty_strided(shape, stride, device=device).uniform_() for shape, stride in layouts]
    frames, _, *maps = tensors
    correspondence = Correspondence(*maps) if maps else None
    if part == "keyframe":
        frames, correspondence = frames[:, :1], None
    model = channels_last(BurstMamba(replace(config, blocks=(1,))).to(device))
    compile_blocks(model, {"keyframe": (Block,), "burst": (BurstStage,), "nothing": ()}[part])
    with autocast_of(precision, device):
        output: Tensor = model(frames, correspondence)
    output.float().sum().backward()


if __name__ == "__main__":
    text, precision, part, device, layouts = sys.argv[1:]
    compile_part(ModelConfig.from_json(text), precision, part, torch.device(device), json.loads(layouts))
