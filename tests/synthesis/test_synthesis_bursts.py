"""Handheld bursts: what goes wrong does so as asked, draws are reproducible, nothing waits for the device."""

import hashlib
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from burstmamba.errors import InputError
from burstmamba.synthesis import SynthesisConfig, synthesis_preset, synthesize_burst
from burstmamba.synthesis.colour import to_linear

RGB, RAW = synthesis_preset("handheld-rgb"), synthesis_preset("handheld-raw")
CLEAN = replace(RGB.without_nuisance(), processed=0.0, shot=(1e-12, 1.1e-12), exposure_drift=0.0)


def made(config, smooth, size=24, batch=4, seed=0, period=12):
    photos = smooth(batch, config.source_size(size), period, seed)
    return synthesize_burst(photos, config, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("config", [RGB, RAW, replace(RGB, frames=1), replace(RAW, frames=2)])
def test_shapes_and_ranges(config, smooth):
    sample = made(config, smooth)
    channels = 1 if config.pipeline == "handheld-raw" else 3
    assert sample.frames.shape == (4, config.frames, channels, 24, 24)
    assert sample.target.shape == (4, 3, 96, 96)
    for tensor in (sample.frames, sample.target, sample.correspondence.confidence, sample.exact.confidence):
        assert torch.isfinite(tensor).all() and tensor.min() >= 0 and tensor.max() <= 1
    assert torch.equal(sample.correspondence.to_frame[:, 0], torch.zeros(4, 2, 24, 24))
    assert torch.equal(sample.correspondence.confidence[:, 0], torch.ones(4, 1, 24, 24))


@pytest.mark.parametrize("moving", [0.0, 1.0])
def test_keyframe_is_the_blurred_mean_of_the_target(smooth, moving):
    sample = made(replace(CLEAN, moving_object=moving), smooth, period=40)
    mean = F.avg_pool2d(to_linear(sample.target), 4)
    error = (to_linear(sample.frames[:, 0]) - mean).abs()
    assert error.max() < 0.02 or (moving and (error < 0.02).float().mean() > 0.98)  # an object's edge is blurred more


def test_aliased_bursts_see_the_middle_of_their_pixels(smooth):
    sample = made(replace(CLEAN, aliased=1.0), smooth, period=8)
    light = to_linear(sample.target)
    middle = F.avg_pool2d(light, 2, stride=1)[..., 1::4, 1::4]
    error, other = ((to_linear(sample.frames[:, 0]) - mean).abs().mean() for mean in (middle, F.avg_pool2d(light, 4)))
    assert error < 0.005 < other


def test_processing_changes_frames_and_target_alike(smooth):
    processed = replace(CLEAN, processed=1.0, sharpening=(0.0, 0.0), jpeg=0.0, demosaicked=0.0, tone=0.8)
    sample = made(processed, smooth, period=60)
    plain = made(CLEAN, smooth, period=60)
    assert not torch.allclose(sample.target, plain.target, atol=0.02)  # the tone curve
    assert (F.avg_pool2d(sample.target, 4) - sample.frames[:, 0]).abs().mean() < 0.01


DEVELOPED = replace(
    CLEAN, processed=1.0, demosaicked=0.0, jpeg=0.0, tone=0.0, sharpening=(0.0, 0.0), sixteen_bit=0.0, frames=2
)


def test_white_balance_and_colours_are_undone(smooth):
    assert (made(DEVELOPED, smooth).frames - made(replace(CLEAN, frames=2), smooth).frames).abs().max() < 1.01 / 255


def detail(frames):
    return frames.diff(dim=-1).abs().mean()


def test_sharpening_and_smoothing(smooth):
    soft, plain, crisp = (detail(made(replace(DEVELOPED, sharpening=(s, s)), smooth).frames) for s in (-0.8, 0, 0.8))
    assert soft < 0.97 * plain and crisp > 1.03 * plain


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"jpeg": 60.0}, "jpeg must lie between 0 and 1, got 60"),
        ({"tripod": -0.1}, r"tripod must lie between 0 and 1, got -0\.1"),
        ({"exposure_drift": -1.0}, "exposure_drift must be at least 0, got -1"),
        ({"rotation": float("nan")}, "rotation must be at least 0, got nan"),
        ({"anisotropy": 0.5}, r"at least 1, got 0\.5"),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting, message):
    with pytest.raises(InputError, match=message):
        replace(synthesis_preset("handheld-rgb"), **setting)


