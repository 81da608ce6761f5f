"""An endless supply of bursts made of photographs, fast enough never to be waited for."""

from __future__ import annotations

from typing import Iterator

import torch
from torch import Tensor

from burstmamba.data.photographs import PhotographBank
from burstmamba.data.replay import Replay
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.synthesis import SynthesisConfig, synthesize_burst


class BurstSource:
    """Batches of synthetic bursts from one bank of photographs.

    Crops and synthesis are several hundred small kernels whose shapes never change. On a GPU they are recorded once
    as a CUDA graph and replayed, which takes the launches off the host; the values of a sample are then overwritten
    by the next one.
    """

    def __init__(
        self,
        bank: PhotographBank,
        config: SynthesisConfig,
        *,
        batch: int,
        size: int,
        seed: int = 0,
        graph: bool | None = None,
    ) -> None:
        """Prepare batches.

        Args:
            bank: the photographs; their device is where bursts are made.
            config: what kind of bursts.
            batch: how many bursts at once.
            size: side of the frames in LR pixels.
            seed: of every draw.
            graph: replay a CUDA graph (default: on a GPU), or launch each kernel.
        """
        on_gpu = bank.device.type == "cuda"
        if graph and not on_gpu:
            raise InputError(f"graph=True needs photographs on a GPU, they are on {bank.device}; leave it out.")
        self.bank, self.config, self.batch, self.size = bank, config, batch, size
        self.generator = torch.Generator(bank.device).manual_seed(seed)
        self._next = self._make
        if on_gpu and graph is not False:
            self._next = Replay(self._make, [self.generator], bank.device)
            self.generator.manual_seed(seed)

    def __iter__(self) -> Iterator[Sample]:
        return self

    def __next__(self) -> Sample:
        return self._next()

    def state(self) -> Tensor:
        """Where the draws stand, for a run to be resumed."""
        return self.generator.get_state()

    def resume(self, state: Tensor) -> None:
        """Go on from where `state` was taken."""
        self.generator.set_state(state)

    def _make(self) -> Sample:
        photos = self.bank.sample(self.batch, self.config.source_size(self.size), self.generator)
        return synthesize_burst(photos, self.config, self.generator)
