"""One optimiser step: forward, backward, clip, AdamW, averaged weights; nothing in it waits for the device."""

# torch._foreach_… and the like have no public name.
# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.training.loss import loss_of
from burstmamba.training.processes import Processes
from burstmamba.training.recipe import Phase, Recipe


@dataclass(frozen=True)
class Inputs:
    """What one step reads; for a captured step these are the buffers that every batch is copied into."""

    frames: Tensor
    """(b, l, c, h, w)."""
    target: Tensor
    """(b, 3, s·h, s·w)."""
    correspondence: Correspondence | None

    def tensors(self) -> list[Tensor]:
        """Its tensors, always in the same order."""
        found = [self.frames, self.target]
        if self.correspondence is not None:
            found += [self.correspondence.to_frame, self.correspondence.to_keyframe]
            if self.correspondence.confidence is not None:
                found.append(self.correspondence.confidence)
        return found

    def clone(self) -> Inputs:
        """A copy with its own memory."""
        maps = None if self.correspondence is None else self.correspondence.apply(torch.clone)
        return Inputs(self.frames.clone(), self.target.clone(), maps)


@dataclass(frozen=True)
class Progress:
    """What happened since the last look."""

    loss: float
    """Mean over the good steps; NaN when there was none."""
    gradient: float
    """Mean gradient norm before clipping."""
    steps: int
    skipped: int
    """Steps whose gradient was not finite; they left the weights alone."""
    last_skipped: int
    """Number of the last such step since the run began, -1 when there was none."""


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay acts on this parameter: matrices and convolutions only."""
    leaf = name.rsplit(".", 1)[-1]
    return parameter.ndim >= 2 and leaf not in ("A_log", "D") and not leaf.endswith("bias")


def autocast_of(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """bf16 on a GPU; no cache of cast weights, which must not outlive a captured step."""
    if precision == "bf16" and device.type == "cuda":
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
    return nullcontext()


def freeze(model: nn.Module, prefixes: tuple[str, ...]) -> None:
    """Train every parameter but those whose name begins with one of `prefixes`."""
    names = [name for name, _ in model.named_parameters()]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in names):
            raise InputError(f"no parameter begins with {prefix!r}; names look like {names[0]!r} and {names[-1]!r}.")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(prefixes) if prefixes else True)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError(f"nothing is left to train: {', '.join(prefixes)} freeze every parameter.")


def check_frozen(model: BurstMamba, phase: Phase) -> None:
    """Refuse a phase that would have nothing to learn from some of its bursts; the phase's step freezes for good."""
    freeze(model, phase.frozen)
    alone = any(length == 1 for length, _ in phase.frames)
    if alone and not any(parameter.requires_grad for parameter in model.keyframe.parameters()):
        raise InputError(
            f"phase {phase.name!r} freezes the whole keyframe stream, and with L = 1 there is nothing else to train; "
            f"leave L = 1 out of {phase.name}.frames, or freeze less."
        )


def build_optimizer(model: nn.Module, recipe: Recipe, rate: Tensor) -> torch.optim.AdamW:
    """AdamW over the trainable parameters, its state made at once, so that it can be captured and loaded into."""
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for n, p in trainable if decays(n, p)], "weight_decay": recipe.weight_decay},
        {"params": [p for n, p in trainable if not decays(n, p)], "weight_decay": 0.0},
    ]
    on_gpu = rate.is_cuda
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=rate, betas=recipe.betas, fused=True, capturable=on_gpu
    )
    for _, parameter in trainable:
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        }
    return optimizer