@pytest.mark.parametrize("step", [{"demosaicked": 1.0}, {"jpeg": 1.0, "jpeg_quality": (80.0, 81.0)}])
def test_the_camera_leaves_its_traces_on_frames_alone(step):
    photos = torch.rand(2, 3, *[DEVELOPED.source_size(24)] * 2, generator=torch.Generator().manual_seed(0))
    plain, traced = (
        synthesize_burst(photos, replace(DEVELOPED, **changes), torch.Generator().manual_seed(0))
        for changes in ({}, step)
    )
    assert torch.equal(plain.target, traced.target)
    assert (plain.frames - traced.frames).abs().mean() > 2 / 255


def test_exposure_drifts_from_the_keyframe_on():
    config = replace(CLEAN, exposure_drift=0.1)
    photos = torch.full((40, 3, *[config.source_size(8)] * 2), 0.5)
    light = to_linear(synthesize_burst(photos, config, torch.Generator().manual_seed(0)).frames).mean((2, 3, 4))
    gain = (light / to_linear(torch.tensor(0.5))).log()
    assert gain[:, 0].abs().max() < 0.02 and gain[:, 1:].std().item() == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("preset", [RGB, RAW])
def test_hot_pixels_are_in_every_frame(preset):
    config = replace(preset.without_nuisance(), hot_pixels=1.0, processed=0.0, shot=(1e-12, 1.1e-12))
    photos = torch.full((2, 3, *[config.source_size(48)] * 2), 0.1)
    hot = (synthesize_burst(photos, config, torch.Generator().manual_seed(0)).frames > 0.25).float()
    assert torch.equal(hot, hot[:, :1].expand_as(hot)) and 0 < hot.mean() < 0.01


def test_raw_target_is_what_the_camera_sees(smooth):
    config = replace(RAW.without_nuisance(), shot=(1e-12, 1.1e-12), exposure_drift=0.0)
    sample = made(config, smooth, period=60)
    small = F.avg_pool2d(sample.target, 4)
    mosaic = sample.frames[:, 0, 0]
    for channel, (y, x) in enumerate(((0, 0), (0, 1), (1, 1))):
        assert (mosaic[:, y::2, x::2] - small[:, channel, y::2, x::2]).abs().max() < 0.01
    cameras = synthesize_burst(smooth(1, config.source_size(16), 30), config, torch.Generator(), cameras=True).cameras
    assert cameras[0].cfa == "RGGB" and cameras[0].linear and cameras[0].white_balance[1] == 1


def test_tripod_bursts_do_not_move(smooth):
    sample = made(replace(RGB, tripod=1.0, moving_object=0.0), smooth)
    assert sample.exact.to_frame.abs().max() < 1e-5


def test_changing_light_leaves_the_keyframe_alone(smooth):
    still, changing = (made(replace(CLEAN, changing_light=p, frames=3), smooth, batch=2) for p in (0.0, 1.0))
    assert torch.allclose(still.frames[:, 0], changing.frames[:, 0], atol=2 / 255)
    means = (changing.frames.mean((3, 4)) - changing.frames[:, :1].mean((3, 4)))[:, 1:]
    assert means.abs().mean() > 0.01 and means.std(dim=2).min() > 1e-3  # brightness and colour both change
    assert torch.equal(still.target, changing.target)


def test_a_repeated_keyframe_comes_with_maps_that_say_so(smooth):
    sample = made(replace(RGB, repeated_keyframe=1.0, frames=4), smooth, batch=3)
    assert torch.equal(sample.frames, sample.frames[:, :1].expand_as(sample.frames))
    assert sample.correspondence.to_frame.abs().max() == 0 and sample.correspondence.confidence.min() == 1


def test_duplicated_frames_are_copies(smooth):
    sample = made(replace(RGB, duplicated_frame=1.0, frames=5), smooth, batch=12)
    copies = 0
    for burst, maps in zip(sample.frames, sample.correspondence.to_frame, strict=True):
        same = [(i, j) for i in range(5) for j in range(i) if torch.equal(burst[i], burst[j])]
        copies += bool(same)
        assert all(torch.equal(maps[i], maps[j]) for i, j in same)
    assert copies >= 8  # a frame may be chosen to replace itself


def test_blurred_frames_lose_detail(smooth):
    config = replace(CLEAN, blurred_frame=1.0, frames=2, shift=(0.5, 0.6))
    sample = made(config, smooth, period=16)
    fine = sample.frames.diff(dim=-1).abs().mean((2, 3, 4))
    assert (fine[:, 1] < 0.9 * fine[:, 0]).all()


def test_unrelated_frames_are_not_to_be_trusted(smooth):
    config = replace(CLEAN, unrelated_frame=1.0, frames=2, overconfident=0.0)
    sample = made(config, smooth, batch=8)
    assert torch.equal(sample.exact.confidence[:, 1], torch.zeros(8, 1, 24, 24))
    assert sample.correspondence.confidence[:, 1].mean() < 0.45
    still = made(replace(config, tripod=1.0), smooth, batch=8).frames
    assert ((still[:, 1] - still[:, 0]).abs().mean((1, 2, 3)) > 0.03).all()


