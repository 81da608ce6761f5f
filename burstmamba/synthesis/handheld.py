"""Handheld bursts, RGB or RAW, as a camera or phone delivers them, with what usually goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from burstmamba.burst import Camera
from burstmamba.correspondence.field import Correspondence
from burstmamba.data.sample import Sample
from burstmamba.synthesis import colour, jpeg, map_errors, optics, sensor
from burstmamba.synthesis.config import SCALE, SynthesisConfig
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.motion import MovingObject, Scene, camera_path, centred_grid, covered


@dataclass(frozen=True)
class Sensitivity:
    """What a batch of cameras makes of light."""

    matrix: Tensor
    """(b, 3, 3) linear sRGB → white-balanced camera RGB."""
    gains: Tensor
    """(b, 3) white balance."""
    shot: Tensor
    """(b,)"""
    read: Tensor
    """(b,)"""


def synthesize_handheld(photos: Tensor, config: SynthesisConfig, dice: Dice, *, cameras: bool = False) -> Sample:
    """Bursts of photographs (b, 3, H, W): see `synthesize_burst`."""
    h, w = (config.lr_size(side) for side in photos.shape[-2:])
    raw = config.pipeline == "handheld-raw"
    processed = torch.full((len(photos),), raw, device=dice.device) | dice.chance(config.processed, len(photos))
    light = _light_up(colour.to_linear(_even(photos)), config, dice)
    path = camera_path(dice, len(photos), config)
    moving = MovingObject.draw(dice, len(photos), (h, w), config)
    scene = Scene.build(path, moving, (h, w))
    exact = scene.exact()
    clean, foreign = _render(light, scene, config, dice)
    assert exact.confidence is not None
    exact = replace(exact, confidence=exact.confidence * ~foreign[:, :, None, None, None])
    sharp = _sharp(light, scene)
    camera = draw_camera(dice, processed, config)
    noise = (0.25 * camera.shot + camera.read).sqrt()
    given = exact
    if config.maps == "estimated":
        seen = map_errors.as_seen(scene, config, dice)
        given = map_errors.estimated(seen, scene.grid, exact, clean, noise, foreign, config, dice)
    develop = record if raw else _photograph
    frames, target = develop(clean, sharp, camera, processed, config, dice)
    frames, given, exact = _duplicate(frames, given, exact, config, dice)
    return Sample(frames, target, given, exact, describe(camera, raw) if cameras else ())


def _even(photos: Tensor) -> Tensor:
    """Cut to even sides, so that the view's centre falls between two pixels as the LR grid's does."""
    return photos[..., : photos.shape[-2] // 2 * 2, : photos.shape[-1] // 2 * 2]


def _light_up(light: Tensor, config: SynthesisConfig, dice: Dice) -> Tensor:
    """Lift the brightest parts of some photographs above the sensor's range."""
    if config.saturated_lights == 0:
        return light
    b = len(light)
    strength = dice.uniform(b, 1, 1, 1, high=3) * dice.chance(config.saturated_lights, b, 1, 1, 1)
    return light * (1 + strength * light.amax(1, keepdim=True) ** 3)


def _render(light: Tensor, scene: Scene, config: SynthesisConfig, dice: Dice) -> tuple[Tensor, Tensor]:
    """Noise-free frames (b, l, 3, h, w), and which of them (b, l) show another scene."""
    collected = optics.pixel_light(light, optics.lens_kernels(dice, len(light), config))
    if config.aliased > 0:
        some = dice.chance(config.aliased, len(light), 1, 1, 1)
        collected = torch.where(some, optics.middle_light(light), collected)
    b, l = scene.behind.shape[:2]
    foreign = dice.later_frame(b, l) & dice.chance(config.unrelated_frame, b, 1)
    mirrored = torch.where(foreign[..., None, None, None], -1.0, 1.0)
    frames = optics.expose(collected, scene.behind * mirrored)
    if config.moving_object > 0:
        # The object wears the next photograph, turned upside down.
        texture = optics.expose(collected.roll(1, 0), -scene.object_points)
        cover = covered(scene.frames_from_edge, softness=1.1) * ~foreign[..., None, None, None]
        frames = torch.lerp(frames, texture, cover)
    if config.unrelated_frame > 0:
        # Half of the unrelated frames come from the next photograph, the others are this one upside down.
        swap = foreign & dice.chance(0.5, b, 1)
        frames = torch.where(swap[..., None, None, None], frames.roll(1, 0), frames)
    if config.blurred_frame > 0:
        frames = _shake(frames, config, dice)
    return frames.clamp(min=0), foreign


