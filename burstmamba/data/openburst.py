"""OpenBurst: a fixed benchmark made of photographs, the same on every machine, never used in training.

Frames are rendered here at high resolution, one by one: slower than `synthesize_burst`, with nothing approximated.
"""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.data.openburst_photographs import PHOTOGRAPHS, digest
from burstmamba.data.photographs import check_distinct, find_photographs, photograph_tensor
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.synthesis import SCALE, handheld, synthesis_preset
from burstmamba.synthesis.colour import to_linear, to_srgb
from burstmamba.synthesis.constant import constant
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.motion import MovingObject, Scene, centred_grid, homography, project
from burstmamba.synthesis.optics import convolve, gaussian_kernels
from burstmamba.synthesis.sensor import add_noise
from burstmamba.synthesis.synburst import BORDER, synthesize_synburst

SUBSETS = ("still", "noisy", "moving", "badframe", "raw", "raw-synburst")
FRAMES = 14
"""Frames of the benchmark's bursts; longer ones begin with the same frames."""
FURTHER = 1 << 40
"""Added to a burst's seed for the frames beyond."""
LARGEST = (1 << 64) - FURTHER
"""Seeds are below this: torch takes 64 bits, and a file's name may hold more digits."""
VIEW = 640
"""Largest side of the target, HR pixels."""
NOISE = {
    "still": (2e-4, 2e-6),
    "noisy": (6e-3, 1e-4),
    "moving": (5e-4, 5e-6),
    "badframe": (5e-4, 5e-6),
    "raw": (1e-3, 1e-5),
}
"""Shot and read of each subset."""
DISC_RADIUS = 90 / SCALE
BAD_BLUR = 9.0
SLACK = 2
"""LR pixels rendered beyond the view, so that the lens sees what lies there."""


@dataclass(frozen=True)
class OpenBurst:
    """The bursts of a folder of photographs; `load` makes one when it is needed."""

    photographs: tuple[Path, ...]

    @classmethod
    def open(cls, folder: Path | str) -> OpenBurst:
        """The benchmark over the photographs below `folder`, in the order of their names."""
        paths = find_photographs(folder)
        check_distinct((path.stem, path) for path in paths)
        return cls(tuple(paths))

    @property
    def names(self) -> tuple[str, ...]:
        """One for each photograph: its file's name without the ending."""
        return tuple(path.stem for path in self.photographs)

    def unofficial(self) -> tuple[str, ...]:
        """Why scores on these photographs are not the published benchmark's; empty when they are."""
        found = {path.name: digest(path) for path in self.photographs}
        reasons = [f"{name} is missing" for name in PHOTOGRAPHS if name not in found]
        reasons += [f"{name} is not one of its photographs" for name in found if name not in PHOTOGRAPHS]
        reasons += [f"{name} has other contents" for name, h in found.items() if PHOTOGRAPHS.get(name, h) != h]
        return tuple(reasons)

    def load(self, index: int, subset: str, device: torch.device | str = "cpu", *, frames: int = FRAMES) -> Sample:
        """The burst of one photograph (b = 1), with exact maps and its camera."""
        path = self.photographs[index]
        photo = photograph_tensor(path).to(device)
        try:
            return openburst_sample(photo, subset, seed_of(path.stem), name=path.stem, frames=frames)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def seed_of(name: str) -> int:
    """The number in a file's name, or a checksum of a name without one."""
    number = re.search(r"\d+", name)
    return int(number.group()) % LARGEST if number else zlib.crc32(name.encode())


def openburst_sample(photo: Tensor, subset: str, seed: int, *, name: str = "", frames: int = FRAMES) -> Sample:
    """One burst of the benchmark.

    Args:
        photo: (3, H, W) sRGB in [0, 1]; the burst is made on its device, of draws made on the CPU.
        subset: one of `SUBSETS`.
        seed: of every draw; motion and lens are the same in all subsets of the first five.
        name: of the burst.
        frames: at least 14. Those beyond are further good frames of the same lens and camera, from draws of their own.
    """
    if subset not in SUBSETS:
        raise InputError(f"OpenBurst has no subset {subset!r}; choose one of {', '.join(SUBSETS)}.")
    if frames < FRAMES or (subset == "raw-synburst" and frames > FRAMES):
        raise InputError(
            f"bursts of OpenBurst have {FRAMES} frames or more, those of raw-synburst {FRAMES}; got frames={frames}."
        )
    dice, further = (Dice(torch.Generator().manual_seed(seed + i), photo.device) for i in (0, FURTHER))
    sample = _synburst(photo, dice) if subset == "raw-synburst" else _rendered(photo, subset, dice, further, frames)
    return replace(sample, names=(name,) if name else ())


