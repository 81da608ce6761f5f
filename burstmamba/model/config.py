"""The network as numbers: one frozen configuration, and the presets built from it."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict, dataclass, fields, replace
from math import ceil

from burstmamba.errors import InputError


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of a BurstMamba network; the defaults are the paper's RGB network."""

    in_channels: int = 3
    """3 for RGB frames, 1 for a mosaic."""
    out_channels: int = 3
    scale: int = 4
    """2, 3 or 4."""
    centres: str = "half-pixel"
    """Where LR pixel i lies in the output: `half-pixel` = centre of its 4×4 block, `corner` = on HR pixel 4i."""
    channels: int = 180
    """C, the width of the keyframe stream."""
    blocks: tuple[int, ...] = (6, 6, 6, 6, 6, 6)
    """Blocks of each RSSG; its length is G, the number of stages."""
    state: int = 16
    """N of the keyframe stream's scans."""
    head_channels: int = 64
    """Width of the upsampler; 0 makes all output pixels by one convolution and one pixel shuffle."""
    reach: float = 0.0
    """Tokens in which a state fades to 1/e on its row or column; 0 takes one through the image, as the paper; 0013."""
    drop_path: float = 0.1
    """Probability of dropping the last block's scan branch in training; grows linearly from 0."""
    burst_channels: int = 45
    """C′, the width of the burst stream; 0 leaves it out (a single-image network)."""
    burst_state: int = 16
    """N of the burst stream's scans."""
    psi_channels: int = 32
    """Width of ψ's compact projection."""
    selectivity: str = "wavelet"
    """`wavelet` (ψS6) or `content` (plain S6)."""
    use_confidence: bool = False
    """Whether a correspondence's confidence scales Δ. Off in the paper; see docs/decisions/0007."""
    use_phase: bool = False
    """Whether gathered tokens carry the sub-pixel phase they were sampled at. Off in the paper; docs/decisions/0009."""
    masked_mosaic: bool = False
    """Whether a mosaic enters as three sparse colour planes, which tell its phase. Off in the paper; see 0010."""
    global_skip: str = "none"
    """`bicubic` adds the interpolated keyframe to the output. Off in the paper; see docs/decisions/0008."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        choices = {
            "in_channels": (1, 3),
            "scale": (2, 3, 4),
            "centres": ("half-pixel", "corner"),
            "selectivity": ("wavelet", "content"),
            "global_skip": ("none", "bicubic"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(map(str, allowed))}, got {getattr(self, name)!r}.")
        if self.out_channels != 3:
            raise InputError(f"out_channels must be 3, for red, green and blue, got {self.out_channels}.")
        if self.masked_mosaic and self.in_channels != 1:
            raise InputError("masked_mosaic needs in_channels = 1.")
        if not self.blocks or min(self.blocks) < 1:
            raise InputError(f"blocks must name at least one block for each stage, got {self.blocks}.")
        if min(self.channels, self.state, self.burst_state, self.psi_channels) < 1:
            raise InputError("channel and state counts must be at least 1.")
        if min(self.head_channels, self.burst_channels) < 0:
            raise InputError("head_channels and burst_channels must be at least 0.")
        if not 0 <= self.drop_path < 1:
            raise InputError(f"drop_path must be in [0, 1), got {self.drop_path}.")
        if not 0 <= self.reach < float("inf"):
            raise InputError(f"reach must be 0 or a number of tokens, got {self.reach}.")

    @property
    def image_planes(self) -> int:
        """Channels that the first convolutions see."""
        return 3 if self.masked_mosaic else self.in_channels

    @property
    def phase_channels(self) -> int:
        """Channels that tell a gathered token its sub-pixel phase: a sine and a cosine in x and y for each period."""
        return 4 * len(self.phase_periods) if self.use_phase else 0

    @property
    def phase_periods(self) -> tuple[int, ...]:
        """Periods of the sampling pattern in pixels: the pixel and, in a mosaic, its 2×2 cell."""
        return (1,) if self.in_channels == 3 else (1, 2)

    @property
    def delta_rank(self) -> int:
        """Rank of Δ's projection in the keyframe stream."""
        return ceil(self.channels / 16)

    def single(self) -> ModelConfig:
        """The same network without its burst stream."""
        return replace(self, burst_channels=0)

    def to_json(self) -> str:
        """The configuration as stored in a checkpoint."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ModelConfig:
        """Read a stored configuration; unknown settings are refused by name."""
        values = json.loads(text)
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise InputError(
                f"unknown model setting(s) {', '.join(sorted(unknown))}: the file needs a newer burstmamba."
            )
        return cls(**values)


PAPER = ModelConfig()
# The CPU default. Widths are multiples of 8; what differs from the paper serves short training and real photographs.
LIGHT = ModelConfig(
    channels=48,
    blocks=(7, 7, 7, 7),
    state=8,
    head_channels=0,
    reach=16.0,
    drop_path=0.0,
    burst_channels=24,
    burst_state=8,
    psi_channels=16,
    use_confidence=True,
    use_phase=True,
    global_skip="bicubic",
)
TINY = replace(LIGHT, channels=16, blocks=(1, 1), state=4, burst_channels=8, burst_state=4, psi_channels=8)

PRESETS = {
    "paper": PAPER,
    "paper-raw": replace(PAPER, in_channels=1),
    "light": LIGHT,
    "light-raw": replace(LIGHT, in_channels=1, masked_mosaic=True),
    "tiny": TINY,
    "tiny-raw": replace(TINY, in_channels=1, masked_mosaic=True),
    # The compute split of the paper's last ablation; docs/decisions/0006 says why there are two readings.
    "balanced": replace(PAPER, channels=138, burst_channels=80),
    "balanced-literal": replace(PAPER, channels=138, burst_channels=60),
    "light-balanced": replace(LIGHT, channels=40, burst_channels=32, psi_channels=8),
}


def preset(name: str) -> ModelConfig:
    """The configuration of that name; `NAME-single` is its single-image variant."""
    base = name.removesuffix("-single")
    if base not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"unknown preset {name!r}; known: {', '.join(PRESETS)} and each with -single.{hint}")
    return PRESETS[base] if base == name else PRESETS[base].single()
