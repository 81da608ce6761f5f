"""Baselines that learn nothing: exact interpolation, and a solver that really uses the other frames."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError
from burstmamba.evaluation.baselines import bicubic, nearest
from burstmamba.evaluation.classical import ClassicalSettings, noise_level, point_spread, solve
from burstmamba.evaluation.metrics import psnr
from burstmamba.evaluation.reconstruct import Method, reconstruct
from burstmamba.model.base_image import color_masks

QUICK = ClassicalSettings(iterations=40, rate=0.03)


def ramp(h, w):
    y, x = torch.meshgrid(torch.arange(h, dtype=torch.float64), torch.arange(w, dtype=torch.float64), indexing="ij")
    return (0.3 + 0.01 * x + 0.005 * y).expand(1, 3, h, w)


def test_bicubic_half_pixel_reproduces_a_ramp():
    big = bicubic(ramp(10, 12))
    position = (torch.arange(48, dtype=torch.float64) + 0.5) / 4 - 0.5
    assert torch.allclose(big[0, 0, 20, 8:-8], 0.3 + 0.01 * position[8:-8] + 0.005 * (20.5 / 4 - 0.5), atol=1e-12)


def test_bicubic_corner_keeps_lr_pixels():
    image = torch.rand(1, 3, 9, 7, dtype=torch.float64)
    assert torch.allclose(bicubic(image, centres="corner")[..., ::4, ::4], image, atol=1e-12)
    # Scored against a half-pixel grid the same picture is 1.5 HR pixels off.
    shift = bicubic(ramp(10, 12)) - bicubic(ramp(10, 12), centres="corner")
    assert torch.allclose(shift[..., 8:-8, 8:-8], torch.tensor(-1.5 / 4 * 0.015, dtype=torch.float64), atol=1e-9)


def test_nearest_follows_the_centres():
    image = torch.rand(2, 3, 9, 7)
    assert torch.equal(nearest(image), image.repeat_interleave(4, dim=-2).repeat_interleave(4, dim=-1))
    corner = nearest(image, centres="corner")
    for near in (-1, 0, 1):  # LR pixel i lies on HR pixel 4·i
        assert torch.equal(corner[..., 4 + near :: 4, 4 + near :: 4][..., :8, :6], image[..., 1:, 1:])
    pictures = [
        reconstruct(Method(kind), image[:, None], None, model=None, scale=4, centres="corner", linear=False)
        for kind in ("nearest", "bicubic")
    ]
    assert torch.equal(pictures[0], corner)
    assert all(torch.allclose(picture[..., ::4, ::4], image, atol=1e-6) for picture in pictures)


def test_bicubic_agrees_with_pillow():
    from PIL import Image

    image = np.random.default_rng(0).random((9, 11), dtype=np.float32)
    expected = np.asarray(Image.fromarray(image, mode="F").resize((44, 36), Image.Resampling.BICUBIC))
    ours = bicubic(torch.from_numpy(image).expand(1, 3, 9, 11))[0, 1].numpy()
    np.testing.assert_allclose(ours[8:-8, 8:-8], expected[8:-8, 8:-8], atol=1e-6)  # borders differ: replicated here


def test_bicubic_mosaic_of_grey_is_grey():
    assert torch.allclose(bicubic(torch.full((1, 1, 8, 8), 0.3)), torch.tensor(0.3), atol=1e-6)


def test_errors():
    with pytest.raises(InputError, match="centres must be half-pixel or corner, got 'middle'"):
        bicubic(torch.zeros(1, 3, 4, 4), centres="middle")
    with pytest.raises(InputError, match="centres must be half-pixel or corner, got 'middle'"):
        nearest(torch.zeros(1, 3, 4, 4), centres="middle")


def test_point_spread_is_box_and_gaussian():
    assert torch.allclose(point_spread(0.0, 4)[1:-1], torch.full((4,), 0.25))
    kernel = point_spread(1.0, 4)
    assert kernel.sum().item() == pytest.approx(1.0)
    offsets = torch.arange(len(kernel)) - (len(kernel) - 1) / 2
    variance = (kernel * offsets.square()).sum().item()
    assert variance == pytest.approx(1.0 + (4**2 - 1) / 12, rel=0.01)  # variances of independent blurs add


def test_noise_level():
    generator = torch.Generator().manual_seed(0)
    for sigma in (0.01, 0.05):
        image = 0.5 + sigma * torch.randn(2, 3, 64, 64, generator=generator)
        assert noise_level(image).tolist() == pytest.approx([sigma, sigma], rel=0.1)


def detailed_scene(size, seed=0):
    """Random rectangles above stripes that one LR frame aliases: their period is 10 HR pixels."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.full((1, 3, size, size), 0.5)
    for _ in range(20):
        top, left = torch.randint(0, size - 8, (2,), generator=generator).tolist()
        height, width = torch.randint(8, 40, (2,), generator=generator).tolist()
        image[..., top : top + height, left : left + width] = torch.rand(3, 1, 1, generator=generator)
    x = torch.arange(size)
    image[..., size // 2 :, :] = 0.5 + 0.3 * torch.sin(2 * torch.pi * x / 10)
    return image


def take_burst(scene, lr, shifts, margin=16, noise=0.0, seed=0):
    """Whole-HR-pixel shifts, lens, 4×4 mean: frame l sees the keyframe's pixel u at u - shift/4. (1, l, 3, lr, lr)."""
    generator = torch.Generator().manual_seed(seed)
    kernel = point_spread(0.85, 1).expand(3, 1, -1)
    blurred = F.conv2d(F.pad(scene, (3, 3, 3, 3), mode="replicate"), kernel[..., None], groups=3)
    blurred = F.conv2d(blurred, kernel[:, :, None], groups=3)
    frames = []
    for dx, dy in shifts:
        window = blurred[..., margin + dy : margin + dy + 4 * lr, margin + dx : margin + dx + 4 * lr]
        frames.append(F.avg_pool2d(window, 4))
    frames = torch.stack(frames, dim=1)
    frames = frames + noise * torch.randn(frames.shape, generator=generator)
    shift = torch.tensor(shifts, dtype=torch.float32).view(1, -1, 2, 1, 1).expand(1, len(shifts), 2, lr, lr) / 4
    target = scene[..., margin : margin + 4 * lr, margin : margin + 4 * lr]
    return frames.clamp(0, 1), Correspondence(-shift, shift.contiguous()), target


def quality(image, target):
    return psnr(image[..., 8:-8, 8:-8], target[..., 8:-8, 8:-8]).item()


SHIFTS = [(0, 0), (5, -3), (-6, 2), (3, 7), (-1, -5), (2, 1), (-3, 6), (7, -2)]


def test_solver_recovers_detail_from_the_other_frames():
    frames, maps, target = take_burst(detailed_scene(4 * 16 + 32), 16, SHIFTS)
    scores = {
        "nearest": quality(nearest(frames[:, 0]), target),
        "bicubic": quality(bicubic(frames[:, 0]).clamp(0, 1), target),
        "alone": quality(solve(frames[:, :1], maps.select([0]), linear=True, settings=QUICK), target),
        "burst": quality(solve(frames, maps, linear=True, settings=QUICK), target),
    }
    assert scores["nearest"] < scores["bicubic"] < scores["burst"] - 4, scores
    assert scores["nearest"] < scores["alone"] < scores["burst"] - 4, scores


def test_solver_survives_wrong_frames():
    frames, maps, target = take_burst(detailed_scene(4 * 16 + 32), 16, SHIFTS)
    broken = frames.clone()
    broken[:, 3:6] = broken[:, 3:6].flip(-1, -2)
    wrong = quality(solve(broken, maps, linear=True, settings=QUICK), target)
    confidence = torch.ones(1, len(SHIFTS), 1, 16, 16)
    confidence[:, 3:6] = 0
    told = Correspondence(maps.to_frame, maps.to_keyframe, confidence)
    told = quality(solve(broken, told, linear=True, settings=QUICK), target)
    assert told > wrong + 0.5
    assert wrong > quality(bicubic(frames[:, 0]).clamp(0, 1), target)


def test_solver_works_on_mosaics():
    frames, maps, target = take_burst(detailed_scene(4 * 16 + 32), 16, SHIFTS)
    mosaics = (frames * color_masks(frames)).sum(dim=2, keepdim=True)
    solved = quality(solve(mosaics, maps, linear=True, settings=QUICK), target)
    assert solved > quality(bicubic(mosaics[:, 0]).clamp(0, 1), target) + 1


def test_solver_batch_equals_one_by_one():
    first = take_burst(detailed_scene(4 * 12 + 32, seed=1), 12, SHIFTS[:4])
    second = take_burst(detailed_scene(4 * 12 + 32, seed=2), 12, SHIFTS[2:6])
    frames = torch.cat((first[0], second[0]))
    maps = Correspondence(
        torch.cat((first[1].to_frame, second[1].to_frame)), torch.cat((first[1].to_keyframe, second[1].to_keyframe))
    )
    quick = ClassicalSettings(iterations=5)
    together = solve(frames, maps, settings=quick)
    for index, (alone, its_maps, _) in enumerate((first, second)):
        assert torch.allclose(together[index], solve(alone, its_maps, settings=quick)[0], atol=1e-4)
