"""Geometry: homographies, exact maps in both directions, objects, borders."""

import math
from dataclasses import replace

import pytest
import torch

from burstmamba.correspondence.field import pixel_grid, sample_at
from burstmamba.synthesis import synthesis_preset, synthesize_burst
from burstmamba.synthesis.dice import Dice
from burstmamba.synthesis.motion import MovingObject, Scene, camera_path, centred_grid, homography, invert, project

BARE = replace(
    synthesis_preset("handheld-rgb").without_nuisance(),
    processed=0.0,
    shot=(1e-12, 1.1e-12),
    exposure_drift=0.0,
    maps="exact",
    shift=(4.0, 8.0),
)


def psnr(a, b, mask):
    error = ((a - b).square() * mask).sum() / (mask.expand_as(a).sum())
    return -10 * error.log10().item()


def test_values_of_homographies():
    h = homography(torch.tensor([1.0, -2.0]), torch.tensor(math.pi / 2), torch.tensor([0.0, 0.1]))
    points = torch.tensor([3.0, 5.0]).view(2, 1, 1)
    x, y = project(h[None, None], points).flatten().tolist()
    # A quarter turn takes (3, 5) to (-5, 3); then the shift, then the division by 1 + 0.1·5.
    assert (x, y) == pytest.approx(((-5 + 1) / 1.5, (3 - 2) / 1.5), abs=1e-5)


def test_rolling_shutter_moves_each_row_a_little_further():
    zero = torch.zeros(2)
    h = homography(zero, torch.tensor(0.0), zero, shear=torch.tensor([0.01, -0.02]))
    moved = project(h[None, None], centred_grid(5, 3, zero.device))[0, 0] - centred_grid(5, 3, zero.device)
    rows = torch.arange(-2, 3.0)
    assert torch.allclose(moved, torch.stack((0.01 * rows, -0.02 * rows))[..., None].expand(2, 5, 3), atol=1e-6)
    still = replace(BARE, shift=(1e-9, 2e-9), rotation=0.0, perspective=0.0, rolling_shutter=0.02)
    path = camera_path(Dice(torch.Generator().manual_seed(0), torch.device("cpu")), 50, still)
    shear = path[:, 1:, :2, 1] - torch.tensor([0.0, 1.0])
    assert 0.015 < shear.abs().max() <= 0.02 + 1e-6


def test_inverse_undoes():
    dice = Dice(torch.Generator().manual_seed(0), torch.device("cpu"))
    path = camera_path(dice, 3, synthesis_preset("handheld-rgb"))
    grid = centred_grid(20, 30, path.device)
    there = project(path, grid)
    assert torch.allclose(project(invert(path), there), grid.expand_as(there), atol=1e-4)
    assert torch.equal(path[:, 0], torch.eye(3).expand(3, 3, 3))
    assert path[:, 1:, :2, 2].abs().max() <= 8


def test_path_stays_within_its_limits():
    config = replace(synthesis_preset("handheld-rgb"), tripod=0.0, shift=(8.0, 8.0))
    path = camera_path(Dice(torch.Generator().manual_seed(1), torch.device("cpu")), 200, config)
    angle = torch.atan2(path[..., 1, 0], path[..., 0, 0])
    assert angle.abs().max() <= math.radians(1) + 1e-6
    assert path[..., 2, :2].abs().max() <= 4 * 6e-6 + 1e-12
    assert path[..., :2, 2].abs().max() > 7  # the limits are used


@pytest.mark.parametrize("moving", [0.0, 1.0])
def test_exact_maps_reproduce_the_keyframe(smooth, moving):
    config = replace(BARE, moving_object=moving)
    sample = synthesize_burst(smooth(4, config.source_size(48), 60), config, torch.Generator().manual_seed(1))
    maps = sample.exact
    seen = (maps.confidence > 0.999).float()
    keyframe = sample.frames[:, :1].expand_as(sample.frames)
    assert psnr(maps.gather(sample.frames)[:, 1:], keyframe[:, 1:], seen[:, 1:]) > 45
    assert psnr(sample.frames[:, 1:], keyframe[:, 1:], seen[:, 1:]) < 30  # without the maps it does not
    assert seen.mean() > 0.7


