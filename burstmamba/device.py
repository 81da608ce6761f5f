"""Where to compute."""

from __future__ import annotations

import re

import torch

from burstmamba.errors import InputError


def pick_device(name: str) -> torch.device:
    """`auto` (the GPU if there is one), `cpu`, `cuda` or `cuda:1`; what is asked for is honoured or refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise InputError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}.")
    device, count = torch.device(name), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise InputError(f"there is no {name}: torch sees {count} CUDA GPU(s); use cpu, or look at burstmamba doctor.")
    return device
