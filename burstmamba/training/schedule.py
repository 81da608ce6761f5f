"""Learning rates over a phase, and how far a phase has come: by steps or by the clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi

from burstmamba.training.recipe import Phase


def rate_at(phase: Phase, step: int, position: float) -> float:
    """Learning rate of the phase's step number `step` (from 0) at `position` in [0, 1] of the phase."""
    warm = min(1.0, (step + 1) / phase.warmup) if phase.warmup else 1.0
    if phase.schedule == "constant":
        return phase.rate * warm
    position = min(max(position, 0.0), 1.0)
    return warm * (phase.final_rate + (phase.rate - phase.final_rate) * (1 + cos(pi * position)) / 2)


def ema_weight(decay: float, step: int) -> float:
    """How much of the new weights enters the average when it already stands for `step` steps.

    The average starts short, so that the first, bad weights are soon forgotten.
    """
    return 1 - min(decay, (1 + step) / (10 + step))


@dataclass
class StepClock:
    """A phase measured in steps."""

    steps: int

    def position(self, step: int) -> float:
        """Share of the phase that is done before its step number `step`."""
        return step / self.steps

    def tick(self, step: int, seconds: float, budget: float | None) -> None:
        """Steps need no wall time."""

    def rest(self, seconds: float) -> None:
        """Steps need no wall time."""


@dataclass
class WallClock:
    """A phase measured in wall time, extrapolated between two looks at the clock.

    Looking only now and then keeps several processes on one schedule: they are told the same time.
    """

    begin: float
    """Share of the budget after which the phase begins."""
    end: float
    """Share of the budget after which it is over."""
    budget: float = 1.0
    """Run seconds that all phases together may use."""
    step: int = 0
    seconds: float = 0.0
    """Run seconds at the last look, which was before step number `step`."""
    pace: float | None = None
    """Seconds a step between the last two looks; None until then: the first step is slower than all others."""
    looked: bool = False

    def position(self, step: int) -> float:
        """Share of the phase that is done before its step number `step`."""
        now = self.seconds + (step - self.step) * (self.pace or 0.0)
        return (now / self.budget - self.begin) / (self.end - self.begin)

    def tick(self, step: int, seconds: float, budget: float | None) -> None:
        """Take note that the run is `seconds` old before step number `step`, and what it may use in all."""
        if step > self.step and self.looked:
            self.pace = (seconds - self.seconds) / (step - self.step)
        self.step, self.seconds, self.budget = step, seconds, budget or self.budget
        if step == 0 and not self.looked:  # what was compiled before the first step takes nothing of its schedule
            self.begin = max(self.begin, min(seconds / self.budget, 0.5 * (self.begin + self.end)))
        self.looked = True

    def rest(self, seconds: float) -> None:
        """Take note that the time since the last look, up to now, was spent on something else than steps."""
        self.seconds = seconds


Clock = StepClock | WallClock


def phase_clock(phases: tuple[Phase, ...], index: int, *, by_time: bool) -> Clock:
    """The clock of one phase: its own steps, or its part of the wall time in proportion to its steps."""
    if not by_time:
        return StepClock(phases[index].steps)
    total = sum(phase.steps for phase in phases)
    before = sum(phase.steps for phase in phases[:index])
    return WallClock(before / total, (before + phases[index].steps) / total)