def test_exact_maps_bring_the_keyframe_into_each_frame(smooth):
    config = replace(BARE, moving_object=0.0)
    sample = synthesize_burst(smooth(4, config.source_size(48), 60), config, torch.Generator().manual_seed(2))
    keyframe = sample.frames[:, :1].expand_as(sample.frames)
    landed = pixel_grid(sample.frames)[:, None] + sample.exact.to_keyframe
    inside = ((landed >= 0) & (landed <= 47)).all(2, keepdim=True).float()
    assert psnr(sample.exact.scatter(keyframe)[:, 1:], sample.frames[:, 1:], inside[:, 1:]) > 45


def test_there_and_back_is_the_identity(smooth):
    config = replace(BARE, moving_object=0.0)
    sample = synthesize_burst(smooth(2, config.source_size(32), 60), config, torch.Generator().manual_seed(3))
    there, back = sample.exact.to_frame, sample.exact.to_keyframe
    landed = pixel_grid(there)[:, None] + there
    inside = ((landed >= 0) & (landed <= 31)).all(2, keepdim=True)
    returned = sample_at(back.flatten(0, 1), there.flatten(0, 1)).view_as(there)
    assert ((there + returned) * inside).abs().max() < 1e-3
    assert torch.equal(there[:, 0], torch.zeros_like(there[:, 0]))


def disc(offset):
    return MovingObject(
        torch.zeros(1, 2), torch.full((1,), 4.0), torch.zeros(1, 2), torch.tensor([[[0.0, 0.0], offset]])
    )


def test_objects_own_their_maps_and_hide_the_rest():
    scene = Scene.build(torch.eye(3).expand(1, 2, 3, 3), disc([6.0, 0.0]), (33, 33))
    maps = scene.exact()
    middle = 16
    assert maps.to_frame[0, 1, :, middle, middle].tolist() == [6.0, 0.0]  # inside: follows the object
    assert maps.to_frame[0, 1, :, middle, 3].tolist() == [0.0, 0.0]  # background: stays
    assert maps.to_keyframe[0, 1, :, middle, middle + 6].tolist() == [-6.0, 0.0]
    assert maps.to_keyframe[0, 1, :, middle, middle].tolist() == [0.0, 0.0]  # background uncovered behind it
    assert maps.confidence[0, 1, 0, middle, middle] == 1
    assert maps.confidence[0, 1, 0, middle, middle + 8] == 0  # background that the object now hides
    assert maps.confidence[0, 1, 0, 2, 2] == 1
    assert torch.equal(maps.confidence[0, 0], torch.ones(1, 33, 33))


def test_resting_objects_disturb_nothing():
    maps = Scene.build(torch.eye(3).expand(1, 2, 3, 3), disc([0.0, 0.0]), (33, 33)).exact()
    assert torch.equal(maps.confidence, torch.ones_like(maps.confidence))


def test_nothing_is_seen_beyond_the_border():
    path = homography(torch.tensor([[[0.0, 0.0], [5.0, 0.0]]]), torch.zeros(1, 2), torch.zeros(1, 2, 2))
    nothing = MovingObject(torch.zeros(1, 2), torch.full((1,), -1e4), torch.zeros(1, 2), torch.zeros(1, 2, 2))
    maps = Scene.build(path, nothing, (16, 16)).exact()
    # Frame 1 looks 5 px further to the right, so the keyframe's first five columns lie outside it.
    assert maps.confidence[0, 1, 0, 8].tolist() == [0.0] * 4 + [0.5] + [1.0] * 11 or (
        maps.confidence[0, 1, 0, 8, :4].eq(0).all() and maps.confidence[0, 1, 0, 8, 5:].eq(1).all()
    )
    assert torch.equal(maps.to_frame[0, 1, 0], torch.full((16, 16), -5.0))
    assert torch.equal(maps.to_keyframe[0, 1, 0], torch.full((16, 16), 5.0))
