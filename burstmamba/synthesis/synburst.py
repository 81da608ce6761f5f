"""The SyntheticBurst pipeline, step for step: corner-aligned keyframe, 8-bit geometry, RGGB mosaic, noise."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.correspondence.field import Correspondence
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.synthesis import map_errors, sensor
from burstmamba.synthesis.config import SCALE, SynthesisConfig
from burstmamba.synthesis.constant import constant
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.motion import centred_grid, inside, invert, project
from burstmamba.synthesis.unprocess import Processing, turn, unprocess

BORDER = 24
"""HR pixels around the view that motion may bring in."""
CORNER = SCALE / 2 - 0.5
"""Shift of the keyframe, which puts LR pixel i on HR pixel 4i."""


def synthesize_synburst(
    photos: Tensor, config: SynthesisConfig, dice: Dice, *, cameras: bool = False
) -> tuple[Sample, Processing]:
    """Bursts of photographs (b, 3, H, W), and the camera pipelines that were drawn: see `synthesize_burst`."""
    b, _, height, width = photos.shape
    h, w = (height - 2 * BORDER) // SCALE, (width - 2 * BORDER) // SCALE
    if min(h, w) < 8 or h % 2 or w % 2 or (SCALE * h + 2 * BORDER, SCALE * w + 2 * BORDER) != (height, width):
        raise InputError(
            f"synburst needs photographs with sides 4·n + 48 (n even, at least 8), got {width}×{height}; "
            "crop them to config.source_size(n)."
        )
    processing = Processing.draw(dice, b, config.shot)
    linear = unprocess(photos, processing)
    motion = camera_motion(dice, b, (height, width), config)
    frames = downsampled(linear, motion, (h, w), eight_bit=config.eight_bit)
    exact = exact_maps(motion, (h, w))
    given = exact
    if config.maps == "estimated":
        noise = (0.25 * processing.shot + processing.read).sqrt()
        nobody = torch.zeros(b, config.frames, dtype=torch.bool, device=photos.device)
        seen, grid = (exact.to_frame, exact.to_keyframe), centred_grid(h, w, photos.device)
        given = map_errors.estimated(seen, grid, exact, frames, noise, nobody, config, dice)
    noisy = sensor.add_noise(sensor.mosaic(frames), processing.shot, processing.read, dice).clamp(0, 1)
    target = linear[..., BORDER:-BORDER, BORDER:-BORDER]
    described = _describe(processing) if cameras else ()
    return Sample(noisy, target, given, exact, described, centres="corner"), processing


def camera_motion(dice: Dice, batch: int, size: tuple[int, int], config: SynthesisConfig) -> Tensor:
    """(b, l, 3, 3) photograph → warped photograph, HR pixels: the keyframe's shift, random ones for the others."""
    height, width = size
    later = (torch.arange(config.frames, device=dice.device) > 0)[None, :, None]
    reach = SCALE * config.shift[1]
    shift = torch.where(later, dice.uniform(batch, config.frames, 2, low=-reach, high=reach), CORNER)
    angle = dice.uniform(batch, config.frames, low=-config.rotation, high=config.rotation) * later[..., 0]
    return turn(angle, shift, (width / 2, height / 2))


def downsampled(linear: Tensor, motion: Tensor, size: tuple[int, int], *, eight_bit: bool) -> Tensor:
    """Warp, cut the border and shrink to a quarter without anti-aliasing.

    OpenCV's linear shrinking by 4 is the mean of the central 2×2 of each block, so only those four are warped. With
    `eight_bit`, as in the benchmark, the photograph is truncated to 8 bits first, OpenCV's coordinates are multiples
    of 1/32 pixel, and every stage is rounded.

    Args:
        linear: (b, 3, H, W) sensor values.
        motion: (b, l, 3, 3).
        size: (h, w) of the frames.

    Returns:
        (b, l, 3, h, w) in [0, 1].
    """
    b, l = motion.shape[:2]
    source = (linear * 255).floor() if eight_bit else linear * 255
    points = project(invert(motion), _taps(size, linear.device))  # (b, l, 2, 2h, 2w) in the photograph
    if eight_bit:
        points = (points * 32 + 0.5).floor() / 32
    height, width = linear.shape[-2:]
    scale = constant((2 / (width - 1), 2 / (height - 1)), linear.device)
    grid = points.permute(0, 1, 3, 4, 2).reshape(b, l * points.shape[-2], -1, 2) * scale - 1
    warped = F.grid_sample(source, grid, "bilinear", "zeros", align_corners=True)
    warped = warped.view(b, 3, l, *points.shape[-2:]).transpose(1, 2).flatten(0, 1)
    shrunk = F.avg_pool2d((warped + 0.5).floor() if eight_bit else warped, 2)
    shrunk = (shrunk + 0.5).floor() if eight_bit else shrunk
    return shrunk.view(b, l, 3, *size) / 255


def _taps(size: tuple[int, int], device: torch.device) -> Tensor:
    """(2, 2h, 2w): HR coordinates 4i+1 and 4i+2 of every LR pixel, border included."""
    y, x = (torch.arange(2 * n, device=device) for n in size)
    y, x = ((n // 2) * SCALE + n % 2 + 1 + BORDER for n in (y, x))
    return torch.stack((x.expand(len(y), -1), y[:, None].expand(-1, len(x)))).float()


def exact_maps(motion: Tensor, size: tuple[int, int]) -> Correspondence:
    """Both maps from the matrices: LR pixel v of a frame is HR pixel 4v + 1.5 of its warped photograph."""
    h, w = size
    centred = centred_grid(h, w, motion.device)
    pixels = centred + constant((((w - 1) / 2,), ((h - 1) / 2,)), motion.device)[..., None]
    keyframe, back = motion[:, :1], invert(motion)

    def hr(lr: Tensor) -> Tensor:
        return SCALE * lr + CORNER + BORDER

    def lr(hr: Tensor) -> Tensor:
        return (hr - CORNER - BORDER) / SCALE

    to_keyframe = lr(project(keyframe, project(back, hr(pixels)))) - pixels
    to_frame = lr(project(motion, project(invert(keyframe), hr(pixels)))) - pixels
    return Correspondence(to_frame, to_keyframe, inside(to_frame + centred))


def _describe(processing: Processing) -> tuple[Camera, ...]:
    columns = (processing.red_gain, processing.blue_gain, processing.cam2rgb, processing.shot, processing.read)
    return tuple(
        Camera("RGGB", True, (red, 1.0, blue), tuple(tuple(row) for row in matrix), (shot, read))
        for red, blue, matrix, shot, read in zip(*(c.tolist() for c in columns), strict=True)
    )
