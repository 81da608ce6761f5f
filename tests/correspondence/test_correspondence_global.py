"""Global motion: exact recovery, both directions, fallbacks, odd frames."""

from __future__ import annotations

import logging

import cv2
import numpy as np
import pytest
import torch
from correspondence_scenes import Motion, end_point_error, procedural_photo, render

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence import align_burst, ecc, estimate_correspondence
from burstmamba.correspondence.estimate import estimate
from burstmamba.correspondence.field import sample_at
from burstmamba.correspondence.homography import axes, estimate_global_motion, project
from burstmamba.correspondence.luma import Luma, gradients, luma, reduce_plane


def median_error(scene, method: str = "homography") -> float:
    found = estimate_correspondence(scene.burst, method)
    return float(end_point_error(found.to_frame[0], scene.to_frame)[1:].median())


def whole(bands) -> torch.Tensor:
    return torch.cat([band for _, band in bands], dim=-2)


def test_project_is_the_closed_form():
    matrix = np.array([[1.01, -0.02, 3.5], [0.015, 0.99, -2.25], [1e-4, -2e-4, 1]])
    found = project(matrix, *axes((7, 9)))
    for x, y in ((0, 0), (8, 0), (3, 6)):
        u, v, d = matrix @ (x, y, 1)
        assert found[:, y, x].tolist() == pytest.approx([u / d - x, v / d - y], abs=1e-5)


def test_projection_of_the_inverse_composes_to_identity():
    matrix = np.array([[1.01, -0.02, 3.5], [0.015, 0.99, -2.25], [1e-4, -2e-4, 1]])
    there = project(matrix, *axes((40, 50)))
    x, y = axes((40, 50))
    back = project(np.linalg.inv(matrix), x + there[0], y + there[1])
    torch.testing.assert_close(there + back, torch.zeros_like(there), atol=2e-5, rtol=0)


@pytest.mark.parametrize("shift", [(3, -2), (-7, 5), (0, 1)])
def test_whole_pixel_translations_are_recovered(shift):
    photo = procedural_photo(180, 4)
    x, y = shift
    keyframe, frame = photo[:, 20:148, 20:148], photo[:, 20 - y : 148 - y, 20 - x : 148 - x]
    found = estimate_correspondence(Burst(torch.stack((keyframe, frame))), "homography")
    expected = torch.tensor(shift, dtype=torch.float32).view(2, 1, 1).expand(2, 128, 128)
    assert end_point_error(found.to_frame[0, 1], expected).max() < 0.01
    assert end_point_error(found.to_keyframe[0, 1], -expected).max() < 0.01


def test_homographies_are_recovered_both_ways(still_scene):
    found = estimate_correspondence(still_scene.burst, "homography")
    for estimated, truth in (
        (found.to_frame, still_scene.to_frame),
        (found.to_keyframe, still_scene.to_keyframe),
    ):
        error = end_point_error(estimated[0], truth)
        assert error[0].max() == 0
        assert error.median() < 0.03
        assert torch.quantile(error, 0.95) < 0.1


def test_directions_are_consistent(still_scene):
    found = estimate_correspondence(still_scene.burst, "homography")
    trip = found.to_frame[0] + sample_at(found.to_keyframe[0], found.to_frame[0])
    inner = trip[:, :, 10:-10, 10:-10]
    assert inner.norm(dim=1).max() < 2e-3


def test_strong_noise():
    scene = render(procedural_photo(760, 2), seed=8, frames=4, noise=(1e-2, 1e-4))
    assert median_error(scene) < 0.05


@pytest.mark.parametrize("cfa", ["RGGB", "GBRG"])
def test_mosaic_maps_are_in_mosaic_pixels(cfa):
    # Glaring colours at pixel size are the worst case for a mosaic: hence the wider bar.
    scene = render(procedural_photo(640, 3), seed=9, frames=3, size=128, noise=(1e-4, 1e-6), cfa=cfa)
    found = estimate_correspondence(scene.burst, "homography")
    assert found.to_frame.shape == (1, 3, 2, 128, 128)
    assert end_point_error(found.to_frame[0], scene.to_frame)[1:].median() < 0.08
    assert end_point_error(found.to_keyframe[0], scene.to_keyframe)[1:].median() < 0.08


def test_larger_frames_are_reduced_without_a_shift():
    """A frame beyond the bound is estimated on a smaller plane; its maps stay exact."""
    photo = procedural_photo(700, 6)
    frames = torch.stack((photo[:, 20:620, 20:620], photo[:, 13:613, 33:633]))
    planes = luma(Burst(frames), longest_side=210)
    assert planes.pitch == 3 and planes.origin == 1
    motion = estimate_global_motion(planes)[1]
    found = project(planes.matrix_in_burst_pixels(motion.matrix), *axes((600, 600)))
    expected = torch.tensor([-13.0, 7.0]).view(2, 1, 1).expand(2, 600, 600)
    assert end_point_error(found, expected).max() < 0.25  # bars of 6 pixels alias at a third of the size


