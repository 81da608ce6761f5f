"""Local motion, confidence, exposure and which frames are left out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from correspondence_scenes import Motion, end_point_error, procedural_photo, render

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence import Correspondence, align_burst, estimate_correspondence
from burstmamba.correspondence import estimate as estimation
from burstmamba.correspondence.align import choose_keyframe
from burstmamba.correspondence.confidence import LEFT, _slope, disagreement, in_view, trust
from burstmamba.correspondence.dense import compose_to_frame, compose_to_keyframe, round_trip
from burstmamba.correspondence.estimate import estimate
from burstmamba.correspondence.field import sample_at
from burstmamba.correspondence.light import brighten, decode_srgb, encode_srgb, match_exposure
from burstmamba.correspondence.luma import luma, noise_level
from burstmamba.correspondence.noise import BLUR, Noise, Structure, common_noise, measure_noise
from burstmamba.errors import InputError


@pytest.mark.parametrize("method", ["dense", "auto"])
def test_moving_object_is_followed(moving_scene, method):
    found = estimate_correspondence(moving_scene.burst, method)
    error = end_point_error(found.to_frame[0], moving_scene.to_frame)
    seen = moving_scene.visible
    assert error[1:][(moving_scene.moving & seen)[1:]].median() < 0.3
    assert error[1:][(~moving_scene.moving & seen)[1:]].median() < 0.1


@pytest.mark.parametrize("method", ["dense", "auto"])
def test_moving_object_is_followed_at_reduced_size(moving_scene, method, monkeypatch):
    """Frames beyond the bound: the flow of the small planes is added to the global motion at full size."""
    monkeypatch.setattr(estimation, "luma", partial(luma, longest_side=72))
    found = estimate_correspondence(moving_scene.burst, method)
    for estimated, truth, moving, seen in (
        (found.to_frame[0], moving_scene.to_frame, moving_scene.moving, moving_scene.visible),
        (found.to_keyframe[0], moving_scene.to_keyframe, *_in_frames(moving_scene)),
    ):
        error = end_point_error(estimated, truth)[1:]
        moving = moving.expand_as(seen)[1:]
        assert error[moving & seen[1:]].median() < 0.6
        assert error[~moving & seen[1:]].median() < 0.2


def _in_frames(scene) -> tuple[torch.Tensor, torch.Tensor]:
    """The object and the pixels with a counterpart in the keyframe, in the frames' views (l, h, w)."""
    h, w = scene.burst.size
    there = sample_at(scene.moving.float().expand(len(scene.burst), 1, h, w), scene.to_keyframe)[:, 0]
    inside = torch.stack([in_view(m) for m in scene.to_keyframe])
    return there > 0.99, inside & ((there > 0.99) | (there < 0.01))


def test_homography_alone_does_not_follow_but_knows(moving_scene):
    found = estimate_correspondence(moving_scene.burst, "homography")
    error = end_point_error(found.to_frame[0], moving_scene.to_frame)[1:]
    wrong, right = error > 1, (error < 0.2) & moving_scene.visible[1:]
    confidence = found.confidence[0, 1:, 0]
    assert wrong.float().mean() > 0.05
    assert confidence[wrong].mean() < 0.25
    assert confidence[right].mean() > 0.85
    sample = torch.randint(0, 10**6, (2, 20000), generator=torch.Generator().manual_seed(0))
    a, b = confidence[right], confidence[wrong]
    assert (a[sample[0] % len(a)] > b[sample[1] % len(b)]).float().mean() > 0.9


@pytest.mark.parametrize("noise", [(1e-4, 1e-6), (1e-2, 1e-4)])
def test_noise_and_aliasing_are_no_error(noise):
    scene = render(procedural_photo(560, 9), seed=2, frames=3, size=112, noise=noise, motion=Motion(shift=4))
    confidence = estimate_correspondence(scene.burst).confidence[0, :, 0]
    assert confidence[scene.visible].mean() > 0.93
    assert torch.quantile(confidence[scene.visible], 0.02) > 0.5


