"""Light that changes in places is matched to the keyframe's; noise, motion and wrong maps are not taken for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from correspondence_scenes import Motion, procedural_photo, render

from burstmamba.burst import Burst, Camera
from burstmamba.correspondence import Correspondence, align_burst
from burstmamba.correspondence.field import sample_at
from burstmamba.correspondence.light import brighten, decode_srgb
from burstmamba.correspondence.luma import smooth
from burstmamba.correspondence.relight import relight
from burstmamba.restoration import pairwise


def lamps(size: int, frames: int) -> torch.Tensor:
    """(l, 3, h, w): gains of red light on the left and blue light on the right, more from frame to frame."""
    x = torch.linspace(-1, 1, size).expand(size, size)
    spots = torch.stack((torch.exp(-8 * (x + 0.5) ** 2), 0 * x, torch.exp(-8 * (x - 0.5) ** 2)))
    return torch.stack([1 + 0.15 * i * spots for i in range(frames)])


def lit(scene, to_keyframe: torch.Tensor) -> Burst:
    """The scene under lamps that stand still while the camera moves."""
    burst = scene.burst
    gains = sample_at(lamps(burst.size[0], len(burst)), to_keyframe)
    frames = [brighten(frame, gain, burst.camera) for frame, gain in zip(burst.frames, gains, strict=True)]
    return replace(burst, frames=torch.stack(frames))


def colour_error(burst: Burst, maps: Correspondence, scene) -> torch.Tensor:
    """Mean difference of low-passed colours from the keyframe's, for every frame, in encoded values."""
    warped = maps.gather(burst.frames[None])[0]
    errors = []
    for frame, visible in zip(warped, scene.visible, strict=True):
        difference = torch.stack([smooth(c.contiguous(), 3.0) for c in (frame - burst.frames[0]) * visible])
        errors.append(difference.abs().mean())
    return torch.stack(errors)


@pytest.mark.parametrize("noise", [(1e-4, 1e-6), (4e-3, 4e-5)])
def test_changing_lamps_are_matched(noise):
    scene = render(procedural_photo(560, 2), seed=4, frames=4, size=112, motion=Motion(shift=5), noise=noise)
    burst = lit(scene, scene.to_keyframe)
    maps = Correspondence(scene.to_frame[None], scene.to_keyframe[None])
    matched, shares = relight(burst, maps)
    assert shares[0] == 0 and shares[2] > 0.1 and shares[3] > shares[2]
    assert torch.equal(matched.frames[0], burst.frames[0])
    before, after, still = (colour_error(b, maps, scene) for b in (burst, matched, scene.burst))
    assert after[3] - still[3] < 0.25 * (before[3] - still[3])
    # Its details stay: nearer to the frame under constant light, pixel by pixel.
    wrong, right = ((b.frames[3] - scene.burst.frames[3]).abs().mean() for b in (burst, matched))
    assert right < 0.4 * wrong


@pytest.mark.parametrize("noise", [(1e-4, 1e-6), (1e-2, 1e-4)])
def test_noise_and_aliasing_are_no_light(noise):
    scene = render(procedural_photo(560, 2), seed=4, frames=4, size=112, motion=Motion(shift=5), noise=noise)
    maps = Correspondence(scene.to_frame[None], scene.to_keyframe[None])
    matched, _ = relight(scene.burst, maps)
    changed = (matched.frames - scene.burst.frames).abs()
    assert changed.mean() < 5e-5


def test_equal_frames_are_returned_as_they_are(still_scene):
    burst = still_scene.burst.select([0, 0, 0])
    assert relight(burst, Correspondence.identity(burst.frames[None]))[0] is burst


@pytest.mark.parametrize("cfa", ["RGGB", "GBRG"])
def test_mosaics_are_matched_colour_by_colour(cfa):
    """Odd sides, so that the last rows and columns lie outside the small pictures."""
    camera = Camera(cfa=cfa, linear=True)
    plain = torch.full((3, 1, 65, 71), 0.3)
    plain[1] = brighten(plain[1], torch.stack((torch.full((65, 71), 1.2), *torch.ones(2, 65, 71))), camera)
    burst = Burst(plain, camera)
    matched, shares = relight(burst, Correspondence.identity(burst.frames[None]))
    assert shares[1] > 0.9 and shares[2] == 0
    # All but a tenth of the change is taken back, at every pixel.
    torch.testing.assert_close(matched.frames, torch.full_like(plain, 0.3), atol=6e-3, rtol=0)


@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_black_and_white_stay_in_range(kind):
    frames = torch.zeros(3, 3, 40, 40, dtype=kind)
    frames[1], frames[2, :, :20] = 1, 0.5
    burst = Burst(frames)
    matched, _ = relight(burst, Correspondence.identity(frames[None]))
    assert matched.frames.dtype == kind
    assert torch.isfinite(matched.frames).all() and matched.frames.min() >= 0 and matched.frames.max() <= 1


def test_alignment_says_what_was_matched(monkeypatch):
    """Also when frames are aligned in pairs; maps of the caller leave the light as it is."""
    scene = render(procedural_photo(560, 2), seed=4, frames=4, size=112, motion=Motion(shift=5))
    burst = lit(scene, scene.to_keyframe)
    alignment = align_burst(burst)
    assert [r.relit > 0 for r in alignment.frames][2:] == [True, True]
    assert any("The light differs in places" in note for note in alignment.notes)
    red, expected = (decode_srgb(b.frames[3])[0, 20:-20, 20:-20].mean() for b in (alignment.burst, scene.burst))
    assert abs(red / expected - 1) < 0.03
    monkeypatch.setattr(pairwise, "SEVERAL", 0)
    pairs = pairwise.align(burst, "auto")
    assert (pairs.burst.frames[3] - alignment.burst.frames[3]).abs().mean() < 0.004
    assert any("The light differs in places" in note for note in pairs.notes)
    for untouched in (align_burst(burst, alignment.maps_of_all_frames()), align_burst(burst, match_exposure=False)):
        assert torch.equal(untouched.burst.frames, burst.frames)
        assert all(r.relit == 0 for r in untouched.frames)
