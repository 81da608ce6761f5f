"""Keyframe stream: MambaIR's residual state-space groups (RSSG), which hold most of the network's compute.

Inside, features are tokens (b, h, w, c), which is also the channels-last memory of a (b, c, h, w) map.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from burstmamba.kernels.normalization import advance, advance_and_normalize, gate, normalize
from burstmamba.kernels.selective_scan import PATHS, selective_scan
from burstmamba.model.config import ModelConfig
from burstmamba.model.lines import scan_lines
from burstmamba.model.padding import PaddedConvolution, project
from burstmamba.model.s6 import initial_A_log, initial_delta_bias


def convolve(convolution: nn.Module, tokens: Tensor) -> Tensor:
    """Apply a convolution to tokens (b, h, w, c) without leaving channels-last memory."""
    return convolution(tokens.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def channels_last(network: nn.Module) -> nn.Module:
    """The network with its convolutions' weights in the order of its tokens, which is what a GPU wants."""
    return network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] (torch's stubs lack it)


class SelectiveScan2d(nn.Module):
    """SS2D: every token exchanges information with all others along four serialisations of the image."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c, n, rank = config.channels, config.state, config.delta_rank
        d, k = 2 * c, len(PATHS)
        self.channels, self.splits, self.reach = c, (rank, n, n), config.reach
        self.in_proj = nn.Linear(c, 2 * d, bias=False)
        self.depthwise = nn.Conv2d(d, d, 3, padding=1, groups=d)
        self.condition = nn.Parameter(torch.empty(k, sum(self.splits), d).uniform_(-(d**-0.5), d**-0.5))
        self.delta_weight = nn.Parameter(torch.empty(k, d, rank).uniform_(-(rank**-0.5), rank**-0.5))
        self.delta_bias = nn.Parameter(initial_delta_bias(k, d))
        self.A_log = nn.Parameter(initial_A_log(k, d, n))
        self.D = nn.Parameter(torch.ones(k, d))
        self.norm = nn.LayerNorm(d)
        self.out_proj = nn.Linear(d, c, bias=False)
        self.folded: tuple[Tensor, Tensor | None] | None = None
        """`fold`'s results where weights no longer change."""
        for linear in (self.in_proj, self.out_proj):
            nn.init.trunc_normal_(linear.weight, std=0.02)

    @property
    def width(self) -> int:
        """Channels in which tokens are taken without a copy."""
        return self.in_proj.weight.shape[1]

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, h, w, c or more) → (b, h, w, c)."""
        # Two products: halves of one would be copied by the convolution, forward and backward.
        x, z = (project(tokens, weight, 2 * self.channels) for weight in self.in_proj.weight.chunk(2))  # (b, h, w, d)
        x = F.silu(convolve(self.depthwise, x))
        A, weight = self.folded or self.fold(x.is_cuda)
        narrow = self.delta_weight if weight is None else None
        delta, B, C = (tensor[:, None] for tensor in self.select(x, weight))
        arguments = x[:, None], delta, A, B, C, self.D, self.delta_bias
        if self.reach:
            y = scan_lines(*arguments, reach=self.reach, delta_weight=narrow)[:, 0]
        else:
            y = selective_scan(*arguments, paths=PATHS, delta_weight=narrow)[:, 0]
        return project(normalize(y, self.norm, gate=z), self.out_proj.weight, self.channels)

    def fold(self, gpu: bool) -> tuple[Tensor, Tensor | None]:
        """What depends on weights alone: A, and for a GPU the matrix that makes Δ, B and C of a token.

        One large product: matrix units are idle in two narrow ones.
        """
        rank, A = self.splits[0], -torch.exp(self.A_log.float())
        if not gpu:
            return A, None
        with torch.autocast("cuda", enabled=False):
            weight = torch.cat((self.delta_weight @ self.condition[:, :rank], self.condition[:, rank:]), dim=1)
        return A, weight.flatten(0, 1)

    def select(self, x: Tensor, weight: Tensor | None) -> tuple[Tensor, ...]:
        """Δ (b, k, h, w, d) before softplus, B and C (b, k, h, w, n) of tokens (b, h, w, d).

        Without the composed matrix, Δ is as narrow as its rank: the scan widens it.
        """
        matrix, splits = self.condition.flatten(0, 1), self.splits
        if weight is not None:
            matrix, splits = weight, (x.shape[-1], *self.splits[1:])
        selection = F.linear(x, matrix).unflatten(-1, (len(PATHS), -1)).permute(0, 3, 1, 2, 4)
        return selection.split(splits, dim=-1)


class ChannelAttention(nn.Module):
    """A gate for each channel, computed from the image's mean."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeeze = max(4, round(channels / 30))
        self.reduce = nn.Conv2d(channels, squeeze, 1)
        self.expand = nn.Conv2d(squeeze, channels, 1)

    def forward(self, image: Tensor) -> Tensor:
        """(b, c, h, w) → (b, c)."""
        return gate(image.mean(dim=(2, 3), dtype=torch.float32), self.reduce, self.expand)


