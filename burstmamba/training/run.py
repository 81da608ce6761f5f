"""One run of a recipe: its weights, how far it has come, its folder and its budget."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from burstmamba.checkpoint import save_checkpoint, write_atomically
from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.keyframe_stream import channels_last
from burstmamba.training.chance import seed_of
from burstmamba.training.export import export_weights, warm_start
from burstmamba.training.logbook import Logbook
from burstmamba.training.processes import Processes
from burstmamba.training.recipe import Phase, Recipe
from burstmamba.training.snapshot import Place, Snapshot, Snapshots, restore_weights
from burstmamba.training.step import Progress, TrainStep, check_frozen
from burstmamba.training.validation import Scores, ValidationSet, write_picture

logger = logging.getLogger(__name__)

AVERAGED = 10_000  # steps that a warm start's average stands for: more than any decay reaches back
LEAST_RESERVE = 3.0  # seconds kept for writing, whatever was measured


@dataclass(frozen=True)
class RunOptions:
    """How a recipe is run: what does not decide the weights, or only by ending sooner."""

    out: Path
    """Folder of the run: checkpoints, logbook, pictures, weights."""
    minutes: float | None = None
    """Lay the schedule over this much wall time, validation and writing included."""
    pause_after: float | None = None
    """Stop after this many minutes of this start, to go on later with `resume`."""
    resume: bool = False
    warm_start: Path | None = None
    """Begin with these weights, not random ones: a file, a checkpoint, an export's folder or a shipped model's name."""
    start_at: float = 0.0
    """Share of the schedule that counts as done, for a warm start in the middle of a longer run."""
    graphs: bool | None = None
    """Capture the step as CUDA graphs; None does where the device can."""
    tensorboard: bool | None = None
    """True insists on it, None uses it when it is installed."""
    shard_mib: float = 15.0
    """Largest file of the export in MiB."""

    def __post_init__(self) -> None:
        for option, value in (("--minutes", self.minutes), ("--pause-after", self.pause_after)):
            if value is not None and not value > 0:
                raise InputError(f"{option} must be more than 0, got {value}.")
        if not self.shard_mib >= 1:
            raise InputError(f"--shard-mib must be at least 1, got {self.shard_mib}.")


@dataclass(frozen=True)
class Report:
    """What is told while a run goes on."""

    step: int
    phase: Phase
    position: float
    """Share of the whole run that is done."""
    rate: float
    """Learning rate."""
    pace: float
    """Steps a second since the last report."""
    progress: Progress


@dataclass(frozen=True)
class Validated:
    """What is told after a validation."""

    step: int
    scores: Scores


Listener = Callable[[Report | Validated], None]


class Run:
    """Weights, place, folder and clock of one run."""

    def __init__(
        self,
        recipe: Recipe,
        options: RunOptions,
        validation: ValidationSet | None,
        device: torch.device,
        *,
        processes: Processes | None = None,
        started: float | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Start a run, or take up the one in the folder.

        Args:
            recipe: what to train.
            options: how long, from where, to where.
            validation: fixed bursts; None in all processes but the first, or to go without.
            device: where to train.
            processes: this process among several.
            started: `time.monotonic()` of the program's start, so that the budget includes it.
            listener: called at every look and every validation of the first process.
        """
        self.recipe, self.options, self.validation, self.device = recipe, options, validation, device
        self.processes = processes or Processes()
        self.started = time.monotonic() if started is None else started
        self.listener = listener if self.processes.first else None
        self.snapshots = Snapshots(options.out / "checkpoints", recipe.keep)
        self.place, self.reserve = Place(), LEAST_RESERVE
        self.scores, self.scored_at = None, -1
        torch.manual_seed(seed_of(recipe.seed, "weights"))
        self.model = BurstMamba(recipe.model).to(device)
        for phase in recipe.phases:
            check_frozen(self.model, phase)
        if device.type == "cuda":
            channels_last(self.model)
        self.model.recompute_stages = recipe.checkpoint_stages
        self.ema = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.loaded = self._resume() if options.resume else self._start()
        self.seconds_before = self.place.seconds
        first = int(self.processes.agree([self.place.step])[0])
        if first != self.place.step:
            raise InputError(
                f"process {self.processes.rank} would begin at step {self.place.step} and the first one at {first}: "
                f"{options.out} differs between machines; share it, or copy it from the first one."
            )
        self.logbook = Logbook(options.out, active=self.processes.first, tensorboard=options.tensorboard)

    def _resume(self) -> Snapshot | None:
        """Put weights and place back; the checkpoint's optimiser is loaded when the phase is built."""
        found = self.snapshots.latest()
        if found is None:
            return self._start()
        if name := self.recipe.difference(found.recipe):
            raise InputError(
                f"the run in {self.options.out} was started with another setting of {name}; resume it with the same "
                "recipe and --set values, or start a new run with --warm-start."
            )
        self.place = found.place
        self._lay_schedule()
        restore_weights(self.model, found.model)
        restore_weights(self.ema, found.ema)
        return found

    def _lay_schedule(self) -> None:
        """Lay what is left of the schedule over the minutes given, which may be others than before."""
        minutes, before, spent = self.options.minutes, self.place.minutes, self.place.seconds / 60
        if self.finished or minutes == before:
            return
        if minutes is None:
            raise InputError(
                f"the schedule of the run in {self.options.out} is laid over {before:g} minutes; resume it with "
                f"--minutes {before:g}."
            )
        if minutes <= spent:
            raise InputError(
                f"{spent:.1f} minutes of the run in {self.options.out} are over, and --minutes {minutes:g} counts all "
                "its starts; give more."
            )
        if before is not None:
            logger.warning("the schedule is laid over %g minutes instead of %g; the rate jumps", minutes, before)
        self.place.minutes = minutes

    def _start(self) -> None:
        files = self.snapshots.files()
        if files:
            raise InputError(
                f"{self.options.out} already holds a run ({files[-1].stem}); go on with --resume, "
                "or choose another --out."
            )
        if not 0 <= self.options.start_at < 1:
            raise InputError(f"--start-at must be in [0, 1), got {self.options.start_at}.")
        if self.options.warm_start is not None:
            known = warm_start(self.model, self.ema, self.options.warm_start).ema
            if known.keys() == self.ema.state_dict().keys():
                self.place.averaged = AVERAGED  # the average goes on; a new part's would begin with what is random
        elif self.recipe.model.global_skip != "none":
            # The first output is then the interpolated keyframe, not noise upon it.
            for model in (self.model, self.ema):
                for parameter in model.keyframe.upsampler.leave.parameters():
                    torch.nn.init.zeros_(parameter)
        # At least one step is left to take.
        place, left = self.place, min(round(self.options.start_at * self.recipe.steps), self.recipe.steps - 1)
        place.step = place.entered = left
        if not place.averaged:
            place.averaged = -left  # nothing is averaged yet, wherever the schedule is entered
        while left >= self.recipe.phases[place.phase].steps:
            left -= self.recipe.phases[place.phase].steps
            place.phase += 1
        place.phase_step = place.fresh_at = left
        place.minutes = self.options.minutes
        place.seconds = place.entered_seconds = self.options.start_at * 60 * (self.options.minutes or 0.0)
        if self.processes.first:
            write_atomically(self.options.out / "recipe.json", self.recipe.to_json().encode())

    @property
    def finished(self) -> bool:
        """Whether the last phase is over."""
        return self.place.phase == len(self.recipe.phases)

    def seconds(self) -> float:
        """Wall time spent on the run, this start and the earlier ones."""
        return self.seconds_before + time.monotonic() - self.started

    def look_at_the_clock(self) -> tuple[float, float | None]:
        """Run seconds now, and how many the phases may use in all: not the last validation and writing.

        The same in every process.
        """
        seconds = self.seconds()
        if self.options.minutes is None:
            return self.processes.agree([seconds])[0], None
        seconds, budget = self.processes.agree([seconds, max(60 * self.options.minutes - self.reserve, 1.0)])
        return seconds, budget

    def must_pause(self, seconds: float) -> bool:
        """Whether this start has used the time it was given when the run has taken `seconds`."""
        if self.options.pause_after is None:
            return False
        return seconds - self.seconds_before + self.reserve >= 60 * self.options.pause_after

    def tell(self, report: Report) -> None:
        """Note how training goes."""
        progress = report.progress
        self.logbook.write(
            "train",
            report.step,
            {
                "phase": report.phase.name,
                "loss": progress.loss,
                "gradient": progress.gradient,
                "skipped": progress.skipped,
                "rate": report.rate,
                "steps_per_second": report.pace,
                "seconds": self.place.seconds,
            },
        )
        if progress.skipped:
            logger.warning(
                "%d steps up to %d had no finite gradient and were skipped", progress.skipped, progress.last_skipped
            )
        if self.listener:
            self.listener(report)

    def validate(self) -> bool:
        """Score the averaged weights; returns whether they are better than those of the best checkpoint."""
        if self.validation is None:
            return False
        begun = time.monotonic()
        self.scores, picture = self.validation.score(self.ema)
        self.scored_at = self.place.step
        try:
            write_picture(self.options.out / "pictures" / f"step-{self.place.step:08d}.png", picture)
        except InputError as error:  # a full disk
            logger.warning("%s Training goes on without the picture.", error)
        # The last validation and the last writing must fit into what is kept back of the budget, on a busy machine too.
        self.reserve = 2.0 * (time.monotonic() - begun) + LEAST_RESERVE
        self.logbook.write("validation", self.place.step, {**asdict(self.scores), "seconds": self.seconds()})
        self.logbook.picture("validation", picture, self.place.step)
        if self.listener:
            self.listener(Validated(self.place.step, self.scores))
        return self.scores.burst > self.place.best

    def save(self, step: TrainStep, *, best: bool = False, must: bool = False) -> None:
        """Write a checkpoint. When the disk is full the last good one stays and training goes on, unless `must`."""
        if not self.processes.first:
            return
        earlier = self.place.best
        if best and self.scores is not None:
            self.place.best = self.scores.burst
        try:
            state = (self.model.state_dict(), self.ema.state_dict(), step.state())
            path = self.snapshots.write(self.place, self.recipe.to_json(), *state, best=best)
            if best:
                save_checkpoint(self.options.out / "best.safetensors", self.ema, notes=self.notes())
        except InputError as error:
            self.place.best = earlier
            kept = self.snapshots.files()
            last = f"the last good one is {kept[-1].name}" if kept else "there is none yet"
            message = f"no checkpoint at step {self.place.step}: {error} In {self.snapshots.folder} {last}."
            if must:
                raise InputError(f"{message} Make room, then go on with --resume.") from error
            logger.error("%s Training goes on; make room.", message)
            self.logbook.write("full", self.place.step, {"message": str(error)})
            return
        self.logbook.write("checkpoint", self.place.step, {"file": path.name, "best": best})

    def finish(self, *, score: bool) -> None:
        """Write the weights in the forms that others read; validate first if the last weights were not."""
        if score and self.scored_at != self.place.step:
            self.validate()
        if self.processes.first:
            save_checkpoint(self.options.out / "weights.safetensors", self.ema, notes=self.notes())
            export_weights(
                self.options.out / "export", self.model, self.ema, shard_mib=self.options.shard_mib, notes=self.notes()
            )
        self.close()

    def close(self) -> None:
        """End the log."""
        self.logbook.write("end", self.place.step, {"finished": self.finished, "seconds": self.seconds()})
        self.logbook.close()

    def notes(self) -> dict[str, str]:
        """What a weights file says about its training: what was done, not what a late start left out."""
        minutes = (self.seconds() - self.place.entered_seconds) / 60
        notes = {"steps": str(self.place.step - self.place.entered), "minutes": f"{minutes:.1f}"}
        if self.scores is not None:
            notes |= {f"psnr_{name}": f"{value:.3f}" for name, value in asdict(self.scores).items()}
        return notes
