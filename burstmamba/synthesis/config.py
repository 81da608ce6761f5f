"""What kind of burst is made: one frozen dataclass, three presets."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from burstmamba.errors import InputError

SCALE = 4
"""HR pixels in one LR pixel, in each direction."""
LOGARITHMIC = ("shift", "shot", "read_ratio", "object_radius", "object_speed", "map_error")
"""Pairs between which is drawn log-uniformly."""
SIGNED = ("sharpening", "object_leak")
"""Pairs that may be negative."""


@dataclass(frozen=True)
class SynthesisConfig:
    """How a photograph becomes a burst. Pairs are (lowest, highest); probabilities are per burst."""

    pipeline: str = "handheld-rgb"
    """`"handheld-rgb"`, `"handheld-raw"` or `"synburst"`."""
    frames: int = 14

    # Motion of the camera, in LR pixels and degrees, frames 1… against the keyframe.
    shift: tuple[float, float] = (0.5, 8.0)
    """Largest shift of a burst, log-uniform."""
    rotation: float = 1.0
    perspective: float = 6e-6
    """Perspective terms, per HR pixel."""
    rolling_shutter: float = 2e-3
    """Shift from one row to the next while the sensor is read (constant velocity, hence a shear)."""

    # Lens.
    lens_blur: tuple[float, float] = (0.5, 1.2)
    """Gaussian sigma in HR pixels."""
    anisotropy: float = 1.3
    aliased: float = 0.0
    """Probability of a perfect lens before pixels that collect light only in the middle 2×2 of their 4×4, as in
    SyntheticBurst."""

    # Sensor.
    shot: tuple[float, float] = (1e-4, 1.5e-2)
    """Log-uniform; the variance of a linear value x is x·shot + read."""
    low_noise: float = 1.6
    """Power on the uniform draw: above 1, more of the bursts are clean."""
    read_ratio: tuple[float, float] = (3e-3, 3e-2)
    """read / shot."""
    exposure_drift: float = 0.03
    """Standard deviation of each frame's gain."""

    # The camera's own processing (RGB only). Other bursts: linear light, noise, sRGB, 8 bit.
    processed: float = 0.45
    """Probability that the camera's processing is simulated at all; the next ones are shares of it."""
    demosaicked: float = 0.75
    jpeg: float = 0.6
    jpeg_quality: tuple[float, float] = (80.0, 100.0)
    chroma_420: float = 0.6
    tone: float = 0.4
    """Strongest blend towards an S-shaped tone curve."""
    sharpening: tuple[float, float] = (-0.35, 0.35)
    """Unsharp mask (positive) to mild smoothing (negative)."""
    sixteen_bit: float = 0.15
    """Frames without JPEG that keep 16 bits."""

    # Nuisance.
    moving_object: float = 0.35
    object_radius: tuple[float, float] = (3.0, 16.0)
    object_speed: tuple[float, float] = (0.1, 2.2)
    """LR pixels a frame."""
    blurred_frame: float = 0.08
    unrelated_frame: float = 0.08
    duplicated_frame: float = 0.05
    repeated_keyframe: float = 0.06
    """Every frame is the keyframe once more, as in a slowed-down clip: nothing to gain, and nothing may be lost."""
    tripod: float = 0.05
    hot_pixels: float = 0.05
    saturated_lights: float = 0.1
    changing_light: float = 0.12
    """Colour and brightness of the light change from frame to frame, smoothly over the picture: the keyframe counts."""

    # What the network is told about the motion.
    maps: str = "estimated"
    """`"exact"`, or `"estimated"`: wrong in the ways an estimator is, with an imperfect confidence."""
    map_error: tuple[float, float] = (0.01, 0.15)
    """Standard deviation of a frame's global error, LR pixels, log-uniform."""
    local_map_error: float = 0.1
    """Largest standard deviation of the smooth local error, LR pixels."""
    object_missed: float = 0.5
    """Probability that the estimator does not see the moving object at all."""
    object_leak: tuple[float, float] = (-1.0, 2.5)
    """How far the object's motion spreads beyond its edge, LR pixels."""
    wrong_map: float = 0.08
    """Probability that one frame is matched to the wrong place."""
    overconfident: float = 0.1
    """Probability that the confidence says 1 everywhere."""

    # SyntheticBurst only.
    eight_bit: bool = True
    """Quantise to 8 bits in linear light before the geometry, as that benchmark does."""

    def __post_init__(self) -> None:
        if self.pipeline not in PIPELINES:
            raise InputError(f"pipeline must be one of {', '.join(PIPELINES)}, got {self.pipeline!r}.")
        if self.maps not in ("exact", "estimated"):
            raise InputError(f"maps must be exact or estimated, got {self.maps!r}.")
        if self.frames < 1:
            raise InputError(f"a burst needs at least one frame, got frames={self.frames}.")
        for name in (*LOGARITHMIC, *SIGNED, "lens_blur", "jpeg_quality"):
            _check_range(name, *getattr(self, name))
        for name in SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must lie between 0 and 1, got {getattr(self, name):g}.")
        for name in ("rotation", "perspective", "rolling_shutter", "exposure_drift", "low_noise", "local_map_error"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name):g}.")
        if not self.anisotropy >= 1:
            raise InputError(f"anisotropy is the longer blur over the shorter, at least 1, got {self.anisotropy:g}.")

    @property
    def centres(self) -> str:
        """Where LR pixels sit on the HR grid: `"half-pixel"` (i covers 4i…4i+3) or `"corner"` (i lies on 4i)."""
        return "corner" if self.pipeline == "synburst" else "half-pixel"

    def margin(self, lr_size: int) -> int:
        """HR pixels needed around a view of lr_size pixels so that moved frames see the photograph, not its border."""
        if self.pipeline == "synburst":
            return 24
        turned = 0.06 * lr_size  # rotation, rolling shutter and perspective move the corners
        return 2 * math.ceil((SCALE * self.shift[1] + 12 + turned) / 2)

    def source_size(self, lr_size: int) -> int:
        """Side of the photographs that give bursts of lr_size × lr_size pixels."""
        return SCALE * lr_size + 2 * self.margin(lr_size)

    def lr_size(self, source_size: int) -> int:
        """The largest even LR size for photographs with this side: the inverse of `source_size`."""
        size = source_size // SCALE // 2 * 2
        while size > 0 and self.source_size(size) > source_size:
            size -= 2
        if size < 8:
            needed = self.source_size(8)
            raise InputError(
                f"photographs of {source_size} pixels are too small for a burst; at least {needed} needed."
            )
        return size

    def without_nuisance(self) -> SynthesisConfig:
        """No objects, no bad frames, nothing saturated: camera motion, optics, noise and processing stay."""
        return replace(
            self,
            moving_object=0.0,
            blurred_frame=0.0,
            unrelated_frame=0.0,
            duplicated_frame=0.0,
            repeated_keyframe=0.0,
            tripod=0.0,
            hot_pixels=0.0,
            saturated_lights=0.0,
            changing_light=0.0,
            wrong_map=0.0,
        )


