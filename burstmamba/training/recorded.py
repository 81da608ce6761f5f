"""Batches of recorded bursts with ground truth: read ahead by threads, aligned once, each used once an epoch."""

from __future__ import annotations

import logging
import os
import random
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock

import torch
from safetensors import SafetensorError
from torch import Tensor

from burstmamba.correspondence import Correspondence, estimate_correspondence, load_maps, save_maps
from burstmamba.data.augment import augment, crop, take
from burstmamba.data.datasets import BurstDataset
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.training.chance import seed_of
from burstmamba.training.processes import Processes
from burstmamba.training.recipe import BurstFolders, Phase
from burstmamba.training.source import treat_maps

logger = logging.getLogger(__name__)

AHEAD = 4  # batches read before they are needed


class RecordedSource:
    """Random crops and turns of a data set's bursts, in an order that is new in each epoch."""

    def __init__(
        self,
        dataset: BurstDataset,
        data: BurstFolders,
        seed: int,
        device: torch.device,
        *,
        cache: Path,
        processes: Processes | None = None,
        threads: int = 8,
    ) -> None:
        """Prepare to read.

        Args:
            dataset: the bursts.
            data: which maps to estimate, and what to do with them.
            seed: of order, crops and turns.
            device: where batches are needed.
            cache: folder of the maps, about 4 MB for a burst of 14 frames of 160×160.
            processes: this process among several.
            threads: how many bursts are read at the same time.
        """
        self.dataset, self.data, self.seed, self.device, self.cache = dataset, data, seed, device, cache
        self.processes = processes or Processes()
        self.pool = ThreadPoolExecutor(threads)
        self.writing = Lock()
        self.waiting: dict[tuple[int, bool, int], list[Future[Sample]]] = {}

    def batch(self, step: int, phase: Phase, frames: int) -> Sample:
        """Read, crop, turn and shuffle this process's share of the batch."""
        if phase.batch > len(self.dataset):
            raise InputError(
                f"a batch of {phase.batch} needs as many bursts, and there are {len(self.dataset)}; "
                "give more data or --set phases.batch=N."
            )
        moving = any(length > 1 for length, _ in phase.frames)
        kind = (moving, phase.batch)  # a new phase may ask for others
        self.waiting = {key: found for key, found in self.waiting.items() if key[0] >= step and key[1:] == kind}
        for number in range(step, step + AHEAD):
            if (number, *kind) not in self.waiting:
                chosen = self.order(number, phase.batch)[self.processes.share(phase.batch)]
                self.waiting[number, *kind] = [self.pool.submit(self.load, index, moving) for index in chosen]
        whole = [future.result() for future in self.waiting.pop((step, *kind))]
        share = self.processes.share(phase.batch)
        samples = [
            augment(self.fit(sample, phase), self.dice(step, share.start + place), size=phase.patch, lengths=(frames,))
            for place, sample in enumerate(whole)
        ]
        return treat_maps(Sample.collate(samples).to(self.device), self.data.maps)

    def example(self, step: int, phase: Phase, frames: int) -> Sample:
        """The batch itself."""
        return self.batch(step, phase, frames)

    def order(self, step: int, batch: int) -> list[int]:
        """Which bursts the whole batch of this step is made of."""
        found = []
        for position in range(step * batch, (step + 1) * batch):
            epoch, place = divmod(position, len(self.dataset))
            found.append(self.shuffled(epoch)[place])
        return found

    def shuffled(self, epoch: int) -> list[int]:
        """The order of one epoch."""
        if getattr(self, "_epoch", None) != epoch:
            self._epoch, self._order = epoch, list(range(len(self.dataset)))
            random.Random(seed_of(self.seed, "epoch", epoch)).shuffle(self._order)
        return self._order

    def dice(self, step: int, place: int) -> torch.Generator:
        """Draws for one burst of one step, whichever process makes it."""
        return torch.Generator().manual_seed(seed_of(self.seed, "crop", step, place))

    def fit(self, sample: Sample, phase: Phase) -> Sample:
        """Refuse bursts that are smaller than the patches."""
        side = min(sample.frames.shape[-2:])
        if side < phase.patch:
            raise InputError(
                f"{sample.names[0] if sample.names else 'a burst'} is {side} pixels small, patches of {phase.patch} do "
                "not fit; leave it out or --set phases.patch=N."
            )
        return sample

    def load(self, index: int, moving: bool) -> Sample:
        """Read a burst; one that cannot be read is replaced by the next one, with a warning."""
        for shift in range(len(self.dataset)):
            place = (index + shift) % len(self.dataset)
            try:
                sample = self.dataset[place]
                return self.align(sample, self.dataset.names[place]) if moving else sample
            except InputError as error:  # other bursts serve
                logger.warning("left out: %s", error)
        raise InputError("not one burst of the data set can be read.")

    def align(self, sample: Sample, name: str) -> Sample:
        """Give the sample its maps: those that it has, those kept from an earlier time, or new ones."""
        if sample.correspondence is not None:
            return sample
        path = self.cache / self.data.correspondence / f"{name}.safetensors"
        if path.exists():
            return replace(sample, correspondence=load_maps(path).apply(Tensor.float))
        maps = estimate_correspondence(sample.burst(), self.data.correspondence)
        self.keep(path, maps.apply(Tensor.half))
        return replace(sample, correspondence=maps)

    def keep(self, path: Path, maps: Correspondence) -> None:
        """Write maps for the next time, whole or not at all; a full disk costs the time to estimate them again."""
        partial = path.with_name(f".{os.getpid()}-{path.name}")  # another process may be writing the same maps
        try:
            with self.writing:
                path.parent.mkdir(parents=True, exist_ok=True)
                save_maps(partial, maps)
                os.replace(partial, path)
        except (OSError, SafetensorError) as error:  # they are estimated again
            logger.warning("maps are not kept in %s: %s", path, error)


def validation_sample(dataset: BurstDataset, source: RecordedSource, count: int, patch: int, frames: int) -> Sample:
    """Centre crops of `count` bursts spread evenly over a data set, with their maps."""
    chosen = [round(place * (len(dataset) - 1) / max(count - 1, 1)) for place in range(min(count, len(dataset)))]
    samples = []
    for index in chosen:
        sample = source.align(dataset[index], f"validation-{dataset.names[index]}")
        h, w = sample.frames.shape[-2:]
        side = min(patch, h, w)
        top, left = ((size - side) // 4 * 2 for size in (h, w))
        kept = list(range(min(frames, sample.frames.shape[1])))
        samples.append(take(crop(sample, top, left, side, side), kept))
    return Sample.collate(samples)
