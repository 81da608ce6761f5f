"""The one entry point of the synthesis."""

from __future__ import annotations

import torch
from torch import Tensor

from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.synthesis.config import SynthesisConfig
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.handheld import synthesize_handheld
from burstmamba.synthesis.synburst import synthesize_synburst


@torch.no_grad()
def synthesize_burst(
    photos: Tensor, config: SynthesisConfig, generator: torch.Generator, *, cameras: bool = False
) -> Sample:
    """Bursts as a moving hand would have taken them of these photographs.

    Args:
        photos: (b, 3, H, W) sRGB in [0, 1] on the device of the work, with sides from `config.source_size`.
        config: what kind of bursts; see `synthesis_preset`.
        generator: on the same device, or on the CPU for bursts that are the same on every device.
        cameras: also describe the cameras on the host, for which the GPU is waited for.

    Returns:
        A sample of b bursts; the keyframe shows the centre of its photograph.
    """
    if photos.ndim != 4 or photos.shape[1] != 3 or not photos.is_floating_point():
        raise InputError(f"photographs must be float (b, 3, H, W) in [0, 1], got {photos.dtype} {tuple(photos.shape)}.")
    dice = Dice(generator, photos.device)
    if config.pipeline == "synburst":
        return synthesize_synburst(photos, config, dice, cameras=cameras)[0]
    return synthesize_handheld(photos, config, dice, cameras=cameras)