def _check_range(name: str, low: float, high: float) -> None:
    """Refuse what cannot be drawn from."""
    if not low <= high:
        raise InputError(f"{name} is a pair (lowest, highest), got ({low:g}, {high:g}); exchange them.")
    if low < 0 and name not in SIGNED:
        raise InputError(f"{name} must be at least 0, got ({low:g}, {high:g}).")
    if low == 0 < high and name in LOGARITHMIC:
        raise InputError(
            f"{name} is drawn log-uniformly, got (0, {high:g}); begin above 0, or set both to 0 to be without it."
        )
    if high == 0 and name == "object_radius":
        raise InputError("object_radius must be more than 0; moving_object=0 leaves objects out.")


SHARES = (
    *("aliased", "processed", "demosaicked", "jpeg", "chroma_420", "tone", "sixteen_bit"),
    *("moving_object", "blurred_frame", "unrelated_frame", "duplicated_frame", "repeated_keyframe", "tripod"),
    *("hot_pixels", "saturated_lights", "changing_light", "object_missed", "wrong_map", "overconfident"),
)
"""Probabilities, and the share of a tone curve."""
PIPELINES = ("handheld-rgb", "handheld-raw", "synburst")


def synthesis_preset(name: str) -> SynthesisConfig:
    """The configuration of one pipeline: handheld-rgb, handheld-raw or synburst."""
    presets = {
        "handheld-rgb": SynthesisConfig(),
        "handheld-raw": SynthesisConfig(pipeline="handheld-raw"),
        "synburst": SynthesisConfig(
            pipeline="synburst", shift=(6.0, 6.0), perspective=0.0, rolling_shutter=0.0, shot=(1e-4, 0.012), low_noise=1
        ),
    }
    if name not in presets:
        raise InputError(f"no synthesis preset {name!r}; choose one of {', '.join(presets)}.")
    return presets[name]
