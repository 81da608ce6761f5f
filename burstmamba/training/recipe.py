"""What a training run is: a frozen recipe of model, data, phases and settings."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from burstmamba.errors import InputError
from burstmamba.model.config import ModelConfig

if TYPE_CHECKING:
    from burstmamba.synthesis import SynthesisConfig

HARMLESS = ("validation", "log_every", "save_steps", "save_minutes", "keep", "bad_steps", "checkpoint_stages")
"""Settings of a recipe that may change when a run is resumed: they do not decide its weights."""
MAPS = ("given", "identity", "rounded", "prealigned")


@dataclass(frozen=True)
class Phase:
    """One stretch of training with its own patches, burst lengths, learning rate and frozen keys."""

    name: str
    steps: int
    """Optimiser steps; under `--minutes` only the proportion between the phases counts."""
    batch: int
    """Bursts a step, over all processes together."""
    patch: int
    """Side of the LR patches in pixels."""
    frames: tuple[tuple[int, float], ...] = ((14, 1.0),)
    """(L, probability) pairs: the burst length is drawn anew for each step."""
    rate: float = 1e-4
    final_rate: float = 1e-6
    """Where the cosine ends; a constant schedule ignores it."""
    schedule: str = "cosine"
    """`cosine` or `constant`, after the warm-up."""
    warmup: int = 200
    """Steps over which the rate rises linearly from zero."""
    frozen: tuple[str, ...] = ()
    """Prefixes of parameter names that are not trained, such as `keyframe.` in a phase without L = 1."""

    def __post_init__(self) -> None:
        if self.schedule not in ("cosine", "constant"):
            raise InputError(f"schedule must be cosine or constant, got {self.schedule!r}.")
        if min(self.steps, self.batch, self.patch) < 1:
            raise InputError(
                f"phase {self.name!r} needs steps, batch and patch of at least 1, "
                f"got {self.steps}, {self.batch} and {self.patch}."
            )
        if min(self.rate, self.final_rate, self.warmup) < 0:
            raise InputError(f"phase {self.name!r} needs rate, final_rate and warmup of at least 0.")
        if not self.frames or any(length < 1 or chance <= 0 for length, chance in self.frames):
            raise InputError(
                f"frames must be (L, probability) pairs with L ≥ 1 and probability > 0, got {self.frames}."
            )


@dataclass(frozen=True)
class Photographs:
    """Bursts synthesised on the fly from photographs in a folder."""

    synthesis: SynthesisConfig
    maps: str = "given"
    """What becomes of the maps: `given`, `identity`, `rounded` to whole pixels, or `prealigned` (frames are warped)."""
    leaves: bool = False
    """Whether a run without `--data` trains on drawn dead leaves instead of being refused."""


@dataclass(frozen=True)
class BurstFolders:
    """Recorded bursts with ground truth, read from a benchmark's own folders."""

    layout: str
    """`realbsr-rgb` or `realbsr-raw`."""
    correspondence: str = "auto"
    """Estimator of the maps; each burst is estimated once and kept."""
    maps: str = "given"
    """As in `Photographs`."""


@dataclass(frozen=True)
class Validation:
    """The fixed bursts that a run is watched with."""

    bursts: int = 16
    patch: int = 64
    """Side of the LR patches in pixels."""
    frames: int = 14
    every: int = 2000
    """Steps between two validations; there is also one soon after the start and one at the end."""

    def __post_init__(self) -> None:
        if min(self.bursts, self.patch, self.frames, self.every) < 1:
            raise InputError("validation.bursts, patch, frames and every must be at least 1.")


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights of a run; the defaults are the paper's where it names one."""

    model: ModelConfig
    data: Photographs | BurstFolders
    phases: tuple[Phase, ...]
    loss: str = "l1"
    """`l1` or `charbonnier`."""
    loss_space: str = "given"
    """Where errors are measured: `given` is what the network writes (sRGB, RAW: linear); or `srgb`, or `linear`."""
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    """For matrices and convolutions; A_log, D, biases, norms and skips have none."""
    clip: float = 1.0
    """Largest gradient norm."""
    ema: float = 0.999
    """Decay of the averaged weights, which are what is validated and shipped."""
    precision: str = "bf16"
    """`bf16` autocast where the device is a GPU, or `fp32`."""
    checkpoint_stages: bool = False
    """Recompute each stage in the backward pass instead of keeping it: less memory, more time."""
    threads: int = 0
    """CPU threads; 0 leaves it to torch. Networks as small as `tiny` lose more by waiting for a second one."""
    seed: int = 0
    validation: Validation = field(default_factory=Validation)
    log_every: int = 50
    save_steps: int = 5000
    save_minutes: float = 5.0
    """A checkpoint is written after this many steps or minutes, whichever comes first."""
    keep: int = 3
    """How many of the latest checkpoints stay; the best one always does."""
    bad_steps: int = 10
    """A run stops when so many steps between two log lines had no finite gradient."""

    def __post_init__(self) -> None:
        choices = {
            "loss": ("l1", "charbonnier"),
            "loss_space": ("given", "srgb", "linear"),
            "precision": ("bf16", "fp32"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be {' or '.join(allowed)}, got {getattr(self, name)!r}.")
        if self.data.maps not in MAPS:
            raise InputError(f"data.maps must be one of {', '.join(MAPS)}, got {self.data.maps!r}.")
        names = [phase.name for phase in self.phases]
        if not names or len(set(names)) != len(names):
            raise InputError(f"a recipe needs phases with different names, got {names}.")
        if not 0 <= self.ema < 1:
            raise InputError(f"ema must be in [0, 1), got {self.ema}.")
        if not self.clip > 0:
            raise InputError(f"clip must be more than 0, got {self.clip}; 1e9 clips nothing.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must be in [0, 1), got {self.betas}.")
        if not min(self.weight_decay, self.save_minutes, self.seed, self.threads) >= 0:
            raise InputError("weight_decay, save_minutes, seed and threads must be at least 0.")
        if min(self.log_every, self.save_steps, self.keep, self.bad_steps) < 1:
            raise InputError("log_every, save_steps, keep and bad_steps must be at least 1.")

    @property
    def steps(self) -> int:
        """Steps of all phases together."""
        return sum(phase.steps for phase in self.phases)

    def to_json(self) -> str:
        """The recipe as kept beside a run."""
        return json.dumps(asdict(self), sort_keys=True)

    def difference(self, stored: str) -> str | None:
        """Name of a setting in which a stored recipe would give other weights; None when there is none."""
        old, new = completed(json.loads(stored), self), json.loads(self.to_json())
        names = (name for name in sorted(old.keys() | new.keys()) if name not in HARMLESS)
        return next((name for name in names if old.get(name) != new.get(name)), None)


def completed(stored: Any, current: object) -> Any:
    """What was stored, and with it the settings that did not exist then: they had the values that are defaults now."""
    if isinstance(current, tuple) and isinstance(stored, list) and len(stored) == len(current):
        return [completed(*pair) for pair in zip(stored, current, strict=True)]
    if not (is_dataclass(current) and isinstance(stored, dict)):
        return stored
    plain = {setting.name: setting.default for setting in fields(current) if setting.default is not MISSING}
    whole = json.loads(json.dumps(plain)) | stored
    return {name: completed(value, getattr(current, name, None)) for name, value in whole.items()}