def test_given_maps_err_as_asked(smooth):
    config = replace(CLEAN, map_error=(0.1, 0.1001), local_map_error=0.0, wrong_map=0.0)
    sample = made(config, smooth, batch=64, size=8)
    error = (sample.correspondence.to_frame - sample.exact.to_frame)[:, 1:]
    assert error.std().item() == pytest.approx(0.1, rel=0.1)
    assert error.var((-2, -1)).max() < 1e-8  # one error for a whole frame
    back = (sample.correspondence.to_keyframe - sample.exact.to_keyframe)[:, 1:]
    assert torch.allclose(error, -back, atol=1e-5)
    local = made(replace(config, local_map_error=0.2), smooth, batch=64, size=8)
    spread = (local.correspondence.to_frame - local.exact.to_frame)[:, 1:].std((-2, -1))
    assert 0.02 < spread.mean() < 0.2


def test_one_frame_is_matched_to_the_wrong_place(smooth):
    config = replace(CLEAN, wrong_map=1.0, map_error=(1e-3, 1.1e-3), local_map_error=0.0)
    sample = made(config, smooth, batch=32)
    error = (sample.correspondence.to_frame - sample.exact.to_frame).norm(dim=2).mean((2, 3))
    assert ((error > 0.02).sum(1) == 1).all() and not error[:, 0].any()
    assert error.amax(1).median() > 2


def test_confidence_knows_most_of_what_is_wrong(smooth):
    config = replace(
        CLEAN, moving_object=1.0, object_missed=1.0, object_speed=(1.5, 2.0), overconfident=0.0, shift=(0.5, 1.0)
    )
    sample = made(config, smooth, batch=16, size=32)
    error = (sample.correspondence.to_frame - sample.exact.to_frame).norm(dim=2, keepdim=True)
    wrong, right = error > 1, (error < 0.5) & (sample.exact.confidence == 1)
    confidence = sample.correspondence.confidence
    assert confidence[wrong].mean() < 0.55 < 0.85 < confidence[right].mean()
    certain = made(replace(config, overconfident=1.0), smooth, batch=2, size=32)
    inside = certain.correspondence.confidence[certain.exact.confidence == 1]
    assert inside.median() == 1


def test_exact_mode_gives_the_truth(smooth):
    sample = made(replace(RGB, maps="exact"), smooth)
    assert sample.correspondence is sample.exact or torch.equal(sample.correspondence.to_frame, sample.exact.to_frame)


def test_lights_saturate(smooth):
    def share(probability):
        config = replace(CLEAN, saturated_lights=probability)
        photos = (2 * smooth(4, config.source_size(24), 12) - 0.4).clamp(0, 0.95)
        return (synthesize_burst(photos, config, torch.Generator().manual_seed(0)).target > 0.999).float().mean()

    assert share(0.0) == 0 and share(1.0) > 0.01


@pytest.mark.parametrize(("share", "white"), [(0.0, 255), (1.0, 65535)])
def test_depth(smooth, share, white):
    config = replace(RGB, processed=1.0, jpeg=0.0, sixteen_bit=share)
    levels = made(config, smooth).frames.double() * white
    assert (levels - levels.round()).abs().max() < 0.01
    if share:
        assert (levels / 257 - (levels / 257).round()).abs().max() > 0.4


def test_noise_range_favours_clean_bursts():
    config = replace(RGB, frames=2, processed=0.0)
    photos = torch.full((200, 3, config.source_size(8), config.source_size(8)), 0.5)
    cameras = synthesize_burst(photos, config, torch.Generator().manual_seed(0), cameras=True).cameras
    shot = torch.tensor([camera.noise[0] for camera in cameras])
    assert shot.min() >= 1e-4 and shot.max() <= 1.5e-2 and shot.max() > 8e-3
    assert (shot < 1.2e-3).float().mean() > 0.5  # below the middle of the logarithmic range


def digest(config, smooth, seed=7):
    sample = made(config, smooth, seed=seed, batch=2, size=16)
    rounded = (sample.frames * 1000).round().int().numpy().tobytes()
    return hashlib.sha256(rounded).hexdigest()


SCRIPT = """
import importlib.util, sys
from pathlib import Path
here = Path({here!r})
sys.path.insert(0, str(here))
spec = importlib.util.spec_from_file_location("waves", here / "conftest.py")
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
from test_synthesis_bursts import digest, RGB
print(digest(RGB, module.waves))
"""