def test_matrices_of_reduced_planes_turn_about_the_same_point():
    planes = Luma(torch.zeros(1, 10, 10), pitch=3.0, origin=1.5, noise=0.0)
    turn = np.array([[0.0, -1, 4], [1, 0, -2], [0, 0, 1]])
    u, v, _ = planes.matrix_in_burst_pixels(turn) @ (3 * 5 + 1.5, 3 * 2 + 1.5, 1)
    assert (u, v) == pytest.approx((3 * (-2 + 4) + 1.5, 3 * (5 - 2) + 1.5))


def test_maps_of_reduced_planes_are_interpolated_in_place():
    planes = luma(Burst(torch.rand(1, 3, 30, 42)), longest_side=15)
    x, y = axes((10, 14))
    ramp = torch.stack((planes.pitch * x + planes.origin + 0 * y, planes.pitch * y + planes.origin + 0 * x))
    full = whole(planes.bands_on_burst_pixels(ramp[None], (30, 42)))[0]
    x, y = axes((30, 42))
    expected = torch.stack((x.clamp(1, 40) + 0 * y, y.clamp(1, 28) + 0 * x))
    torch.testing.assert_close(full, expected, atol=1e-4, rtol=0)


def test_order_of_the_frames_does_not_matter(still_scene):
    order = [0, 3, 1, 4, 2]
    straight = estimate_correspondence(still_scene.burst, "homography").to_frame
    shuffled = estimate_correspondence(still_scene.burst.select(order), "homography").to_frame
    torch.testing.assert_close(shuffled[:, 1], straight[:, 3], atol=1e-4, rtol=0)
    torch.testing.assert_close(shuffled[:, 4], straight[:, 2], atol=1e-4, rtol=0)


def test_deterministic(moving_scene):
    first = estimate_correspondence(moving_scene.burst, "auto")
    second = estimate_correspondence(moving_scene.burst, "auto")
    assert torch.equal(first.to_frame, second.to_frame)
    assert torch.equal(first.to_keyframe, second.to_keyframe)
    assert torch.equal(first.confidence, second.confidence)


def test_too_little_texture_falls_back(caplog):
    """A single soft blob fixes a translation, not eight parameters."""
    y, x = torch.meshgrid(torch.arange(96.0), torch.arange(96.0), indexing="ij")

    def blob(cx: float, cy: float) -> torch.Tensor:
        value = 0.2 + 0.6 * torch.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * 3.0**2))
        return value + 0.02 * torch.randn(96, 96, generator=torch.Generator().manual_seed(int(cx * 10)))

    frames = torch.stack((blob(48, 48), blob(50.5, 46.75))).clamp(0, 1)[:, None].repeat(1, 3, 1, 1)
    with caplog.at_level(logging.INFO):
        found = estimate(Burst(frames), "homography")
    assert found.motions[1].model == "translation"
    assert "too little texture for a homography, aligned by translation" in caplog.text
    centre = found.correspondence.to_frame[0, 1, :, 48, 48]
    assert (centre - torch.tensor([2.5, -1.25])).abs().max() < 0.15


def test_soft_texture_in_noise_is_aligned_by_a_simpler_model():
    """Out of focus and noisy: what the chosen model cannot do must not stay in from the matched features."""
    soft = [cv2.GaussianBlur(c.numpy(), (0, 0), 14) for c in procedural_photo(560, 0)]
    photo = torch.from_numpy(np.stack(soft))
    scene = render(photo, seed=0, frames=4, size=112, noise=(1e-2, 1e-4), motion=Motion(shift=5))
    found = estimate(scene.burst, "homography")
    assert all(motion.model in ("affine", "similarity") for motion in found.motions[1:])
    error = end_point_error(found.correspondence.to_frame[0], scene.to_frame)[1:][scene.visible[1:]]
    assert torch.quantile(error, 0.95) < 0.4
    notes = align_burst(scene.burst, "homography").notes
    assert any(n.startswith("Too little texture for a homography, aligned by similarity: frame ") for n in notes)


def test_models_keep_what_they_allow():
    """A homography as the nearest simpler motion: nothing changes for a motion that already is one."""
    turn = np.array([[1.02, -0.03, 0.1], [0.03, 1.02, -0.2], [0, 0, 1]])
    np.testing.assert_allclose(ecc._nearest(turn, "similarity"), turn, atol=1e-12)
    np.testing.assert_allclose(ecc._nearest(turn, "translation"), [[1, 0, 0.1], [0, 1, -0.2], [0, 0, 1]], atol=1e-12)
    tilted = turn + np.array([[0.01, 0, 0], [0, 0, 0], [0.02, -0.01, 0]])
    np.testing.assert_array_equal(ecc._nearest(tilted, "homography"), tilted)
    affine, similar = ecc._nearest(tilted, "affine"), ecc._nearest(tilted, "similarity")
    assert affine[2].tolist() == similar[2].tolist() == [0, 0, 1]
    assert similar[0, 0] == pytest.approx(similar[1, 1]) and similar[0, 1] == pytest.approx(-similar[1, 0])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_bright_moving_object_does_not_take_over(seed):
    """A bright disc before a dim scene correlates best with itself; the scene is what is aligned."""
    photo = 0.1 + 0.2 * procedural_photo(640, seed)
    scene = render(photo, seed=seed, frames=4, size=128, motion=Motion(shift=5, object_shift=6))
    found = estimate_correspondence(scene.burst, "homography")
    error = end_point_error(found.to_frame[0], scene.to_frame)
    for k in range(1, 4):
        assert error[k][scene.visible[k] & ~scene.moving].median() < 0.15