def test_pixels_out_of_view_get_no_confidence(still_scene):
    found = estimate_correspondence(still_scene.burst, "homography")
    position = found.to_frame[0, :, 0] + torch.arange(112.0)
    outside = (position < -1) | (position > 112)
    assert outside.any()
    assert found.confidence[0, :, 0][outside].max() == 0


def test_in_view_values():
    flow = torch.zeros(2, 3, 4)
    flow[0, :, 3] = 0.75
    flow[1, 0] = -0.4
    assert in_view(flow).tolist() == [[True, True, True, False]] * 3


def test_disagreement_of_known_differences():
    plane = torch.full((40, 40), 0.5)
    noise = Noise(np.array([0.0, 1.0]), np.array([4e-4, 4e-4]), 0.0, 0.0)
    same = disagreement(Structure.of(plane), Structure.of(plane), noise)
    assert same.max() == 0 and trust(same).min() == 1
    off = disagreement(Structure.of(plane), Structure.of(plane + 0.1), noise)
    torch.testing.assert_close(off, torch.full_like(off, 0.01 / (1.5 * 4e-4 + 1e-5)), rtol=1e-3, atol=0)
    assert trust(off).max() < 0.01
    assert trust(torch.full((1,), 1.5)).item() == pytest.approx(0.5)
    assert trust(torch.zeros(1), torch.full((1,), 0.6)).item() == pytest.approx(0.5)


def test_noise_level_of_white_noise():
    for sigma in (0.01, 0.05):
        plane = 0.5 + sigma * torch.randn(200, 200, generator=torch.Generator().manual_seed(1))
        assert noise_level(plane) == pytest.approx(sigma, rel=0.1)
        ramp = plane + torch.linspace(0, 0.3, 200)
        assert noise_level(ramp) == pytest.approx(sigma, rel=0.1)
        mean = torch.nn.functional.avg_pool2d(plane[None, None], 2, stride=1)[0, 0]
        assert noise_level(mean, averaged=True) == pytest.approx(sigma / 2, rel=0.15)


def test_noise_of_a_pair_and_of_a_burst():
    """White noise behind a Gaussian of width s keeps 1/4πs² of its variance; one strange frame does not change it."""
    plane = torch.linspace(0.2, 0.8, 160).expand(160, 160)
    draws = 0.03 * torch.randn(4, 160, 160, generator=torch.Generator().manual_seed(3))
    view = torch.ones(160, 160, dtype=torch.bool)
    first, *others = (Structure.of(plane + draw) for draw in draws)
    pairs = [measure_noise(first, other, view) for other in others]
    expected = 2 * 0.03**2 / (4 * np.pi * BLUR**2)
    assert pairs[0].variance == pytest.approx(np.full(8, expected), rel=0.25)
    assert pairs[0].expected(torch.tensor([[0.5]])).item() == pytest.approx(expected, rel=0.25)
    unlike = Structure.of(torch.rand(160, 160, generator=torch.Generator().manual_seed(4)))
    strange = measure_noise(first, unlike, view)
    assert strange.variance.min() > 4 * expected
    together = common_noise([*pairs, strange])
    assert together.variance == pytest.approx(np.full(8, expected), rel=0.25)


def test_compositions_follow_points():
    """A point moved by f and then by H, and back by H⁻¹ and then g, comes home."""
    matrix = np.array([[1.01, -0.02, 1.5], [0.015, 0.99, -2.25], [1e-4, -2e-4, 1]])
    f = torch.tensor([0.75, -0.5]).view(2, 1, 1).expand(2, 30, 30).contiguous()
    there = compose_to_frame(matrix, f)
    u, v, d = matrix @ (12 + 0.75, 7 - 0.5, 1)
    assert there[:, 7, 12].tolist() == pytest.approx([u / d - 12, v / d - 7], abs=1e-5)
    back = compose_to_keyframe(matrix, -f)
    landing = there[:, 7, 12] + torch.tensor([12.0, 7.0])
    x, y = (round(p) for p in landing.tolist())
    home = np.linalg.inv(matrix) @ (x, y, 1)
    assert back[:, y, x].tolist() == pytest.approx((home[:2] / home[2] - (0.75, -0.5) - (x, y)).tolist(), abs=1e-4)
    torch.testing.assert_close(round_trip(f, -f), torch.zeros(30, 30))


