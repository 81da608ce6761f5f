"""The training loop: phases of steps, with a look at the numbers, a validation or a checkpoint now and then."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import torch
from safetensors.torch import save

from burstmamba.checkpoint import write_atomically
from burstmamba.errors import InputError
from burstmamba.training.chance import burst_length, seed_of
from burstmamba.training.graph_step import GraphStep
from burstmamba.training.interruption import Interruption, StoppedEarly
from burstmamba.training.recipe import Phase
from burstmamba.training.run import Report, Run
from burstmamba.training.schedule import Clock, ema_weight, phase_clock, rate_at
from burstmamba.training.source import Prefetcher, Source, inputs_of
from burstmamba.training.step import Progress, TrainStep

logger = logging.getLogger(__name__)

EARLY_LOOKS = (1, 3, 10, 25)  # a start's pace is not known yet
EARLY_SHARE = 0.05  # of the budget


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    finished: bool
    """False: it was paused or stopped, and can be resumed."""
    signal: int | None
    """The signal that stopped it."""


def train(run: Run, source: Source) -> Summary:
    """Train to the end of the schedule, a pause or a signal; a checkpoint of every step taken is written."""
    device = torch.cuda.get_device_name(run.device) if run.device.type == "cuda" else "cpu"
    run.logbook.write(
        "start", run.place.step, {"device": device, "processes": run.processes.world, "torch": torch.__version__}
    )
    with Interruption() as interruption:
        try:
            while not run.finished and train_phase(run, source, interruption):
                pass
        except StoppedEarly:  # by a signal
            run.close()  # the last checkpoint holds all there is; the weights in memory may not be themselves
        else:
            run.finish(score=interruption.signal is None)
    return Summary(run.finished, interruption.signal)


def train_phase(run: Run, source: Source, interruption: Interruption) -> bool:
    """Run the current phase from where it stands; returns whether it came to its end."""
    place, phase, seed = run.place, run.recipe.phases[run.place.phase], run.recipe.seed
    with interruption.at_once():
        step = build_step(run, phase, source)
    prefetcher = Prefetcher(source, run.device)
    clock = phase_clock(run.recipe.phases, place.phase, by_time=run.options.minutes is not None)
    look, rate = Look(run, phase, clock), 0.0
    while (position := clock.position(place.phase_step)) < 1:
        number, rate = place.step, rate_at(phase, place.phase_step - place.fresh_at, position)
        inputs = prefetcher.take(number, phase, burst_length(phase, seed, number))
        torch.manual_seed(seed_of(seed, "model", number, run.processes.rank))
        weight = ema_weight(run.recipe.ema, place.averaged + number)
        step.run(inputs, number=number, rate=rate, ema_weight=weight)
        place.step, place.phase_step = number + 1, place.phase_step + 1
        prefetcher.prepare(place.step, phase, burst_length(phase, seed, place.step))
        alone = run.processes.world == 1  # several must look after the same step
        if not (look.due() or (alone and (interruption.signal or run.must_pause(run.seconds())))):
            continue
        look.take(step, rate)
        stop_if_broken(run, look, source, step)
        if run.processes.any(interruption.signal is not None or run.must_pause(place.seconds)):
            run.save(step, must=True)
            if interruption.signal is None:
                score_last(run, step)
            return False
        regular = place.step % run.recipe.validation.every == 0
        best = (regular or look.first_validation_due()) and run.validate() and regular
        if best or look.save_due():
            run.save(step, best=best)
            look.saved = time.monotonic()
        look.go_on()
    if place.phase_step == look.first and run.options.minutes is not None:
        logger.warning("--minutes %g left no time for a step of phase %s", run.options.minutes, phase.name)
    look.take(step, rate)
    stop_if_broken(run, look, source, step)
    place.phase, place.phase_step, place.fresh_at = place.phase + 1, 0, 0
    run.save(step, must=run.finished)
    if run.finished and interruption.signal is None:
        score_last(run, step)
    return True


def score_last(run: Run, step: TrainStep) -> None:
    """Validate what a run ends with, after it has been saved; the best may be the last."""
    if run.scored_at != run.place.step and run.validate():
        run.save(step, best=True)


def build_step(run: Run, phase: Phase, source: Source) -> TrainStep:
    """The phase's step, captured where the device can, with the optimiser of the checkpoint that was resumed."""
    wanted = run.options.graphs
    if wanted and run.device.type != "cuda":
        raise InputError(f"CUDA graphs need a GPU, and this run is on {run.device}; leave out --graphs.")
    if wanted and run.recipe.checkpoint_stages:
        raise InputError("stages cannot be recomputed inside a CUDA graph; leave out --graphs or checkpoint_stages.")
    able = run.device.type == "cuda" and not run.recipe.checkpoint_stages
    kind = GraphStep if able and wanted is not False else TrainStep
    run.model.train()
    step = kind(run.model, run.ema, run.recipe, phase, run.processes)
    if run.loaded is not None and run.place.phase_step > 0:
        step.load_state(run.loaded.optimizer)
    run.loaded = None
    lengths = sorted({length for length, _ in phase.frames})
    step.prepare(lambda: [inputs_of(source.example(run.place.step, phase, length)) for length in lengths])
    return step


