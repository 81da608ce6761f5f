"""A larger network that begins as a smaller one: the same picture, more to learn with (docs/decisions/0055).

Channels that layer norms see are repeated, and what reads them shares its weights among the copies. Others, states and
ranks are added, with nothing that reads them yet. Further stages and blocks change nothing at first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor

from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import ModelConfig
from burstmamba.model.keyframe_stream import Upsampler

SIZES = ("channels", "state", "head_channels", "burst_channels", "burst_state", "psi_channels")
FREE = (*SIZES, "blocks", "reach", "drop_path")
"""Settings in which the two networks may differ."""
SHIFT = 1.0
"""Lifts what a leaky ReLU must not change above zero: a pixel's difference to its interpolation is smaller."""
UNLIKE = 1.0
"""How much the shares of copies differ, in the shares' standard deviation: with equal ones, copies would stay equal."""

# The axes of each weight, by the end of its name; the first fitting line counts. Letters are the sizes of `widths`.
# C: repeated, C/: read and shared, N: added as the larger network begins, N0: added as zeros, .: unchanged.
AXES = (
    (r"scan\.condition", ". R+N+N0 D/"),
    (r"scan\.delta_weight", ". D R0"),
    (r"scan\.A_log", ". D N"),
    (r"scan\.(delta_bias|D)", ". D"),
    (r"scan\.in_proj\.weight", "D+D C/"),
    (r"scan\.(depthwise|norm)\.\w+", "D"),
    (r"scan\.out_proj\.weight", "C D/"),
    (r"attention\.attention\.reduce\.weight", "Q C/"),
    (r"attention\.attention\.expand\.weight", "C Q0"),
    (r"attention\.attention\.reduce\.bias", "Q"),
    (r"attention\.reduce\.weight", "K C/"),
    (r"attention\.expand\.weight", "C K0"),
    (r"attention\.reduce\.bias", "K"),
    (r"keyframe\.shallow_convolution\.\w+", "C"),
    (r"keyframe\..*convolution\.weight", "C C/"),
    (r"upsampler\.enter\.weight", "H C/"),
    (r"upsampler\.enter\.bias", "H"),
    (r"upsampler\.steps\.\d\.weight", "S H/"),
    (r"upsampler\.steps\.\d\.bias", "S"),
    (r"upsampler\.leave\.weight", ". L/"),
    (r"upsampler\.leave\.bias", "."),
    (r"keyframe\..*", "C"),
    (r"psi\.project\.weight", "P " + "+".join(12 * ["B/"])),
    (r"psi\.project\.bias", "P"),
    (r"s6\.A_log", ". E M"),
    (r"s6\.(delta_bias|D)", ". E"),
    (r"s6\.in_proj\.weight", "E+E B/+F"),
    (r"s6\.heads\.weight", "E+M+M0+E+M+M0 P0"),
    (r"s6\.norm\.\w+", "E"),
    (r"s6\.out_proj\.weight", "B E/"),
    (r"refine\.weight", "B B/"),
    (r"projections\.\d\.weight", "C B/"),
    (r"projections\.\d\.bias", "C"),
    (r"burst\..*", "B"),
)
ADDED = "RNQKMP"
RESULTS = ("convolution.", "gas.s6.out_proj.", "refine.", "scan.out_proj.", "attention.expand.")
"""What a stage or a block adds to its input is made by these."""


def widths(config: ModelConfig) -> dict[str, int]:
    """Sizes of axes: channels, inner channels, states, ranks, upsampler, ψ, phase."""
    c, b = config.channels, config.burst_channels
    sizes = {"C": c, "D": 2 * c, "R": config.delta_rank, "N": config.state, "H": config.head_channels}
    return sizes | {"B": b, "E": 2 * b, "M": config.burst_state, "P": config.psi_channels, "F": config.phase_channels}


def larger(few: ModelConfig, many: ModelConfig) -> bool:
    """Whether a network can begin as a smaller one: wider somewhere, nowhere narrower, with as many stages or more."""
    if few.single() == many.single() and not few.burst_channels:
        return False  # the burst stream is what is new: nothing grows
    alike = {name: value for name, value in asdict(few).items() if name not in FREE}
    return (
        alike == {name: value for name, value in asdict(many).items() if name not in FREE}
        and few.selectivity == "wavelet"
        and all(getattr(few, name) <= getattr(many, name) for name in SIZES)
        and len(few.blocks) <= len(many.blocks)
        and (few.head_channels > 0 or many.head_channels == 0 or many.head_channels >= 3 * few.scale**2)
        and (any(getattr(few, name) < getattr(many, name) for name in SIZES) or few.blocks != many.blocks)
    )


@torch.no_grad()
def grow(state: Mapping[str, Tensor], few: ModelConfig, network: BurstMamba) -> dict[str, Tensor]:
    """Weights with which `network` begins as a smaller one.

    Nearly so: layer norms see some channels once more often than others, and a stage with fewer blocks than the smaller
    network's goes without those before the last.

    Args:
        state: the smaller network's weights.
        few: its configuration.
        network: the larger one, freshly made.
    """
    many, generator = network.config, torch.Generator().manual_seed(0)
    grown = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
    new_head = bool(many.head_channels) != bool(few.head_channels)
    for name, own in grown.items():
        source, constant = origin(name, few, many)
        if constant is not None:
            grown[name] = torch.full_like(own, constant)
        elif source in state and not (new_head and ".upsampler." in name):
            grown[name] = widen(name, state[source].cpu(), own, few, many, generator)
    return grown | (head(state, grown, network, generator) if new_head else {})