def test_seeds_reproduce_across_processes(smooth):
    script = SCRIPT.format(here=str(__file__).rsplit("/", 1)[0])
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert other.stdout.strip() == digest(RGB, smooth)
    assert digest(RGB, smooth, seed=8) != digest(RGB, smooth)


class HostReads(TorchDispatchMode):
    """Collects operations that would make the host wait for a GPU."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if any(name in str(function) for name in ("_local_scalar_dense", "nonzero", "unique", "masked_select")):
            self.found.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["handheld-rgb", "handheld-raw", "synburst"])
def test_nothing_waits_for_the_device(name, smooth):
    config = synthesis_preset(name)
    photos = smooth(2, config.source_size(16), 20)
    with HostReads() as reads:
        synthesize_burst(photos, config, torch.Generator().manual_seed(0))
    assert reads.found == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", ["handheld-rgb", "handheld-raw", "synburst"])
def test_cpu_and_gpu_agree(name, smooth):
    config = synthesis_preset(name)
    photos = smooth(4, config.source_size(32), 20)
    here = synthesize_burst(photos, config, torch.Generator().manual_seed(1))
    there = synthesize_burst(photos.cuda(), config, torch.Generator().manual_seed(1)).to("cpu")
    assert torch.allclose(here.exact.to_frame, there.exact.to_frame, atol=1e-3)
    assert torch.allclose(here.target, there.target, atol=1e-3)
    assert (here.frames - there.frames).abs().mean() < 2e-3


@pytest.mark.parametrize("config", [RGB, RAW, synthesis_preset("synburst")])
@pytest.mark.parametrize("maps", ["exact", "estimated"])
def test_strengths_of_zero(config, maps, smooth):
    names = ("shift", "shot", "read_ratio", "lens_blur", "object_speed", "map_error")
    still = replace(config, maps=maps, **dict.fromkeys(names, (0.0, 0.0)))
    sample = made(still, smooth, size=16)
    assert all(torch.isfinite(tensor).all() for tensor in (sample.frames, *vars(sample.correspondence).values()))


def test_without_motion_and_noise_frames_are_alike(smooth):
    still = replace(CLEAN, rotation=0.0, perspective=0.0, rolling_shutter=0.0, maps="exact")
    still = replace(still, shift=(0.0, 0.0), shot=(0.0, 0.0), lens_blur=(0.0, 0.0))
    sample = made(still, smooth)
    assert not sample.correspondence.to_frame.any()
    assert torch.equal(sample.frames, sample.frames[:, :1].expand_as(sample.frames))
    mean = F.avg_pool2d(to_linear(sample.target), 4)
    assert (to_linear(sample.frames[:, 0]) - mean).abs().max() < 0.005  # nothing but 8 bits


def test_sizes_invert():
    for size in (8, 32, 48, 160, 512):
        assert RGB.lr_size(RGB.source_size(size)) == size
        assert RGB.lr_size(RGB.source_size(size) + 1) == size
    assert RGB.lr_size(RGB.source_size(32) - 1) == 30


def test_errors():
    with pytest.raises(InputError, match="pipeline must be one of handheld-rgb, handheld-raw, synburst, got 'film'"):
        SynthesisConfig(pipeline="film")
    with pytest.raises(InputError, match="no synthesis preset 'film'; choose one of handheld-rgb"):
        synthesis_preset("film")
    with pytest.raises(InputError, match="maps must be exact or estimated"):
        replace(RGB, maps="none")
    with pytest.raises(InputError, match="at least one frame, got frames=0"):
        replace(RGB, frames=0)
    for setting, message in (
        ({"shift": (0.0, 2.0)}, r"shift is drawn log-uniformly, got \(0, 2\); begin above 0, or set both to 0"),
        ({"read_ratio": (-1.0, 2.0)}, r"read_ratio must be at least 0, got \(-1, 2\)"),
        ({"lens_blur": (-1.0, 2.0)}, "lens_blur must be at least 0"),
        ({"shot": (2.0, 1.0)}, r"shot is a pair \(lowest, highest\), got \(2, 1\); exchange them"),
        ({"object_radius": (0.0, 0.0)}, "moving_object=0 leaves objects out"),
    ):
        with pytest.raises(InputError, match=message):
            replace(RGB, **setting)
    with pytest.raises(InputError, match="60 pixels are too small for a burst; at least"):
        synthesize_burst(torch.rand(1, 3, 60, 60), RGB, torch.Generator())
    with pytest.raises(InputError, match=r"float \(b, 3, H, W\) in \[0, 1\], got torch.uint8"):
        synthesize_burst(torch.zeros(1, 3, 200, 200, dtype=torch.uint8), RGB, torch.Generator())