def test_srgb_curve():
    values = torch.linspace(0, 1, 101)
    torch.testing.assert_close(encode_srgb(decode_srgb(values)), values, atol=1e-5, rtol=0)
    assert decode_srgb(torch.tensor(0.5)).item() == pytest.approx(0.21404, abs=1e-4)


def test_exposure_drift_is_matched(still_scene):
    gain = torch.tensor([0.8, 0.7, 0.75])
    frames = still_scene.burst.frames[:3].clone()
    frames[2] = brighten(frames[2], gain, Camera())
    found = estimate(Burst(frames), "auto")
    assert torch.equal(found.gains[:2], torch.ones(2, 3))
    torch.testing.assert_close(found.gains[2], 1 / gain, rtol=0.02, atol=0)
    assert end_point_error(found.correspondence.to_frame[0, 2], still_scene.to_frame[2]).median() < 0.08
    assert found.correspondence.confidence[0, 2].mean() > 0.85
    aligned = align_burst(Burst(frames, names=("a", "b", "c")))
    assert "Brightness or colour differs and is matched to the keyframe: c." in aligned.notes
    assert (aligned.burst.frames[2] - still_scene.burst.frames[2]).abs().mean() < 0.01
    untouched = align_burst(Burst(frames), match_exposure=False)
    assert torch.equal(untouched.burst.frames, frames)


def test_exposure_of_a_mosaic():
    scene = render(procedural_photo(560, 3), seed=9, frames=2, size=112, noise=(1e-4, 1e-6), cfa="GRBG")
    gain = torch.tensor([0.9, 0.6, 1.0])
    frames = scene.burst.frames.clone()
    frames[1] = brighten(frames[1], gain, scene.burst.camera)
    assert torch.equal(frames[1, 0, 0::2, 0::2], scene.burst.frames[1, 0, 0::2, 0::2] * 0.6)
    assert torch.equal(frames[1, 0, 1::2, 0::2], scene.burst.frames[1, 0, 1::2, 0::2])
    found = estimate(replace(scene.burst, frames=frames), "homography")
    torch.testing.assert_close(found.gains[1], 1 / gain, rtol=0.03, atol=0)
    restored = match_exposure(replace(scene.burst, frames=frames), found.gains)
    assert (restored.frames[1] - scene.burst.frames[1]).abs().mean() < 0.01


def test_unrelated_and_blurred_frames_are_left_out():
    scene = render(procedural_photo(640, 10), seed=6, frames=5, size=128, blurred=3)
    other = render(procedural_photo(640, 99), seed=7, frames=2, size=128)
    frames = scene.burst.frames.clone()
    frames[2] = other.burst.frames[1]
    result = align_burst(Burst(frames, names=("key", "a", "stranger", "shaken", "b")))
    assert [r.kept for r in result.frames] == [True, True, False, False, True]
    assert result.burst.names == ("key", "a", "b")
    assert result.correspondence.to_frame.shape[1] == 3
    assert any(n.startswith("stranger is left out: it does not show the keyframe's scene") for n in result.notes)
    assert any(n.startswith("shaken is left out: it is blurred") for n in result.notes)
    assert result.frames[2].confidence == 0
    assert all(r.confidence > 0.9 for r in result.frames if r.kept)


def test_noise_is_not_taken_for_sharpness_of_the_keyframe():
    """A dim scene of little contrast, brighter to one side: its noise is uneven, and larger than its finest details."""
    photo, ramp = procedural_photo(640, 10), torch.linspace(0.02, 0.7, 640)
    for contrast, found in ((0.3, True), (0.2, False)):
        scene = ramp + contrast * (photo - photo.mean())
        burst = render(scene.clamp(0, 1), seed=6, frames=6, size=128, blurred=3, noise=(1e-2, 1e-4)).burst
        reports = align_burst(burst).frames
        assert all(0.8 < r.sharpness < 1.2 and r.kept for r in reports if r.index != 3)
        assert not found or ("blurred" in reports[3].reason and reports[3].sharpness < 0.5)