def _shake(frames: Tensor, config: SynthesisConfig, dice: Dice) -> Tensor:
    """Blur one frame of some bursts, out of focus or along a line."""
    b, l = frames.shape[:2]
    hit = dice.later_frame(b, l)
    length, width, angle = dice.uniform(b, 3).unbind(-1)
    kernels = optics.gaussian_kernels(0.7 + 2 * length, 0.4 + 2 * width**2, angle * torch.pi, radius=5)
    wide = hit[..., None, None, None]
    blurred = optics.convolve((frames * wide).sum(1), kernels)
    return torch.where(wide & dice.chance(config.blurred_frame, b, 1, 1, 1, 1), blurred[:, None], frames)


def _sharp(light: Tensor, scene: Scene) -> Tensor:
    """(b, 3, 4h, 4w): the keyframe's view as the photograph has it, in linear light."""
    h, w = scene.grid.shape[-2:]
    background, texture = (_centre(image, SCALE * h, SCALE * w) for image in (light, light.roll(1, 0).flip(-1, -2)))
    points = centred_grid(h, w, light.device, density=SCALE)
    cover = scene.object.coverage(points.expand(len(light), 1, -1, -1, -1), softness=1 / SCALE)
    return torch.lerp(background, texture, cover[:, 0])


def _centre(image: Tensor, height: int, width: int) -> Tensor:
    top, left = (image.shape[-2] - height) // 2, (image.shape[-1] - width) // 2
    return image[..., top : top + height, left : left + width]


def draw_camera(dice: Dice, processed: Tensor, config: SynthesisConfig) -> Sensitivity:
    b = len(processed)
    matrix = torch.where(processed[:, None, None], colour.camera_matrices(dice, b), torch.eye(3, device=dice.device))
    red, blue = dice.uniform(b, 2, low=1.4, high=2.4).unbind(-1)
    gains = torch.where(processed[:, None], torch.stack((red, torch.ones_like(red), 0.9 * blue), -1), 1.0)
    shot = dice.log_uniform(b, low=config.shot[0], high=config.shot[1], power=config.low_noise)
    # White balance amplifies noise; half of it gives developed frames the range that was asked for.
    shot = torch.where(processed, 0.5 * shot, shot) if config.pipeline == "handheld-rgb" else shot
    read = shot * dice.log_uniform(b, low=config.read_ratio[0], high=config.read_ratio[1])
    return Sensitivity(matrix, gains, shot, read)


def _expose(clean: Tensor, camera: Sensitivity, config: SynthesisConfig, dice: Dice) -> Tensor:
    """Camera values (b, l, 3, h, w) of light in camera colours, with drifting exposure, noise and hot pixels."""
    b, l = clean.shape[:2]
    later = (torch.arange(l, device=dice.device) > 0)[None, :, None, None, None]
    drift = torch.exp(config.exposure_drift * dice.normal(b, l, 1, 1, 1) * later)
    if config.changing_light > 0:
        coarse = 0.15 * dice.normal(b * l, 3, 2, 2)
        light = F.interpolate(coarse, size=clean.shape[-2:], mode="bilinear", align_corners=True).view_as(clean)
        drift = drift * torch.exp(light * later * dice.chance(config.changing_light, b, 1, 1, 1, 1))
    values = sensor.add_noise(clean * drift, camera.shot, camera.read, dice)
    if config.hot_pixels > 0:
        values = sensor.add_hot_pixels(values, dice.chance(config.hot_pixels, b), dice)
    return values.clamp(0, 1)


def record(
    clean: Tensor, sharp: Tensor, camera: Sensitivity, _: Tensor, config: SynthesisConfig, dice: Dice
) -> tuple[Tensor, Tensor]:
    """RAW: the RGGB mosaic, 14 bit, and the linear camera values of the sharp view."""
    b, l = clean.shape[:2]
    matrix, gains = camera.matrix, camera.gains
    frames = colour.safely_divide_gains(colour.apply_matrix(clean, matrix).flatten(0, 1), gains.repeat_interleave(l, 0))
    frames = _expose(frames.unflatten(0, (b, l)), camera, config, dice)
    target = colour.safely_divide_gains(colour.apply_matrix(sharp, matrix), gains)
    return (sensor.mosaic(frames) * 16383).round() / 16383, target.clamp(0, 1)