class ChannelAttentionBlock(nn.Module):
    """CAB: a convolutional bottleneck, and channel attention's gates for what it makes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.reduce = PaddedConvolution(channels, channels // 3)
        self.expand = PaddedConvolution(channels // 3, channels)
        self.attention = ChannelAttention(channels)

    @property
    def width(self) -> int:
        """Channels in which tokens are taken without a copy."""
        return self.reduce.weight.shape[1]

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(b, h, w, c or more) → (b, h, w, c) and (b, c)."""
        image = self.expand(F.gelu(self.reduce(tokens.permute(0, 3, 1, 2))))[:, : self.channels]
        return image.permute(0, 2, 3, 1), self.attention(image)


class Block(nn.Module):
    """x·skip₁ + DropPath(SS2D(LN x)), then x·skip₂ + CAB(LN x)."""

    keep_path: Tensor

    def __init__(self, config: ModelConfig, drop_path: float) -> None:
        super().__init__()
        self.drops = config.drop_path > 0
        # A tensor, so that all blocks share what is compiled for one.
        self.register_buffer("keep_path", torch.tensor(1 - drop_path), persistent=False)
        self.scan_norm = nn.LayerNorm(config.channels)
        self.scan = SelectiveScan2d(config)
        self.scan_skip = nn.Parameter(torch.ones(config.channels))
        self.attention_norm = nn.LayerNorm(config.channels)
        self.attention = ChannelAttentionBlock(config.channels)
        self.attention_skip = nn.Parameter(torch.ones(config.channels))

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, h, w, c) → (b, h, w, c)."""
        scanned = self.scan(normalize(tokens, self.scan_norm, width=self.scan.width))
        if self.training and self.drops:
            keep = torch.rand(tokens.shape[0], 1, 1, 1, device=tokens.device) < self.keep_path
            scanned = scanned * (keep / self.keep_path).to(scanned.dtype)
        tokens, normal = advance_and_normalize(
            tokens, self.scan_skip, scanned, self.attention_norm, width=self.attention.width
        )
        return advance(tokens, self.attention_skip, *self.attention(normal))


class ResidualStateSpaceGroup(nn.Module):
    """RSSG: x + conv(blocks(x))."""

    def __init__(self, config: ModelConfig, drop_paths: list[float]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config, drop_path) for drop_path in drop_paths)
        self.convolution = nn.Conv2d(config.channels, config.channels, 3, padding=1)

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, h, w, c) → (b, h, w, c)."""
        x = tokens
        for block in self.blocks:
            x = block(x)
        return tokens + convolve(self.convolution, x)


class Upsampler(nn.Module):
    """φ_upsample: convolutions and pixel shuffles to `scale` times the size."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.head_channels
        self.factors = {2: (2,), 3: (3,), 4: (2, 2)}[config.scale]
        self.enter = nn.Conv2d(config.channels, width, 3, padding=1)
        self.steps = nn.ModuleList(nn.Conv2d(width, factor**2 * width, 3, padding=1) for factor in self.factors)
        self.leave = nn.Conv2d(width, config.out_channels, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """(b, C, h, w) → (b, out, s·h, s·w)."""
        image = F.leaky_relu(self.enter(image), 0.01)
        for step, factor in zip(self.steps, self.factors, strict=True):
            image = F.pixel_shuffle(step(image), factor)
        return self.leave(image)


class DirectUpsampler(nn.Module):
    """φ_upsample of small networks: one convolution computes all output pixels."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = config.scale
        self.leave = nn.Conv2d(config.channels, config.scale**2 * config.out_channels, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """(b, C, h, w) → (b, out, s·h, s·w)."""
        return F.pixel_shuffle(self.leave(image), self.scale)


class KeyframeStream(nn.Module):
    """Single-image super-resolution of the keyframe: φ_shallow, G groups, φ_upsample."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c, total = config.channels, sum(config.blocks)
        rates = [config.drop_path * i / max(total - 1, 1) for i in range(total)]
        starts = [sum(config.blocks[:g]) for g in range(len(config.blocks))]
        self.shallow_convolution = nn.Conv2d(config.image_planes, c, 3, padding=1)
        self.shallow_norm = nn.LayerNorm(c)
        self.stages = nn.ModuleList(
            ResidualStateSpaceGroup(config, rates[start : start + count])
            for start, count in zip(starts, config.blocks, strict=True)
        )
        self.norm = nn.LayerNorm(c)
        self.convolution = nn.Conv2d(c, c, 3, padding=1)
        self.upsampler = Upsampler(config) if config.head_channels else DirectUpsampler(config)

    def shallow(self, keyframe: Tensor) -> Tensor:
        """φ_shallow: centred image planes (b, in, h, w) → tokens (b, h, w, C)."""
        return convolve(self.shallow_convolution, keyframe.permute(0, 2, 3, 1))

    def upsample(self, tokens: Tensor, shallow: Tensor) -> Tensor:
        """φ_upsample, with the long skip from the shallow features: tokens → (b, out, s·h, s·w), around 0."""
        features = convolve(self.convolution, self.norm(tokens)) + shallow
        return self.upsampler(features.permute(0, 3, 1, 2))
