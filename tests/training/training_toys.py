"""The smallest recipe, source and run that behave like real ones; also run as a program by tests that kill it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from burstmamba.correspondence.field import Correspondence
from burstmamba.data.sample import Sample
from burstmamba.model.config import ModelConfig
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.chance import seed_of
from burstmamba.training.processes import Processes, join, leave
from burstmamba.training.recipe import Phase, Photographs, Recipe, Validation
from burstmamba.training.run import Run, RunOptions
from burstmamba.training.trainer import Summary, train
from burstmamba.training.validation import ValidationSet

MODEL = ModelConfig(
    channels=6,
    blocks=(1,),
    state=2,
    head_channels=4,
    drop_path=0.1,
    burst_channels=4,
    burst_state=2,
    psi_channels=4,
    global_skip="bicubic",
)
PHASE = Phase("complete", steps=8, batch=2, patch=6, frames=((1, 0.3), (3, 0.7)), rate=2e-3, warmup=2)
RECIPE = Recipe(
    model=MODEL,
    data=Photographs(synthesis_preset("handheld-rgb").without_nuisance(), leaves=True),
    phases=(PHASE,),
    ema=0.9,
    validation=Validation(bursts=2, patch=8, frames=3, every=4),
    log_every=2,
    save_steps=3,
    save_minutes=1e9,
)


class ToySource:
    """Smooth pictures seen through shifts; the whole batch is the same for any number of processes."""

    def __init__(self, seed: int = 0, processes: Processes | None = None, broken: tuple[int, ...] = ()) -> None:
        self.seed, self.processes, self.broken = seed, processes or Processes(), broken
        self.asked: list[int] = []

    def batch(self, step: int, phase: Phase, frames: int) -> Sample:
        self.asked.append(step)
        sample = toy_sample(phase.batch, frames, phase.patch, seed_of(self.seed, step))
        share = self.processes.share(phase.batch)
        target = sample.target[share] * (float("nan") if step in self.broken else 1.0)
        maps = sample.correspondence.apply(lambda tensor: tensor[share])
        return Sample(sample.frames[share], target, maps)

    def example(self, step: int, phase: Phase, frames: int) -> Sample:
        return ToySource.batch(self, step, phase, frames)


def toy_sample(batch: int, frames: int, patch: int, seed: int) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, 3, patch // 2 + 3, patch // 2 + 3, generator=generator)
    scene = F.interpolate(coarse, size=(4 * patch + 16, 4 * patch + 16), mode="bicubic").clamp(0, 1)
    shifts = torch.randint(-8, 9, (frames, 2), generator=generator)
    shifts[0] = 0
    views = [
        F.avg_pool2d(scene[..., 8 + y : 8 + y + 4 * patch, 8 + x : 8 + x + 4 * patch], 4) for x, y in shifts.tolist()
    ]
    maps = -(shifts / 4).view(1, frames, 2, 1, 1).expand(batch, -1, -1, patch, patch).contiguous()
    target = scene[..., 8 : 8 + 4 * patch, 8 : 8 + 4 * patch].contiguous()
    return Sample(torch.stack(views, dim=1), target, Correspondence(maps, -maps))


def toy_validation(recipe: Recipe) -> ValidationSet:
    return ValidationSet(toy_sample(2, 3, 8, seed=99), recipe.model)


def toy_run(
    out: Path, recipe: Recipe = RECIPE, *, validate: bool = True, started: float | None = None, **options: object
) -> Run:
    validation = toy_validation(recipe) if validate else None
    settings = RunOptions(out=out, tensorboard=False, **options)  # type: ignore[arg-type] (by name)
    return Run(recipe, settings, validation, torch.device("cpu"), started=started)


def toy_train(out: Path, recipe: Recipe = RECIPE, **options: Any) -> tuple[Run, Summary]:
    run = toy_run(out, recipe, **options)
    return run, train(run, ToySource(recipe.seed))


def main() -> None:
    """Train the toy: `python training_toys.py OUT STEPS [PROCESS_TO_DIE]`, alone or under torchrun."""
    torch.set_num_threads(1)
    out, steps = Path(sys.argv[1]), int(sys.argv[2])
    dying = int(sys.argv[3]) if len(sys.argv) > 3 else None
    processes = join(torch.device("cpu"))
    recipe = replace(RECIPE, phases=(replace(PHASE, steps=steps),), model=replace(MODEL, drop_path=0.0))
    options = RunOptions(out=out, tensorboard=False, resume=True)
    run = Run(recipe, options, None, torch.device("cpu"), processes=processes)
    source = ToySource(recipe.seed, processes)
    if dying == processes.rank:
        whole = source.batch

        def batch(step: int, phase: Phase, frames: int) -> Sample:
            if step == 3:
                os._exit(1)
            return whole(step, phase, frames)

        source.batch = batch  # type: ignore[method-assign] (a stand-in)
    try:
        train(run, source)
    finally:
        leave()


if __name__ == "__main__":
    main()
