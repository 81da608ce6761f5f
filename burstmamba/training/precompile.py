"""Compile a network's Triton kernels in processes of their own, while this one traces the rest.

Triton compiles inside Python, one kernel at a time, and keeps what it has compiled on disk: another process can do that
work, and this one then finds it done.
"""

from __future__ import annotations

import subprocess
import sys

import torch

from burstmamba.correspondence.field import Correspondence
from burstmamba.model.config import ModelConfig
from burstmamba.model.gas import GatherAggregateScatter
from burstmamba.model.keyframe_stream import SelectiveScan2d

PARTS = ("keyframe", "burst")


def start(config: ModelConfig, batch: int, patch: int, length: int) -> list[subprocess.Popen[bytes]]:
    """Begin compiling for a step on bursts (batch, length, ·, patch, patch); the processes end by themselves."""
    parts = PARTS if length > 1 and config.burst_channels else PARTS[:1]
    command = [sys.executable, "-m", "burstmamba.training.precompile", config.to_json()]
    sizes = [str(size) for size in (batch, patch, length)]
    return [
        subprocess.Popen([*command, part, *sizes], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for part in parts
    ]


def run_once(config: ModelConfig, part: str, batch: int, patch: int, length: int) -> None:
    """Forward and backward of the module that holds the part's kernels, in the shapes of training."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.autocast(device, torch.bfloat16):
        if part == "keyframe":
            tokens = torch.randn(batch, patch, patch, config.channels, device=device, requires_grad=True)
            output = SelectiveScan2d(config).to(device)(tokens)
        else:
            features = torch.randn(
                batch, length, patch, patch, config.burst_channels, device=device, requires_grad=True
            )
            maps = torch.zeros(batch, length, 2, patch, patch, device=device)
            trust = torch.ones(batch, length, 1, patch, patch, device=device)
            output = GatherAggregateScatter(config).to(device)(features, Correspondence(maps, maps, trust))
    output.float().sum().backward()


if __name__ == "__main__":
    run_once(ModelConfig.from_json(sys.argv[1]), sys.argv[2], *(int(size) for size in sys.argv[3:]))