class Look:
    """When to look at a phase, and what was seen."""

    progress: Progress

    def __init__(self, run: Run, phase: Phase, clock: Clock) -> None:
        self.run, self.phase, self.clock = run, phase, clock
        self.first = run.place.phase_step
        self.seen, self.when = run.place.step, time.monotonic()
        self.saved, self.broken = self.when, 0
        self.begun = self.when
        clock.tick(run.place.phase_step, *run.look_at_the_clock())

    def due(self) -> bool:
        """Whether this step is one after which the device is waited for; the same in every process."""
        place, recipe = self.run.place, self.run.recipe
        periods = (recipe.log_every, recipe.save_steps, recipe.validation.every)
        return place.phase_step - self.first in EARLY_LOOKS or any(place.step % period == 0 for period in periods)

    def first_validation_due(self) -> bool:
        """Whether this start has to learn now what a validation costs: soon, but not before its first steps."""
        options = self.run.options
        if self.run.scored_at >= 0:
            return False
        budget = options.minutes or options.pause_after
        late = budget is not None and time.monotonic() - self.begun > EARLY_SHARE * 60 * budget
        return late or self.run.place.phase_step - self.first >= EARLY_LOOKS[-1]

    def save_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        recipe = self.run.recipe
        late = time.monotonic() - self.saved > 60 * recipe.save_minutes
        return late or self.run.place.step % recipe.save_steps == 0

    def take(self, step: TrainStep, rate: float) -> None:
        """Read the sums and the clock, and tell."""
        run, place = self.run, self.run.place
        self.progress = step.progress()
        # Steps without a finite gradient that no look with a good step came between.
        recovered = self.progress.skipped < self.progress.steps
        self.broken = self.progress.skipped + (0 if recovered else self.broken)
        place.seconds, budget = run.look_at_the_clock()
        self.clock.tick(place.phase_step, place.seconds, budget)
        now = time.monotonic()
        pace = (place.step - self.seen) / max(now - self.when, 1e-9)
        self.seen, self.when = place.step, now
        if self.progress.steps:
            position = position_in_run(run, min(self.clock.position(place.phase_step), 1.0))
            run.tell(Report(place.step, self.phase, position, rate, pace, self.progress))

    def go_on(self) -> None:
        """Leave out of the pace what was done since the look: validating and saving."""
        self.clock.rest(self.run.look_at_the_clock()[0])
        self.when = time.monotonic()


def position_in_run(run: Run, position: float) -> float:
    """Share of the whole run that is done when the current phase has come to `position`."""
    phases, index = run.recipe.phases, run.place.phase
    before = sum(phase.steps for phase in phases[:index])
    return (before + position * phases[index].steps) / run.recipe.steps


def stop_if_broken(run: Run, look: Look, source: Source, step: TrainStep) -> None:
    """End the run when too many gradients in a row were not finite; the last such batch is kept for inspection."""
    if look.broken < run.recipe.bad_steps:
        return
    if run.device.type == "cuda":
        torch.cuda.synchronize()  # the next batch may still be in the making, in the same memory
    number, phase = look.progress.last_skipped, run.recipe.phases[run.place.phase]
    sample = source.batch(number, phase, burst_length(phase, run.recipe.seed, number))
    names = ["frames", "target", "to_frame", "to_keyframe", "confidence"]
    tensors = dict(zip(names, (tensor.cpu().contiguous() for tensor in inputs_of(sample).tensors()), strict=False))
    path = run.options.out / f"bad-batch-{number:08d}-process-{run.processes.rank}.safetensors"
    write_atomically(path, save(tensors))
    run.save(step)
    raise InputError(
        f"{look.broken} steps up to step {number} had no finite gradient; the batch of that step is kept in {path}. "
        "Look at it, or start again with a lower rate: --set phases.rate=1e-4."
    )