def _view(photo: Tensor, border: int = 0) -> tuple[int, int]:
    """LR size (h, w) of the centre crop: at most 160×160, even, and inside the photograph."""
    h, w = (min(VIEW, side - 2 * border) // (2 * SCALE) * 2 for side in photo.shape[-2:])
    if min(h, w) < 32:
        raise InputError(
            f"OpenBurst needs photographs of at least 176×176 pixels, got {photo.shape[-1]}×{photo.shape[-2]}."
        )
    return h, w


def _synburst(photo: Tensor, dice: Dice) -> Sample:
    config = replace(synthesis_preset("synburst"), maps="exact")
    h, w = _view(photo, BORDER)
    view = _centre(photo[None], SCALE * h + 2 * BORDER, SCALE * w + 2 * BORDER)
    return synthesize_synburst(view, config, dice, cameras=True)[0]


def _rendered(photo: Tensor, subset: str, dice: Dice, further: Dice, length: int) -> Sample:
    size = _view(photo)
    light = to_linear(photo[None, :, : photo.shape[-2] // 2 * 2, : photo.shape[-1] // 2 * 2])
    path = torch.cat((_path(dice, FRAMES), _path(further, 1 + length - FRAMES)[:, 1:]), 1)
    kernel = _lens(dice)
    moving = _disc(dice, size, length, present=subset == "moving")
    scene = Scene.build(path, moving, size)
    exact = scene.exact()
    assert exact.confidence is not None
    bad = 1 + torch.randperm(FRAMES - 1, generator=dice.generator)[:3]  # two to blur, one to mirror
    bad = bad.tolist() if subset == "badframe" else []
    blur = {l: BAD_BLUR for l in bad[:2]}
    frames = [_frame(light, path[:, l], moving, l, kernel, size, blur.get(l, 0.0)) for l in range(length)]
    for l in bad[2:]:
        frames[l] = frames[l].flip(-1)
        exact.confidence[:, l] = 0  # a mirrored frame shows nothing of the keyframe in its place
    clean = torch.stack(frames, 1)
    sharp = _composite(light, centred_grid(*size, light.device, density=SCALE)[None, None], moving, 0)
    sharp = _centre(light, SCALE * size[0], SCALE * size[1]) if subset != "moving" else sharp
    frames, target, camera = _developed(clean, sharp, subset, dice, further)
    return Sample(frames, target, exact, exact, handheld.describe(camera, subset == "raw"))


def _path(dice: Dice, frames: int) -> Tensor:
    """(1, l, 3, 3): shifts in ±8 LR pixels, rotations in ±1°, perspective in ±6e-6 per HR pixel, about the centre."""
    later = (torch.arange(frames, device=dice.device) > 0).float()[None, :, None]
    shift = dice.uniform(1, frames, 2, low=-8, high=8) * later
    angle = dice.uniform(1, frames, low=-1, high=1) * later[..., 0] * (math.pi / 180)
    perspective = dice.uniform(1, frames, 2, low=-6e-6, high=6e-6) * SCALE * later
    return homography(shift, angle, perspective)


def _lens(dice: Dice) -> Tensor:
    sigma, stretch, angle = dice.uniform(1, low=0.6, high=1.1), dice.uniform(1, low=1.0, high=1.3), dice.uniform(1)
    return gaussian_kernels(sigma * stretch.sqrt(), sigma / stretch.sqrt(), angle * math.pi, radius=5)


def _disc(dice: Dice, size: tuple[int, int], frames: int, *, present: bool) -> MovingObject:
    """A disc that crosses the middle of the view at 5–8 HR pixels a frame."""
    speed = dice.uniform(1, low=5 / SCALE, high=8 / SCALE)
    direction = dice.uniform(1) * (2 * math.pi)
    aside = dice.uniform(1, 2, low=-1, high=1) * constant((size[1] / 8, size[0] / 8), dice.device)
    velocity = torch.stack((direction.cos(), direction.sin()), -1) * speed[:, None]
    offset = velocity[:, None] * torch.arange(frames, device=dice.device)[:, None]
    radius = torch.full((1,), DISC_RADIUS if present else -1e4, device=dice.device)
    return MovingObject(
        aside - offset[:, :FRAMES].mean(1), radius, radius.new_zeros(1, 2), offset if present else 0 * offset
    )


def _composite(light: Tensor, points: Tensor, moving: MovingObject, frame: int) -> Tensor:
    """The scene's light (1, 3, h', w') at points (1, 1, 2, h', w'), centred LR pixels of the keyframe."""
    background = _look(light, points[:, 0])
    if moving.radius[0] < 0:
        return background
    own = points - moving.offset[:, frame : frame + 1, :, None, None]
    other = light.roll((light.shape[-2] // 2, light.shape[-1] // 2), (-2, -1))  # another part of the photograph
    return torch.lerp(background, _look(other, own[:, 0]), moving.coverage(own, softness=1 / SCALE)[:, 0])


def _look(light: Tensor, points: Tensor) -> Tensor:
    """Bicubic values at points (1, 2, h', w'), mirrored beyond the photograph."""
    height, width = light.shape[-2:]
    scale = constant((2 * SCALE / (width - 1), 2 * SCALE / (height - 1)), light.device)
    grid = points.permute(0, 2, 3, 1) * scale
    return F.grid_sample(light, grid, "bicubic", "reflection", align_corners=True).clamp(min=0)


def _frame(
    light: Tensor, path: Tensor, moving: MovingObject, frame: int, kernel: Tensor, size: tuple[int, int], blur: float
) -> Tensor:
    """One noise-free LR frame (1, 3, h, w): motion, lens, then the mean over 4×4."""
    slack = SLACK if blur == 0 else math.ceil(3 * blur / SCALE) + SLACK
    points = project(path[:, None], centred_grid(size[0] + 2 * slack, size[1] + 2 * slack, light.device, density=SCALE))
    seen = convolve(_composite(light, points, moving, frame), kernel)
    if blur:
        ramp = torch.arange(-math.ceil(3 * blur), math.ceil(3 * blur) + 1, dtype=torch.float32, device=light.device)
        line = torch.exp(-0.5 * (ramp / blur) ** 2)
        line = (line / line.sum()).expand(3, 1, -1)
        half = len(ramp) // 2
        padded = F.pad(seen, [half] * 4, mode="replicate")
        seen = F.conv2d(F.conv2d(padded, line[:, :, None], groups=3), line[..., None], groups=3)
    return F.avg_pool2d(seen, SCALE)[..., slack:-slack, slack:-slack]


def _developed(
    clean: Tensor, sharp: Tensor, subset: str, dice: Dice, further: Dice
) -> tuple[Tensor, Tensor, handheld.Sensitivity]:
    """Noisy frames and the target in the subset's space; frames beyond the benchmark's have noise of their own."""
    parts = [(part, d) for part, d in ((clean[:, :FRAMES], dice), (clean[:, FRAMES:], further)) if part.shape[1]]
    shot, read = (torch.full((1,), value, device=clean.device) for value in NOISE[subset])
    if subset == "raw":
        config = replace(synthesis_preset("handheld-raw"), exposure_drift=0.0, hot_pixels=0.0, changing_light=0.0)
        everyone = torch.ones(1, dtype=torch.bool, device=clean.device)
        camera = replace(handheld.draw_camera(dice, everyone, config), shot=shot, read=read)
        taken = [handheld.record(part, sharp, camera, everyone, config, d) for part, d in parts]
        return torch.cat([frames for frames, _ in taken], 1), taken[0][1], camera
    camera = handheld.Sensitivity(torch.eye(3)[None].to(shot), shot.new_ones(1, 3), shot, read)
    frames = to_srgb(torch.cat([add_noise(part, shot, read, d) for part, d in parts], 1).clamp(0, 1))
    return (frames * 255).round() / 255, to_srgb(sharp.clamp(0, 1)), camera


def _centre(image: Tensor, height: int, width: int) -> Tensor:
    top, left = (image.shape[-2] - height) // 2, (image.shape[-1] - width) // 2
    return image[..., top : top + height, left : left + width]
