"""BurstMamba: a strong keyframe stream, fed with sub-pixel evidence by a light burst stream (Algorithm 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from burstmamba.burst import check_frames
from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError
from burstmamba.kernels.selective_scan import register_operators
from burstmamba.model.base_image import base_image, color_masks
from burstmamba.model.beside import Beside
from burstmamba.model.burst_stream import BurstStream
from burstmamba.model.config import ModelConfig
from burstmamba.model.keyframe_stream import KeyframeStream

RGB_MEAN = (0.4488, 0.4371, 0.4040)


def image_mean(config: ModelConfig) -> Tensor:
    """(1, 3, 1, 1): what is subtracted from RGB frames and added back; 0 for a mosaic."""
    return torch.tensor(RGB_MEAN if config.in_channels == 3 else (0.0, 0.0, 0.0)).view(1, 3, 1, 1)


class BurstMamba(nn.Module):
    """The network. With one frame the burst stream is detached and it is single-image super-resolution."""

    mean: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        register_operators()
        self.config = config
        self.keyframe = KeyframeStream(config)
        self.burst = BurstStream(config) if config.burst_channels else None
        self.register_buffer("mean", image_mean(config), persistent=False)
        self.recompute_stages = False
        """Trade time for memory in training: store only each stage's input."""

    def forward(self, frames: Tensor, correspondence: Correspondence | None = None) -> Tensor:
        """Reconstruct the keyframe.

        Args:
            frames: (b, l, c, h, w) in [0, 1], keyframe first.
            correspondence: maps of all l frames; None means that nothing moved.

        Returns:
            (b, 3, s·h, s·w), not clamped.
        """
        correspondence = self._check(frames, correspondence)
        planes, burst = self._planes(frames), self.burst if frames.shape[1] > 1 else None

        shallow = self.keyframe.shallow(planes[:, 0])  # (b, h, w, C)
        s = self.keyframe.shallow_norm(shallow)
        beside = Beside(planes)
        with beside:
            f = burst.shallow(planes) if burst else None  # (b, l, h, w, C′)
        for g, rssg in enumerate(self.keyframe.stages):
            s = self._run(rssg, s)
            if burst:
                with beside:
                    f = self._run(burst.stages[g], f, correspondence)
                    prior = burst.project(g, f)
                s = s + beside.join(prior)
        return self.keyframe.upsample(s, shallow) + self._base(frames[:, 0])

    def _planes(self, frames: Tensor) -> Tensor:
        """What the first convolutions see: frames around 0, a mosaic spread over three colour planes if so set."""
        if self.config.masked_mosaic:
            return frames * color_masks(frames)
        return frames - self.mean if self.config.in_channels == 3 else frames

    def _base(self, keyframe: Tensor) -> Tensor:
        """What the upsampler's output is added to: the mean that was subtracted, or the interpolated keyframe."""
        if self.config.global_skip == "none":
            return self.mean
        with torch.autocast(keyframe.device.type, enabled=False):  # or a mosaic's colours would be rounded
            return base_image(keyframe, self.config.scale, self.config.centres)

    def _run(self, stage: nn.Module, *inputs: object) -> Tensor:
        if self.recompute_stages and torch.is_grad_enabled():
            return checkpoint(stage, *inputs, use_reentrant=False)
        return stage(*inputs)

    def _check(self, frames: Tensor, correspondence: Correspondence | None) -> Correspondence:
        check_frames(frames, rank=5)
        if frames.shape[2] != self.config.in_channels:
            kind = "RGB frames (3 channels)" if self.config.in_channels == 3 else "a mosaic (1 channel)"
            raise InputError(f"this network takes {kind}, got {frames.shape[2]} channel(s); choose the other model.")
        if correspondence is None:
            return Correspondence.identity(frames)
        b, l, _, h, w = frames.shape
        if tuple(correspondence.to_frame.shape) != (b, l, 2, h, w):
            raise InputError(
                f"correspondence maps must be {(b, l, 2, h, w)} for frames {tuple(frames.shape)}, "
                f"got {tuple(correspondence.to_frame.shape)}; crop and select both together."
            )
        return correspondence

    def freeze(self, prefix: str) -> int:
        """Stop training the parameters whose names start with `prefix`; returns how many tensors that were."""
        chosen = [parameter for name, parameter in self.named_parameters() if name.startswith(prefix)]
        for parameter in chosen:
            parameter.requires_grad_(False)
        return len(chosen)