def origin(name: str, few: ModelConfig, many: ModelConfig) -> tuple[str, float | None]:
    """The smaller network's weight that one of ours begins as, and the constant that it begins as instead, if any.

    A stage that the smaller network lacks is the one before it once more, but adds nothing; so is a block.
    """
    found = re.fullmatch(r"(\w+\.(?:stages|projections))\.(\d+)\.(?:blocks\.(\d+)\.)?(.+)", name)
    if not found:
        return name, None
    kind, stage, block, rest = found[1], int(found[2]), found[3], found[4]
    stages = [g * len(few.blocks) // len(many.blocks) for g in range(len(many.blocks))]
    if block is None:
        source, new = f"{kind}.{stages[stage]}.{rest}", stages[stage] in stages[:stage]
    else:
        before, now = few.blocks[stages[stage]], many.blocks[stage]
        kept = [*range(min(before, now) - 1), *(max(1, now - before + 1) * [before - 1])]
        source, new = f"{kind}.{stages[stage]}.blocks.{kept[int(block)]}.{rest}", int(block) >= before
    if new and (rest.startswith(RESULTS) or kind == "burst.projections"):
        return source, 0.0
    return source, 1.0 if new and rest.endswith("_skip") else None


def widen(
    name: str, small: Tensor, own: Tensor, few: ModelConfig, many: ModelConfig, generator: torch.Generator
) -> Tensor:
    """A weight of the larger network: `small` with its axes grown as `AXES` says."""
    axes = next(axes for end, axes in AXES if re.search(end + "$", name)).split()
    grown, new, zero = small, torch.zeros_like(own, dtype=torch.bool), torch.zeros_like(own, dtype=torch.bool)
    for dim, axis in enumerate(axes):
        index, silent = sources(axis, small.shape[dim], own.shape[dim], widths(few), widths(many))
        grown = grown.index_select(dim, index.clamp(min=0))
        if "/" in axis:
            grown = share(grown, dim, index, generator)
        shape = [-1 if other == dim else 1 for other in range(own.ndim)]
        new |= (index < 0).view(shape)
        zero |= (silent & (index < 0)).view(shape)
    return torch.where(zero, 0.0, torch.where(new, own, grown))


def sources(axis: str, few: int, many: int, fewer: dict[str, int], more: dict[str, int]) -> tuple[Tensor, Tensor]:
    """For each index along an axis that of the smaller weight, -1 where it has none, and whether that is silent."""
    parts, found, silent, first = axis.split("+"), [], [], 0
    for part in parts:
        letter = part[0]
        few, many = (fewer[letter], more[letter]) if len(parts) > 1 else (few, many)
        index = torch.arange(many)
        if letter in ADDED:
            index = torch.where(index < few, index, -1 - first)
        elif letter == "S":  # pixels of a shuffle stay together
            pixels = many // more["H"]
            index = index // pixels % fewer["H"] * pixels + index % pixels
        else:
            index = index % few
        found.append(index + first)
        silent.append(torch.full((many,), part.endswith("0")))
        first += few
    return torch.cat(found), torch.cat(silent)


def share(weight: Tensor, dim: int, index: Tensor, generator: torch.Generator) -> Tensor:
    """A weight whose copies along an axis add up to what they were copied from; they are made unlike each other."""
    same = (index[:, None] == index).to(weight.dtype)
    same /= same.sum(dim=1, keepdim=True)  # (n, n): the mean over copies
    weight = weight.movedim(dim, -1) * same.diagonal()
    noise = UNLIKE * weight.std() * torch.randn(weight.shape, generator=generator)
    return (weight + noise - noise @ same).movedim(-1, dim)


def head(
    state: Mapping[str, Tensor], own: Mapping[str, Tensor], network: BurstMamba, generator: torch.Generator
) -> dict[str, Tensor]:
    """An upsampler in steps that begins as one that makes all pixels of a token at once.

    Its first channels are the pixels of a token, which the shuffles put in their places; the others are not read yet.
    """
    many, name, steps = network.config, "keyframe.upsampler.", network.keyframe.upsampler
    assert isinstance(steps, Upsampler)
    enter = own[f"{name}enter.weight"].clone()
    leave, bias = state[f"{name}leave.weight"].cpu(), state[f"{name}leave.bias"].cpu()
    index = torch.arange(many.channels) % leave.shape[1]
    enter[: len(leave)] = share(leave.index_select(1, index), 1, index, generator)
    lifted = own[f"{name}enter.bias"].clone()
    lifted[: len(bias)] = bias + SHIFT
    grown = {f"{name}enter.weight": enter, f"{name}enter.bias": lifted}
    side, shift = many.scale, SHIFT
    for number, factor in enumerate(steps.factors):
        weight, offset = (own[f"{name}steps.{number}.{kind}"].clone() for kind in ("weight", "bias"))
        pixels = torch.arange(many.out_channels * side**2).view(-1, factor, side // factor, factor, side // factor)
        order = pixels.permute(0, 2, 4, 1, 3).flatten()  # channel, place in a part, part: as a shuffle wants them
        weight[: len(order)], offset[: len(order)] = 0.0, -shift
        weight[torch.arange(len(order)), order, 1, 1] = 1.0
        grown |= {f"{name}steps.{number}.weight": weight, f"{name}steps.{number}.bias": offset}
        side, shift = side // factor, 0.0
    last = torch.zeros_like(own[f"{name}leave.weight"])
    last[range(many.out_channels), range(many.out_channels), 1, 1] = 1.0
    return grown | {f"{name}leave.weight": last, f"{name}leave.bias": torch.zeros(many.out_channels)}