def test_the_slope_of_a_line_with_noise_in_both():
    """Exact without noise, whatever is assumed of it; with noise of the assumed ratio, in the mean."""
    for slope in (0.1, 0.6, 1.0, 1.7):
        for left in (0.5, 1.0):
            assert _slope(2.0, 2 * slope, 2 * slope**2, left) == pytest.approx(slope)
            assert _slope(2.0 + 3, 2 * slope, 2 * slope**2 + 3 * left, left) == pytest.approx(slope)
    assert _slope(1.0, -0.1, 1.0, 1.0) == 0


def test_noise_that_interpolation_leaves():
    """White noise moved by all parts of a pixel keeps the share of its variance that comparisons count on."""
    noise = torch.randn(1, 1, 256, 256, generator=torch.Generator().manual_seed(0))
    shares = []
    for x in torch.arange(8) / 8:
        for y in torch.arange(8) / 8:
            way = torch.stack((x, y))[None, :, None, None].expand(1, 2, 256, 256)
            moved = Structure.of(sample_at(noise, way)[0, 0]).fine
            shares.append(moved[8:-8, 8:-8].square().mean().item())
    assert np.mean(shares) / shares[0] == pytest.approx(LEFT, abs=0.02)


def test_nothing_remains():
    frames = torch.stack(
        [render(procedural_photo(400, s), seed=s, frames=1, size=96).burst.frames[0] for s in (20, 21)]
    )
    result = align_burst(Burst(frames, names=("key", "other")))
    assert len(result.burst) == 1 and result.burst.names == ("key",)
    assert result.notes[-1] == "No other frame can be used: the keyframe alone is reconstructed."


@pytest.mark.parametrize("noise", [(1e-4, 1e-6), (1e-2, 1e-4)])
def test_sharpest_keyframe(noise):
    """The sharp frame is found among shaken ones, also in noise; the others keep their order."""
    photo = procedural_photo(560, 12)
    frames = [render(photo, seed=i, frames=2, size=112, noise=noise, blurred=None if i == 2 else 1) for i in range(4)]
    burst = Burst(torch.stack([s.burst.frames[1] for s in frames]), names=("a", "b", "c", "d"))
    assert choose_keyframe(burst, "sharpest") == 2
    result = align_burst(burst, keyframe="sharpest")
    assert [r.name for r in result.frames] == ["c", "a", "b", "d"]
    assert [r.index for r in result.frames] == [2, 0, 1, 3]
    assert result.notes[0] == "c is the keyframe."


def test_chosen_keyframe(still_scene):
    burst = still_scene.burst.select([2, 0, 1])
    result = align_burst(burst, "homography", keyframe=1)
    assert [r.index for r in result.frames] == [1, 0, 2]
    assert end_point_error(result.correspondence.to_frame[0, 1], still_scene.to_frame[2]).median() < 0.08
    assert result.frames[1].motion == pytest.approx(tuple(still_scene.to_frame[2].mean((1, 2)).tolist()), abs=0.1)


def test_identity_and_given_maps(still_scene):
    burst = still_scene.burst
    identity = estimate_correspondence(burst, "identity")
    assert identity.to_frame.abs().max() == 0 and identity.confidence.min() == 1
    assert len(align_burst(burst, "identity").burst) == 5
    exact = Correspondence(still_scene.to_frame[None], still_scene.to_keyframe[None])
    assert estimate_correspondence(burst, exact) is exact
    result = align_burst(burst, exact)
    assert all(r.kept and r.model == "given" and r.confidence == 1 for r in result.frames)


def test_errors(still_scene):
    burst = still_scene.burst
    with pytest.raises(InputError, match="unknown correspondence method 'optical': use one of auto, homography"):
        estimate_correspondence(burst, "optical")
    with pytest.raises(InputError, match='keyframe must be "first", "sharpest" or an index from 0 to 4, got 9'):
        align_burst(burst, keyframe=9)
    with pytest.raises(InputError, match=r"the given maps must be \(1, 5, 2, 112, 112\) to fit the burst"):
        estimate_correspondence(burst, Correspondence.identity(burst.frames[None, :2]))
