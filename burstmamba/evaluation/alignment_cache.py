"""Correspondence of many bursts, estimated once on all CPU cores and kept on disk.

A file's name is a hash of the frames, the method and the estimators' source, so nothing is ever given old maps.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import active_children, get_context
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from burstmamba.burst import Burst
from burstmamba.checkpoint import write_atomically
from burstmamba.correspondence.field import Correspondence
from burstmamba.workers import deaf_to_interrupts

log = logging.getLogger(__name__)


@cache
def estimators() -> str:
    """A hash of the estimators' source."""
    import burstmamba.correspondence

    files = sorted(Path(burstmamba.correspondence.__path__[0]).glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@dataclass(frozen=True)
class AlignedBurst:
    """Which frames are used, and their maps."""

    kept: list[int]
    """Indices of the usable frames; 0 comes first."""
    maps: Correspondence
    """(1, len(kept), ...)."""

    def among(self, frames: range) -> tuple[list[int], Correspondence]:
        """The keyframe and the usable ones among `frames`."""
        chosen = [i for i, index in enumerate(self.kept) if index == 0 or index in frames]
        return [self.kept[i] for i in chosen], self.maps.select(chosen)


class AlignmentCache:
    """A folder of estimated maps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.filled: set[tuple[str, str, str]] = set()
        """Method, subset and name of bursts that are known to be there: they need not be rendered to look."""

    def path(self, burst: Burst, method: str) -> Path:
        """Where the maps of this burst by this method are kept."""
        digest = hashlib.sha256(f"{estimators()} {method} {tuple(burst.frames.shape)} {burst.camera.cfa}".encode())
        digest.update(burst.frames.float().contiguous().numpy().tobytes())
        return self.folder / f"{method}-{digest.hexdigest()[:20]}.safetensors"

    def get(self, burst: Burst, method: str) -> AlignedBurst:
        """The maps of a burst, estimated now if need be."""
        path = self.path(burst, method)
        if not path.is_file():
            estimate_to_file(path, burst, method)
        return read_alignment(path)

    def fill(
        self, bursts: Sequence[Callable[[], Burst]], method: str, workers: int, progress: Callable[[], None]
    ) -> None:
        """Estimate what is missing.

        Args:
            bursts: functions that load a burst each; they are sent to the processes, which load in parallel.
            method: the estimator.
            workers: number of processes; 1 stays in this one.
            progress: called once for each burst.
        """
        if workers <= 1:
            for load in bursts:
                self.get(load(), method)
                progress()
            return
        # Spawned, not forked: this process may hold a GPU.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_single_thread) as pool:
            others = active_children()
            try:
                with deaf_to_interrupts():
                    jobs = [pool.submit(_fill_one, self, load, method) for load in bursts]
                for future in as_completed(jobs):
                    future.result()
                    progress()
            except BaseException:  # who stops early does not wait for the bursts under way: files appear whole
                pool.shutdown(wait=False, cancel_futures=True)
                for child in set(active_children()) - set(others):
                    child.terminate()
                raise


def _fill_one(cache: AlignmentCache, load: Callable[[], Burst], method: str) -> None:
    burst = load()
    path = cache.path(burst, method)
    if not path.is_file():
        estimate_to_file(path, burst, method)


def estimate_to_file(path: Path, burst: Burst, method: str) -> None:
    """Align a burst and write the usable frames' maps."""
    from burstmamba.correspondence import align_burst

    alignment = align_burst(burst, method=method)
    for note in alignment.notes:
        log.info("%s", note)
    kept = [frame.index for frame in alignment.frames if frame.kept]
    maps = alignment.correspondence
    tensors: dict[str, Tensor] = {
        "kept": torch.tensor(kept),
        "to_frame": maps.to_frame.float().contiguous(),
        "to_keyframe": maps.to_keyframe.float().contiguous(),
    }
    if maps.confidence is not None:
        tensors["confidence"] = maps.confidence.float().contiguous()
    write_atomically(path, save(tensors))


def read_alignment(path: Path) -> AlignedBurst:
    """Read a file written by `estimate_to_file`."""
    tensors = load_file(path)
    maps = Correspondence(tensors["to_frame"], tensors["to_keyframe"], tensors.get("confidence"))
    return AlignedBurst(tensors["kept"].tolist(), maps)


def default_workers() -> int:
    """One process for each core this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _single_thread() -> None:
    import cv2

    cv2.setNumThreads(1)
    torch.set_num_threads(1)
