"""What an estimator makes of the true motion: maps with its typical errors, and a confidence that is not perfect.

The network learns from these how far maps and confidences can be trusted.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.correspondence.field import Correspondence, sample_at
from burstmamba.synthesis.config import SynthesisConfig
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.motion import Scene, inside


def estimated(
    seen: tuple[Tensor, Tensor],
    grid: Tensor,
    exact: Correspondence,
    clean: Tensor,
    noise: Tensor,
    foreign: Tensor,
    config: SynthesisConfig,
    dice: Dice,
) -> Correspondence:
    """Maps and confidence as an estimator would give them.

    Args:
        seen: (b, l, 2, h, w) twice: the motion that the estimator notices, to the frames and back.
        grid: (2, h, w) centred LR pixels.
        exact: the true maps.
        clean: (b, l, 3, h, w) noise-free linear frames, in which wrong matches show.
        noise: (b,) standard deviation of the noise, which hides wrong matches.
        foreign: (b, l) bool: frames that cannot be matched at all.
    """
    to_frame, to_keyframe = seen
    error = _error(dice, tuple(to_frame.shape), foreign, config)
    to_frame, to_keyframe = to_frame + error, to_keyframe - error
    confidence = _confidence(to_frame, grid, exact, clean, noise, config, dice)
    return Correspondence(to_frame, to_keyframe, confidence)


def as_seen(scene: Scene, config: SynthesisConfig, dice: Dice) -> tuple[Tensor, Tensor]:
    """Background maps with the object's motion inside an edge that is off by a pixel or two, or without the object."""
    b = len(scene.behind)
    leak = dice.uniform(b, low=config.object_leak[0], high=config.object_leak[1])
    leak = torch.where(dice.chance(config.object_missed, b), -1e5, leak)[:, None, None, None, None]
    in_keyframe = scene.from_edge < leak
    in_frame = scene.frames_from_edge < leak
    to_frame = torch.where(in_keyframe, scene.object_ahead, scene.ahead) - scene.grid
    to_keyframe = torch.where(in_frame, scene.object_points, scene.behind) - scene.grid
    return to_frame, to_keyframe


def _error(dice: Dice, shape: tuple[int, ...], foreign: Tensor, config: SynthesisConfig) -> Tensor:
    """(b, l, 2, h, w) LR pixels: one error for a whole frame, a smooth local one, and sometimes a wrong place."""
    b, l, _, h, w = shape
    later = torch.arange(l, device=dice.device)[None, :] > 0  # (1, l)
    whole = dice.normal(b, l, 2) * dice.log_uniform(b, 1, 1, low=config.map_error[0], high=config.map_error[1])
    lost = foreign | (dice.later_frame(b, l) & dice.chance(config.wrong_map, b, 1))
    # A lost frame is matched several pixels off, as a repetitive texture or a failed search would.
    whole = whole + dice.normal(b, l, 2) * 4 * lost[..., None]
    coarse = dice.normal(b * l, 2, 4, 4).view(b, l, 2, 4, 4)
    coarse = coarse * dice.uniform(b, 1, 1, 1, 1, high=config.local_map_error) * (1 + 8 * lost[..., None, None, None])
    local = F.interpolate(coarse.flatten(0, 1), size=(h, w), mode="bilinear", align_corners=True).view(b, l, 2, h, w)
    return (whole[..., None, None] + local) * later[..., None, None, None]


def _confidence(
    to_frame: Tensor,
    grid: Tensor,
    exact: Correspondence,
    clean: Tensor,
    noise: Tensor,
    config: SynthesisConfig,
    dice: Dice,
) -> Tensor:
    """(b, l, 1, h, w): near 1 where the match is right, lower where it is wrong and the pictures show it."""
    b, l = clean.shape[:2]
    assert exact.confidence is not None
    distance = (to_frame - exact.to_frame).square().sum(2, keepdim=True)
    right = exact.confidence * torch.exp(-2 * distance)
    # Square roots make noise and differences comparable in light and shade.
    tones = clean.clamp(min=0).sqrt()
    seen = sample_at(tones.flatten(0, 1), to_frame.flatten(0, 1)).view_as(tones)
    residual = (seen - tones[:, :1]).abs().amax(2)  # (b, l, h, w)
    residual = F.avg_pool2d(residual, 3, stride=1, padding=1, count_include_pad=False)[:, :, None]
    shows = (residual / (0.03 + 1.5 * noise[:, None, None, None, None])).square()
    shows = shows / (1 + shows)
    doubt = 0.2 * dice.uniform(b, l, 1, 1, 1).pow(3)  # right matches are sometimes doubted a little
    confidence = 1 - shows * (1 - right) - shows * right * doubt
    confidence = F.avg_pool2d(confidence.flatten(0, 2)[:, None], 3, stride=1, padding=1, count_include_pad=False)
    confidence = confidence.view_as(right) + 0.02 * dice.normal(b, l, 1, 1, 1)
    certain = dice.chance(config.overconfident, b, 1, 1, 1, 1)
    confidence = torch.where(certain, 1.0, confidence)
    # Every estimator knows where a frame ends, and compares windows that reach beyond it.
    confidence = confidence * inside(to_frame + grid, fade=2.0)
    first = (torch.arange(l, device=clean.device) == 0)[None, :, None, None, None]
    return torch.where(first, 1.0, confidence).clamp(0, 1)
