"""Several processes training one model: who they are, and what they tell each other."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from burstmamba.errors import InputError


@dataclass(frozen=True)
class Processes:
    """This process among those that train together; the default is a process alone."""

    rank: int = 0
    world: int = 1
    local: int = 0
    """Number of this process on its machine: the GPU it takes."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def share(self, batch: int) -> slice:
        """The part of a batch that belongs to this process."""
        if batch % self.world:
            raise InputError(
                f"a batch of {batch} cannot be split evenly over {self.world} processes; choose a multiple of "
                f"{self.world} with --set phases.batch=N."
            )
        size = batch // self.world
        return slice(self.rank * size, (self.rank + 1) * size)

    def average(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its mean over all processes, in one message."""
        if self.world == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self.sum(flat).div_(self.world)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all processes, in place."""
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            raise lost_process(error) from error
        return tensor

    def agree(self, values: list[float]) -> list[float]:
        """The first process's values, in every process."""
        if self.world == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device())
        try:
            dist.broadcast(tensor, 0)
        except RuntimeError as error:
            raise lost_process(error) from error
        return tensor.tolist()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.world == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=self.device())).item())

    def device(self) -> torch.device:
        """Where messages live: on the GPU for NCCL, in memory for gloo."""
        return torch.device("cuda", self.local) if dist.get_backend() == "nccl" else torch.device("cpu")


def lost_process(error: Exception) -> InputError:
    """What to say when a message between processes fails."""
    return InputError(
        "another process of this run stopped or cannot be reached, so this one stops too; look at its own message, "
        f"then start all of them again with --resume. ({str(error).splitlines()[0][:200]})"
    )


def join(device: torch.device, timeout: timedelta = timedelta(minutes=10)) -> Processes:
    """Join the processes that torchrun started; a process alone when it did not."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        if local >= torch.cuda.device_count():
            raise InputError(
                f"process {local} of this machine has no GPU: {torch.cuda.device_count()} found; "
                "give torchrun --nproc-per-node at most that many."
            )
        torch.cuda.set_device(local)
    # The group that exists at its import is a default of its functions. Imported later, by torch's compiler, it would
    # keep our group and its threads alive after `leave`; one of them met Python's end at times, and aborted.
    importlib.import_module("torch.distributed.nn")

    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timeout)
    return Processes(dist.get_rank(), dist.get_world_size(), local)


def leave() -> None:
    """Leave the group of processes, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()
