"""Compile the parts of a training step in processes of their own, all at once.

PyTorch compiles in one process on about one core, part after part, and keeps what it has compiled on disk: here other
processes do that work, each for one part, and this one then finds it done.
"""

from __future__ import annotations

import json
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

FEWEST_CORES = 8
"""With fewer the processes would wait for each other."""
LONGEST = 300
"""Seconds after which the rest is compiled in the training process itself."""


def precompile(recipe: Recipe, examples: list[Inputs], device: torch.device) -> None:
    """Compile for steps on such bursts, and wait; whatever fails is left for the first step, which says why."""
    if own_cores() < FEWEST_CORES:
        return
    processes = [start(recipe, example, part, device) for example, part in parts_of(recipe.model, examples)]
    try:
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


def start(recipe: Recipe, example: Inputs, part: str, device: torch.device) -> subprocess.Popen[bytes]:
    """Begin compiling a part for bursts laid out like `example`."""
    layouts = [(tensor.shape, tensor.stride()) for tensor in example.tensors()]
    arguments = (recipe.model.to_json(), recipe.precision, part, str(device), json.dumps(layouts))
    command = [sys.executable, "-m", "burstmamba.training.precompile", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def compile_blocks(model: torch.nn.Module, kinds: tuple[type[torch.nn.Module], ...] = (Block, BurstStage)) -> None:
    """Fuse what lies between the matrix products and scans of each repeated block; equal blocks compile once."""
    import torch._dynamo  # two seconds that a run without a GPU need not spend
    import torch._inductor.config

    torch._dynamo.config.recompile_limit = 64  # one for each burst length
    torch._inductor.config.comprehensive_padding = False  # scans read any strides; padded ones would be copied first
    for module in model.modules():
        if isinstance(module, kinds):
            module.compile(dynamic=False)


def compile_part(config: ModelConfig, precision: str, part: str, device: torch.device, layouts: list) -> None:
    """Forward and backward of a network of one stage and one block, of which one is compiled."""
    tensors = [torch.empty_strided(shape, stride, device=device).uniform_() for shape, stride in layouts]
    frames, _, *maps = tensors
    correspondence = Correspondence(*maps) if maps else None
    if part == "keyframe":
        frames, correspondence = frames[:, :1], None
    model = channels_last(BurstMamba(replace(config, blocks=(1,))).to(device))
    compile_blocks(model, (Block,) if part == "keyframe" else (BurstStage,))
    with autocast_of(precision, device):
        output: Tensor = model(frames, correspondence)
    output.float().sum().backward()


if __name__ == "__main__":
    text, precision, part, device, layouts = sys.argv[1:]
    compile_part(ModelConfig.from_json(text), precision, part, torch.device(device), json.loads(layouts))
