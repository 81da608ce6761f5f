"""Where batches come from: a batch is a function of the step's number, so a run can go on anywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from burstmamba.correspondence.field import Correspondence
from burstmamba.data.photographs import PhotographBank
from burstmamba.data.replay import Replay
from burstmamba.data.sample import Sample
from burstmamba.synthesis import synthesize_burst
from burstmamba.training.chance import seed_of
from burstmamba.training.processes import Processes
from burstmamba.training.recipe import Phase, Photographs
from burstmamba.training.step import Inputs


class Source(Protocol):
    """Something that makes training batches."""

    def batch(self, step: int, phase: Phase, frames: int) -> Sample:
        """This process's part of batch number `step`, on the training device, with `frames` frames a burst."""
        ...

    def example(self, step: int, phase: Phase, frames: int) -> Sample:
        """A batch like that of `step`, for a step to be captured with; nothing is learnt from it."""
        ...


class PhotographSource:
    """Bursts synthesised on the device from random crops of photographs."""

    def __init__(
        self,
        bank: PhotographBank | Callable[[], PhotographBank],
        data: Photographs,
        seed: int,
        processes: Processes,
        device: torch.device | str | None = None,
        *,
        graphs: bool | None = None,
    ) -> None:
        """Make batches.

        Args:
            bank: the photographs, or a function that waits for them; it is called for the first batch.
            data: how bursts are made of them.
            seed: of every draw, together with the step's number.
            processes: this process among several.
            device: where batches are made; that of the bank, which is waited for, when left out.
            graphs: replay the synthesis as CUDA graphs, one for each burst length (default: on a GPU).
        """
        self._bank, self.data, self.seed, self.processes = bank, data, seed, processes
        self.device = torch.device(device) if device is not None else self.bank.device
        self.crops, self.motion = torch.Generator(self.device), torch.Generator(self.device)
        self.graphs = self.device.type == "cuda" and graphs is not False
        self._replays: dict[tuple[int, int, int], Replay[Sample]] = {}

    @property
    def bank(self) -> PhotographBank:
        """The photographs; waited for while they are being decoded."""
        if not isinstance(self._bank, PhotographBank):
            self._bank = self._bank()
        return self._bank

    def batch(self, step: int, phase: Phase, frames: int) -> Sample:
        """Synthesise this process's share of the batch.

        All processes draw the crops of the whole batch from one seed and each keeps its own: no crop is used twice.
        """
        make = partial(self._make, self.bank, phase, frames)
        make = self._replay(make, (phase.batch, phase.patch, frames)) if self.graphs else make
        self.crops.manual_seed(seed_of(self.seed, "crops", step))
        self.motion.manual_seed(seed_of(self.seed, "synthesis", step, self.processes.rank))
        # The next replay overwrites the graph's memory, perhaps before this batch has been read.
        return copied(make()) if self.graphs else make()

    def example(self, step: int, phase: Phase, frames: int) -> Sample:
        """Bursts of noise: they need no photograph, so a step can be prepared while photographs are decoded."""
        share = self.processes.share(phase.batch)
        size = self.data.synthesis.source_size(phase.patch)
        self.motion.manual_seed(0)
        noise = torch.rand(share.stop - share.start, 3, size, size, generator=self.motion, device=self.device)
        return self._synthesize(noise, frames)

    def _make(self, bank: PhotographBank, phase: Phase, frames: int) -> Sample:
        crops = bank.sample(phase.batch, self.data.synthesis.source_size(phase.patch), self.crops)
        return self._synthesize(crops[self.processes.share(phase.batch)], frames)

    def _synthesize(self, photographs: Tensor, frames: int) -> Sample:
        sample = synthesize_burst(photographs, replace(self.data.synthesis, frames=frames), self.motion)
        return treat_maps(shuffle_frames(sample, self.motion), self.data.maps)

    def _replay(self, make: Callable[[], Sample], shape: tuple[int, int, int]) -> Replay[Sample]:
        if shape not in self._replays:
            first = next(iter(self._replays.values()), None)
            self._replays[shape] = Replay(make, [self.crops, self.motion], self.device, like=first)
        return self._replays[shape]


def copied(sample: Sample) -> Sample:
    """What a step reads of a sample, in memory of its own."""
    maps = sample.correspondence
    return replace(
        sample,
        frames=sample.frames.clone(),
        target=sample.target.clone(),
        correspondence=None if maps is None else maps.apply(torch.clone),
        exact=None,
    )


def shuffle_frames(sample: Sample, generator: torch.Generator) -> Sample:
    """Put the frames after the keyframe in a random order, maps included: order must carry no meaning."""
    length = sample.frames.shape[1]
    if length <= 2:
        return sample
    others = torch.randperm(length - 1, generator=generator, device=generator.device) + 1
    order = torch.cat((torch.zeros_like(others[:1]), others))
    maps = sample.correspondence
    return replace(
        sample,
        frames=sample.frames.index_select(1, order),
        correspondence=None if maps is None else maps.apply(lambda tensor: tensor.index_select(1, order)),
        exact=None,
    )


def treat_maps(sample: Sample, how: str) -> Sample:
    """The sample as one of the paper's ablation rows sees it; see `Photographs.maps`."""
    maps = sample.correspondence
    if how == "given" or maps is None:
        return sample
    if how == "rounded":
        return replace(sample, correspondence=maps.rounded(), exact=None)
    frames = maps.gather(sample.frames) if how == "prealigned" else sample.frames
    still = Correspondence.identity(frames)
    return replace(sample, frames=frames, correspondence=replace(still, confidence=maps.confidence), exact=None)


def inputs_of(sample: Sample) -> Inputs:
    """What the network and its loss need of a sample."""
    return Inputs(sample.frames, sample.target, sample.correspondence)


class Prefetcher:
    """Makes the next batch on a second stream while the device trains on this one."""

    def __init__(self, source: Source, device: torch.device) -> None:
        self.source = source
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.waiting: tuple[int, Inputs, torch.cuda.Event | None] | None = None

    def prepare(self, step: int, phase: Phase, frames: int) -> None:
        """Start making a batch."""
        if self.stream is None:
            return
        with torch.cuda.stream(self.stream):
            inputs = inputs_of(self.source.batch(step, phase, frames))
            event = torch.cuda.Event()
            event.record(self.stream)
        self.waiting = (step, inputs, event)

    def take(self, step: int, phase: Phase, frames: int) -> Inputs:
        """The batch of this step, made now unless it is waiting."""
        if self.stream is None:
            return inputs_of(self.source.batch(step, phase, frames))
        if self.waiting is None or self.waiting[0] != step:
            self.prepare(step, phase, frames)
        assert self.waiting is not None
        _, inputs, event = self.waiting
        self.waiting = None
        current = torch.cuda.current_stream()
        assert event is not None
        current.wait_event(event)
        for tensor in inputs.tensors():
            tensor.record_stream(current)  # its memory must not be reused before the step has read it
        return inputs