def _photograph(
    clean: Tensor, sharp: Tensor, camera: Sensitivity, processed: Tensor, config: SynthesisConfig, dice: Dice
) -> tuple[Tensor, Tensor]:
    """RGB: developed 8-bit frames, and the sharp view in the same tones."""
    b = len(clean)
    wide = processed[:, None, None, None, None]
    sensitivity = camera.matrix / camera.gains[:, :, None]
    frames = _expose(colour.apply_matrix(clean, sensitivity), camera, config, dice)
    if config.processed > 0 and config.demosaicked > 0:
        interpolated = wide & dice.chance(config.demosaicked, b, 1, 1, 1, 1)
        frames = torch.where(interpolated, sensor.demosaic(sensor.mosaic(frames)), frames)
    frames = colour.apply_matrix(frames, colour.invert_matrices(sensitivity))
    frames, target = colour.to_srgb(frames.clamp(0, 1)), colour.to_srgb(sharp.clamp(0, 1))
    if config.processed > 0:
        tone = dice.uniform(b, 1, 1, 1, 1, high=config.tone) * wide
        frames, target = colour.tone_curve(frames, tone), colour.tone_curve(target, tone[:, 0])
        frames = _finish(frames, processed, config, dice)
    deep = wide & dice.chance(config.sixteen_bit, b, 1, 1, 1, 1)
    white = torch.where(deep, 65535.0, 255.0)
    return (frames.clamp(0, 1) * white).round() / white, target


def _finish(frames: Tensor, processed: Tensor, config: SynthesisConfig, dice: Dice) -> Tensor:
    """Sharpening or smoothing, then JPEG, for the bursts whose camera does it."""
    b = len(frames)
    strength = dice.uniform(b, 1, 1, 1, 1, low=config.sharpening[0], high=config.sharpening[1])
    smooth = F.avg_pool2d(frames.flatten(0, 1), 3, stride=1, padding=1, count_include_pad=False).view_as(frames)
    frames = (frames + strength * processed[:, None, None, None, None] * (frames - smooth)).clamp(0, 1)
    if config.jpeg == 0:
        return frames
    quality = dice.uniform(b, low=config.jpeg_quality[0], high=config.jpeg_quality[1])
    phase = dice.uniform(b, 2, high=16).long().clamp(max=15)
    compressed = jpeg.compress(frames, quality, dice.chance(config.chroma_420, b), phase)
    chosen = processed & dice.chance(config.jpeg, b)
    return torch.where(chosen[:, None, None, None, None], compressed, frames)


def _duplicate(
    frames: Tensor, given: Correspondence, exact: Correspondence, config: SynthesisConfig, dice: Dice
) -> tuple[Tensor, Correspondence, Correspondence]:
    """Store one frame of some bursts twice, in the place of another one; in others repeat the keyframe throughout."""
    b, l = frames.shape[:2]
    if config.duplicated_frame == config.repeated_keyframe == 0 or l == 1:
        return frames, given, exact
    order = torch.arange(l, device=frames.device)[None]
    copied = (dice.uniform(b, 1) * l).long().clamp(max=l - 1)
    replaced = dice.later_frame(b, l) & dice.chance(config.duplicated_frame, b, 1)
    order = torch.where(replaced, copied, order)  # (b, l)
    order = torch.where(dice.chance(config.repeated_keyframe, b, 1), 0, order)
    rows = torch.arange(b, device=frames.device)[:, None]

    def take(tensor: Tensor) -> Tensor:
        return tensor[rows, order]

    return take(frames), given.apply(take), exact.apply(take)


def describe(camera: Sensitivity, raw: bool) -> tuple[Camera, ...]:
    """The cameras as the files would describe them; waits for the GPU."""
    shot, read = camera.shot.tolist(), camera.read.tolist()
    noise = list(zip(shot, read, strict=True))
    if not raw:
        return tuple(Camera(noise=pair) for pair in noise)
    back = colour.invert_matrices(camera.matrix).tolist()
    return tuple(
        Camera("RGGB", True, tuple(gains), tuple(tuple(row) for row in matrix), pair)
        for gains, matrix, pair in zip(camera.gains.tolist(), back, noise, strict=True)
    )