def test_planes_of_mosaics_lie_where_they_say():
    """A ramp of light is the same ramp on the planes, and comes back to the mosaic's pixels."""
    x, y = axes((60, 80))
    ramp = (0.002 * (x + 2 * y) + 0.1)[None, None]
    for longest_side, pitch in ((100, 1), (45, 2), (25, 4)):
        planes = luma(Burst(ramp, Camera(cfa="GRBG", linear=True)), longest_side=longest_side)
        assert planes.pitch == pitch
        light = planes.planes[0].square()
        u, v = axes(tuple(light.shape))
        expected = 0.002 * (pitch * u + planes.origin + 2 * (pitch * v + planes.origin)) + 0.1
        torch.testing.assert_close(light, expected, atol=1e-5, rtol=0)
        inner = slice(pitch, -pitch)
        back = whole(planes.bands_on_burst_pixels(light[None, None], (60, 80)))
        torch.testing.assert_close(back[..., inner, inner], ramp[..., inner, inner], atol=1e-5, rtol=0)


def test_opencvs_filters_are_the_plain_ones():
    plane = torch.rand(37, 53, generator=torch.Generator().manual_seed(2))
    expected = torch.nn.functional.avg_pool2d(plane[None, None], 5)[0, 0]
    torch.testing.assert_close(reduce_plane(plane, 5), expected, atol=1e-6, rtol=0)
    for found, dim in zip(gradients(plane), (-1, -2), strict=True):
        torch.testing.assert_close(found, torch.gradient(plane, dim=dim)[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_flat_frames_stay_in_place(value):
    noise = 0.01 * torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(0)) if value == 0.5 else 0.0
    found = estimate_correspondence(Burst((torch.full((3, 3, 64, 64), value) + noise).clamp(0, 1)))
    assert torch.equal(found.to_frame, torch.zeros_like(found.to_frame))
    assert found.confidence.mean() > 0.9


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (2, 3), (9, 200), (3, 5000), (2500, 9)])
@pytest.mark.parametrize("cfa", [None, "BGGR"])
@pytest.mark.parametrize("method", ["auto", "dense"])
def test_tiny_frames(size, cfa, method):
    frames = torch.rand(3, 1 if cfa else 3, *size, generator=torch.Generator().manual_seed(1))
    found = estimate_correspondence(Burst(frames, Camera(cfa=cfa, linear=cfa is not None)), method)
    assert found.to_frame.shape == (1, 3, 2, *size)
    assert found.confidence.shape == (1, 3, 1, *size)
    for tensor in (found.to_frame, found.to_keyframe, found.confidence):
        assert torch.isfinite(tensor).all()


def test_saturated_and_16_bit_frames():
    """Values quantised to 16 bits and a third of the scene clipped to white."""
    scene = render(procedural_photo(560, 5), seed=4, frames=3, size=112, motion=Motion(shift=4))
    frames = ((1.8 * scene.burst.frames).clamp(0, 1) * 65535).round() / 65535
    found = estimate_correspondence(Burst(frames), "homography")
    assert end_point_error(found.to_frame[0], scene.to_frame)[1:].median() < 0.05


def test_half_precision_frames(still_scene):
    burst = Burst(still_scene.burst.frames[:2].half())
    found = estimate_correspondence(burst, "homography")
    assert found.to_frame.dtype == torch.float32
    assert end_point_error(found.to_frame[0, 1], still_scene.to_frame[1]).median() < 0.03


def test_one_frame():
    found = estimate_correspondence(Burst(torch.rand(1, 3, 20, 20)))
    assert found.to_frame.abs().max() == 0 and found.confidence.min() == 1


@pytest.mark.slow
def test_a_hundred_frames():
    photo = procedural_photo(160, 7)
    shifts = [(i % 7 - 3, i % 5 - 2) if i else (0, 0) for i in range(100)]
    frames = torch.stack([photo[:, 20 - y : 68 - y, 20 - x : 68 - x] for x, y in shifts])
    found = estimate_correspondence(Burst(frames), "homography")
    expected = torch.tensor(shifts, dtype=torch.float32).view(100, 2, 1, 1).expand(100, 2, 48, 48)
    assert end_point_error(found.to_frame[0], expected).median() < 0.03
    assert torch.quantile(end_point_error(found.to_frame[0], expected).mean((1, 2)), 0.95) < 0.15
