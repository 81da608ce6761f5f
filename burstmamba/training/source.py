"""Where batches come from: a batch is a function of the step's number, so a run can go on anywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch

from burstmamba.correspondence.field import Correspondence
from burstmamba.data.photographs import PhotographBank
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


class PhotographSource:
    """Bursts synthesised on the device from random crops of photographs."""

    def __init__(self, bank: PhotographBank, data: Photographs, seed: int, processes: Processes) -> None:
        self.bank, self.data, self.seed, self.processes = bank, data, seed, processes
        self.generator = torch.Generator(bank.device)

    def batch(self, step: int, phase: Phase, frames: int) -> Sample:
        """Synthesise this process's share of the batch.

        All processes draw the crops of the whole batch from one seed and each keeps its own: no crop is used twice.
        """
        config = replace(self.data.synthesis, frames=frames)
        share = self.processes.share(phase.batch)
        crops = self.generator.manual_seed(seed_of(self.seed, "crops", step))
        photographs = self.bank.sample(phase.batch, config.source_size(phase.patch), crops)[share]
        motion = self.generator.manual_seed(seed_of(self.seed, "synthesis", step, self.processes.rank))
        sample = synthesize_burst(photographs, config, motion)
        return treat_maps(shuffle_frames(sample, self.generator), self.data.maps)


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
