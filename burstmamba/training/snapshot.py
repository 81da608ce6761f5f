"""Checkpoints of a run: all that is needed to go on, one safe file each, the last few kept and the best."""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from burstmamba.checkpoint import write_atomically
from burstmamba.errors import InputError

logger = logging.getLogger(__name__)

FORMAT = "burstmamba-run"


@dataclass
class Place:
    """How far a run has come."""

    step: int = 0
    """Steps of the schedule that are done: also the number of the next batch."""
    phase: int = 0
    phase_step: int = 0
    """Steps taken in the current phase."""
    fresh_at: int = 0
    """Step of the phase at which the optimiser began anew: the warm-up counts from there."""
    seconds: float = 0.0
    """Wall time spent on the run, over all the times it was started."""
    entered: int = 0
    """Step at which the schedule was entered: those before it were never taken."""
    entered_seconds: float = 0.0
    """What `seconds` began with: the time that those steps count for."""
    minutes: float | None = None
    """What the schedule is laid over; None for one that counts steps."""
    best: float = float("-inf")
    """Validation PSNR of the best checkpoint so far."""
    averaged: int = 0
    """Steps that the averaged weights of a warm start already stood for."""


@dataclass(frozen=True)
class Snapshot:
    """One checkpoint, read."""

    place: Place
    recipe: str
    model: dict[str, Tensor]
    ema: dict[str, Tensor]
    optimizer: dict[str, Tensor]


class Snapshots:
    """The checkpoints of one run's folder."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def files(self) -> list[Path]:
        """The checkpoints by step, the latest last."""
        return sorted(self.folder.glob("step-*.safetensors"))

    def write(
        self,
        place: Place,
        recipe: str,
        model: dict[str, Tensor],
        ema: dict[str, Tensor],
        optimizer: dict[str, Tensor],
        *,
        best: bool = False,
    ) -> Path:
        """Write a checkpoint, then remove those that are too old. Raises InputError when it cannot be written."""
        parts = {"model": model, "ema": ema, "optimizer": optimizer}
        tensors = {
            f"{part}.{name}": tensor.detach().cpu().contiguous()
            for part, named in parts.items()
            for name, tensor in named.items()
        }
        metadata = {"format": FORMAT, "place": json.dumps(asdict(place)), "recipe": recipe}
        path = self.folder / f"step-{place.step:08d}.safetensors"
        write_atomically(path, save(tensors, metadata=metadata))
        if best:
            self._mark_best(path)
        # Files that a killed process left half written go as well; a damaged one of a later step may be older.
        for old in (*self.files()[: -self.keep], *self.folder.glob(".*.part")):
            if old != path:
                old.unlink(missing_ok=True)
        return path

    def _mark_best(self, path: Path) -> None:
        """Give the checkpoint a second name: a link, which costs no space, or a copy where there are no links."""
        partial = self.folder / f".best.{os.getpid()}.part"
        partial.unlink(missing_ok=True)
        try:
            try:
                os.link(path, partial)
            except OSError:  # a filesystem without hard links
                shutil.copyfile(path, partial)
            os.replace(partial, self.folder / "best.safetensors")
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise InputError(f"cannot mark {path} as the best: {error.strerror}.") from error

    def latest(self) -> Snapshot | None:
        """The newest checkpoint that can be read, or None when there is none at all."""
        files = self.files()
        for path in reversed(files):
            try:
                return read_snapshot(path)
            except InputError as error:  # the one before it may be whole
                logger.warning("%s", error)
        if files:
            raise InputError(f"none of the {len(files)} checkpoints in {self.folder} can be read; start a new run.")
        return None


def is_snapshot(path: Path) -> bool:
    """Whether a file is a checkpoint of a run, rather than weights alone."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get("format") == FORMAT
    except (SafetensorError, OSError):  # whoever opens it next says what is wrong
        return False


def read_snapshot(path: Path) -> Snapshot:
    """Read one checkpoint of a run."""
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "ema": {}, "optimizer": {}}
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            for key in file.keys():  # noqa: SIM118 (not a dict)
                part, name = key.split(".", 1)
                parts[part][name] = file.get_tensor(key)
        place = Place(**json.loads(metadata["place"]))
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a complete checkpoint of a run ({error}).") from error
    return Snapshot(place, metadata["recipe"], **parts)


@torch.no_grad()
def restore_weights(module: torch.nn.Module, state: dict[str, Tensor]) -> None:
    """Copy weights into place, keeping each parameter's memory and layout."""
    own = module.state_dict()
    for name, tensor in own.items():
        tensor.copy_(state[name])