class TrainStep:
    """The step of one phase, run eagerly; `GraphStep` captures the same body."""

    def __init__(self, model: nn.Module, shadow: nn.Module, recipe: Recipe, phase: Phase, processes: Processes) -> None:
        self.device = next(model.parameters()).device
        self.model, self.recipe, self.processes = model, recipe, processes
        self.loss = loss_of(recipe)
        freeze(model, phase.frozen)
        self.trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.weights: list[Tensor] = list(model.parameters())
        self.averages: list[Tensor] = list(shadow.parameters())
        self.rate = torch.zeros((), device=self.device)
        self.ema_weight = torch.zeros((), device=self.device)
        self.number = torch.zeros((), device=self.device, dtype=torch.int64)
        self.skip = torch.zeros((), device=self.device)
        # Sum of losses, sum of gradient norms, steps, skipped steps; then the number of the last skipped step.
        self.sums = torch.zeros(4, device=self.device, dtype=torch.float64)
        self.last_skipped = torch.full((), -1, device=self.device, dtype=torch.int64)
        self.optimizer = build_optimizer(model, recipe, self.rate)
        # AdamW leaves weights and state alone while this is 1, without anyone reading it on the host.
        self.optimizer.found_inf = self.skip  # pyright: ignore[reportAttributeAccessIssue] (unlisted)

    def run(self, inputs: Inputs, *, number: int, rate: float, ema_weight: float) -> None:
        """Take one step.

        Args:
            inputs: the batch, on the model's device.
            number: the step's number since the run began, reported when it has to be skipped.
            rate: learning rate.
            ema_weight: how much of the new weights enters the average.
        """
        self.rate.fill_(rate)
        self.ema_weight.fill_(ema_weight)
        self.number.fill_(number)
        self.compute(inputs)

    def compute(self, inputs: Inputs) -> None:
        """The body: device work only, so that it can be captured."""
        for parameter in self.trainable:
            parameter.grad = None
        with autocast_of(self.recipe.precision, self.device):
            output = self.model(inputs.frames, inputs.correspondence)
        loss = self.loss(output.float(), inputs.target)
        loss.backward()
        gradients = [parameter.grad for parameter in self.trainable if parameter.grad is not None]
        loss = loss.detach().clone()
        self.processes.average([*gradients, loss])
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        finite = torch.isfinite(norm) & torch.isfinite(loss)  # ℓ1's gradient is finite even where the loss is not
        self.skip.copy_(~finite)
        torch._foreach_mul_(gradients, (self.recipe.clip / (norm + 1e-6)).clamp(max=1.0))
        self.optimizer.step()
        self.average()
        self.count(loss, norm, finite)

    @torch.no_grad()
    def average(self) -> None:
        """Move the averaged weights towards the new ones."""
        change = torch._foreach_sub(self.weights, self.averages)
        torch._foreach_mul_(change, self.ema_weight)
        torch._foreach_add_(self.averages, change)

    @torch.no_grad()
    def count(self, loss: Tensor, norm: Tensor, finite: Tensor) -> None:
        """Add this step to the sums that `progress` reads now and then."""
        good = finite.double()
        zero = torch.zeros_like(good)
        sums = (
            torch.where(finite, loss.double(), zero),
            torch.where(finite, norm.double(), zero),
            torch.ones_like(good),
        )
        self.sums.add_(torch.stack((*sums, 1 - good)))
        self.last_skipped.copy_(torch.where(finite, self.last_skipped, self.number))

    def progress(self) -> Progress:
        """Read and clear the sums; waits for the device."""
        loss, gradient, steps, skipped = self.sums.tolist()
        last = int(self.last_skipped)
        self.sums.zero_()
        self.last_skipped.fill_(-1)
        good = steps - skipped
        mean = (lambda total: total / good) if good else (lambda total: float("nan"))
        return Progress(mean(loss), mean(gradient), round(steps), round(skipped), last)

    def prepare(self, examples: Callable[[], list[Inputs]]) -> None:
        """Nothing to prepare: an eager step takes any batch."""

    def state(self) -> dict[str, Tensor]:
        """The optimiser's moments and counts by parameter name, for a checkpoint."""
        found = {}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                found[f"{key}.{name}"] = value
        return found

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Copy a checkpoint's moments and counts into place; captured steps go on using the same memory."""
        for name, value in self.state().items():
            value.copy_(state[name])
