"""restore_burst with stand-in networks whose right answer is known."""

import threading
import time
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import burstmamba.restoration.restore as restore_module
from burstmamba.burst import Burst, Camera
from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import ModelConfig, preset
from burstmamba.restoration.ensemble import TURNS
from burstmamba.restoration.restore import Restoration, restore_burst
from burstmamba.restoration.runner import Runner, in_half, is_out_of_memory
from burstmamba.restoration.tiles import Box


class LocalNetwork(nn.Module):
    """Gathers filtered frames, trusts them by their confidence, interpolates: purely local."""

    def __init__(self, in_channels: int = 3, scale: int = 4) -> None:
        super().__init__()
        self.config = ModelConfig(in_channels=in_channels, scale=scale)
        self.calls: list[tuple[int, ...]] = []
        self.eval()

    def forward(self, frames, maps):
        self.calls.append(tuple(frames.shape))
        b, l, c, h, w = frames.shape
        blurred = F.avg_pool2d(F.pad(frames.flatten(0, 1), (1, 1, 1, 1), "replicate"), 3, 1).view(b, l, c, h, w)
        features = 2 * frames - blurred
        if maps is not None:
            features = maps.gather(features)
            weight = torch.ones_like(features[:, :, :1]) if maps.confidence is None else maps.confidence + 0.1
            features = (features * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
        picture = features[:, 0].expand(-1, 3, -1, -1)
        return F.interpolate(picture, scale_factor=self.config.scale, mode="bicubic", align_corners=False)


def moving_burst(l=4, h=150, w=131, seed=0):
    """Random frames with a large, non-rigid motion; smooth, since float32 coordinates are exact to 1e-5 pixels only."""
    generator = torch.Generator().manual_seed(seed)
    frames = F.interpolate(torch.rand(l, 3, h // 10, w // 10, generator=generator), (h, w), mode="bicubic").clamp(0, 1)
    coarse = torch.randn(l, 2, 2, 2, generator=generator)
    local = F.interpolate(coarse, (h, w), mode="bilinear", align_corners=True)
    shift = torch.randn(l, 2, 1, 1, generator=generator) * 12
    to_frame = (local + shift) * (torch.arange(l) > 0).view(l, 1, 1, 1)
    confidence = F.interpolate(torch.rand(l, 1, 5, 5, generator=generator), (h, w), mode="bilinear")
    return Burst(frames), Correspondence(to_frame[None], -to_frame[None], confidence[None])


@pytest.mark.parametrize("tile", [48, 66, 100, 128])
def test_the_tile_size_does_not_matter(tile):
    burst, maps = moving_burst()
    whole = restore_burst(LocalNetwork(), burst, correspondence=maps, tile=1000)
    tiled = restore_burst(LocalNetwork(), burst, correspondence=maps, tile=tile)
    assert whole.shape == (3, 600, 524)
    torch.testing.assert_close(tiled, whole, atol=1e-6, rtol=0)


def test_values_of_the_whole_window():
    burst, _ = moving_burst(h=40, w=30)
    still = Correspondence.identity(burst.frames[None])
    expected = LocalNetwork()(burst.frames[None], still)[0].clamp(0, 1)
    torch.testing.assert_close(restore_burst(LocalNetwork(), burst, correspondence=still), expected)


def test_windows_are_equal_in_size():
    burst, maps = moving_burst()
    network = LocalNetwork()
    restore_burst(network, burst, correspondence=maps, tile=64)
    assert len(set(network.calls)) == 1


def test_bands_are_the_picture_from_top_to_bottom():
    burst, maps = moving_burst()
    restoration = Restoration(LocalNetwork(), burst, correspondence=maps, tile=64)
    bands = list(restoration.bands())
    assert len(bands) > 2 and all(band.shape[1] <= 64 * 4 for band in bands)
    torch.testing.assert_close(torch.cat(bands, 1), restore_burst(LocalNetwork(), burst, correspondence=maps, tile=64))


@pytest.mark.parametrize("crop", [Box(0, 0, 20, 30), Box(61, 33, 80, 71), Box(149, 130, 1, 1)])
def test_a_crop_is_a_part_of_the_whole(crop):
    burst, maps = moving_burst()
    whole = restore_burst(LocalNetwork(), burst, correspondence=maps, tile=1000)
    part = Restoration(LocalNetwork(), burst, correspondence=maps, tile=50, crop=crop).image()
    rows, columns = (
        slice(4 * crop.top, 4 * (crop.top + crop.height)),
        slice(4 * crop.left, 4 * (crop.left + crop.width)),
    )
    torch.testing.assert_close(part, whole[:, rows, columns], atol=1e-6, rtol=0)


@pytest.mark.parametrize("fails_at", [0, 2])
def test_out_of_memory_halves_the_windows(fails_at):
    burst, maps = moving_burst()

    class Small(LocalNetwork):
        def forward(self, frames, maps):
            if len(self.calls) >= fails_at and frames.shape[-1] > 60:
                raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
            return super().forward(frames, maps)

    restoration = Restoration(Small(), burst, correspondence=maps, tile=100)
    expected = restore_burst(LocalNetwork(), burst, correspondence=maps, tile=1000)
    torch.testing.assert_close(restoration.image(), expected, atol=1e-6, rtol=0)
    assert restoration.report.tile == 50


def test_other_errors_are_not_retried():
    class Broken(LocalNetwork):
        def forward(self, frames, maps):
            raise RuntimeError("size mismatch")

    with pytest.raises(RuntimeError, match="size mismatch"):
        restore_burst(Broken(), moving_burst()[0].select([0]))


def mosaic_of(rgb, cfa):
    """(l, 3, h, w) → (l, 1, h, w): what a sensor with this filter sees."""
    mosaic = torch.empty_like(rgb[:, :1])
    for k, color in enumerate(cfa):
        mosaic[:, 0, k // 2 :: 2, k % 2 :: 2] = rgb[:, "RGB".index(color), k // 2 :: 2, k % 2 :: 2]
    return mosaic


class RedFirst(nn.Module):
    """Demosaics by superpixels of a window that must start with red; wrong phase gives wrong colours."""

    def __init__(self):
        super().__init__()
        self.config = ModelConfig(in_channels=1, scale=2)

    def forward(self, frames, maps):
        mosaic = F.pad(frames[:, 0], (0, frames.shape[-1] % 2, 0, frames.shape[-2] % 2), "replicate")
        red, green, blue = mosaic[..., ::2, ::2], mosaic[..., ::2, 1::2], mosaic[..., 1::2, 1::2]
        picture = F.interpolate(torch.cat((red, green, blue), 1), scale_factor=4, mode="nearest")
        return picture[..., : 2 * frames.shape[-2], : 2 * frames.shape[-1]]


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("cfa", ["RGGB", "BGGR", "GRBG", "GBRG"])
def test_a_mosaic_keeps_its_colours(cfa, ensemble):
    flat = torch.tensor([0.2, 0.5, 0.8]).view(1, 3, 1, 1).expand(2, 3, 90, 101)
    burst = Burst(mosaic_of(flat, cfa), Camera(cfa=cfa, linear=True))
    maps = Correspondence(*[torch.full((1, 2, 2, 90, 101), 3.0) * torch.tensor([0, 1]).view(1, 2, 1, 1, 1)] * 2)
    restored = restore_burst(RedFirst(), burst, correspondence=maps, tile=48, ensemble=ensemble)
    inner = restored[:, 4:-4, 4:-4]  # an odd width ends on half a superpixel
    torch.testing.assert_close(inner, flat[0, :, :1, :1].expand_as(inner), atol=1e-6, rtol=0)


def test_turns_are_the_square_s_symmetries_and_are_undone():
    burst, maps = moving_burst(h=30, w=22)
    frames = burst.frames[None]
    corners = {tuple(turn.picture(torch.arange(6.0).view(2, 3)).flatten().tolist()) for turn in TURNS}
    assert len(corners) == 8
    for turn in TURNS:
        torch.testing.assert_close(turn.undo(turn.picture(frames)), frames)
        turned = turn.undo(turn.maps(maps).gather(turn.picture(frames)))
        torch.testing.assert_close(turned, maps.gather(frames), atol=1e-5, rtol=0)


def test_the_ensemble_of_a_symmetric_network_changes_nothing():
    burst, maps = moving_burst(h=70, w=60)
    plain = restore_burst(LocalNetwork(), burst, correspondence=maps, tile=48)
    network = LocalNetwork()
    torch.testing.assert_close(
        restore_burst(network, burst, correspondence=maps, tile=48, ensemble=True), plain, atol=1e-5, rtol=0
    )
    assert len(network.calls) == 8 * 4


def test_a_single_frame_runs_without_maps():
    burst, _ = moving_burst(l=1, h=33, w=20)
    restoration = Restoration(LocalNetwork(), burst)
    assert restoration.image().shape == (3, 132, 80)
    assert restoration.report.estimator == "none" and restoration.report.frames == 1


@pytest.mark.parametrize("size", [(1, 1), (3, 500), (2, 49)])
def test_awkward_sizes(size):
    burst = Burst(torch.rand(2, 3, *size))
    still = Correspondence.identity(burst.frames[None])
    assert restore_burst(LocalNetwork(), burst, correspondence=still, tile=48).shape == (3, 4 * size[0], 4 * size[1])


def test_a_single_image_model_says_what_it_ignores():
    network = LocalNetwork()
    network.config = preset("light-single")
    restoration = Restoration(network, moving_burst()[0])
    assert "only the keyframe is used" in restoration.report.notes[0] and len(restoration.burst) == 1


def test_progress_and_report():
    burst, maps = moving_burst()
    steps = []
    restoration = Restoration(
        LocalNetwork(), burst, correspondence=maps, tile=64, progress=lambda *step: steps.append(step)
    )
    assert restoration.estimate_seconds() > 0
    restoration.image()
    report = restoration.report
    assert steps[-1] == ("restore", 16 * 12, 16 * 12) and report.tiles == 12
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    assert report.frames == 4 and report.estimator == "given" and report.seconds["network"] > 0
    assert 0 <= report.clipped < 0.1


@pytest.mark.parametrize("crop", [None, Box(20, 30, 60, 64)])
def test_the_estimate_is_about_right(crop):
    class Slow(LocalNetwork):
        """Takes a time in proportion to the window's area, and half a second at first."""

        begun = False

        def forward(self, frames, maps):
            time.sleep(2e-5 * frames.shape[-2] * frames.shape[-1] + 0.5 * (not self.begun))
            self.begun = True
            return super().forward(frames, maps)

    burst, maps = moving_burst()
    restoration = Restoration(Slow(), burst, correspondence=maps, tile=80, crop=crop)
    estimate = restoration.estimate_seconds()
    restoration.image()
    assert 0.5 < estimate / restoration.report.seconds["network"] < 2


def test_progress_inside_a_window_can_stop_the_work():
    class Stop(Exception):
        pass

    seen = []

    def progress(stage, done, total):
        seen.append(done / total)
        if done / total > 0.5:
            raise Stop

    model = BurstMamba(preset("tiny"))
    with pytest.raises(Stop):
        restore_burst(model, Burst(torch.rand(1, 3, 12, 10)), progress=progress)
    assert len(seen) == 3 and 0 < seen[1] < 0.5  # the network has two stages
    assert not any(stage._forward_hooks for stage in model.keyframe.stages)


def test_errors():
    with pytest.raises(InputError, match="use load_model or BurstMamba"):
        restore_burst(nn.Identity(), Burst(torch.rand(1, 3, 8, 8)))
    with pytest.raises(InputError, match=r"expected a Burst, got Tensor; use load_burst or Burst\.from_arrays"):
        restore_burst(LocalNetwork(), torch.rand(2, 3, 8, 8))
    burst, maps = moving_burst(h=30, w=30)
    with pytest.raises(InputError, match="reads RAW mosaics and the burst is RGB"):
        restore_burst(LocalNetwork(in_channels=1), burst)
    with pytest.raises(InputError, match="name ends in -raw"):
        restore_burst(LocalNetwork(), Burst(burst.frames[:, :1], Camera(cfa="RGGB")))
    with pytest.raises(InputError, match=r"tile must be at least 48 pixels .* got 16"):
        restore_burst(LocalNetwork(), burst, tile=16)
    with pytest.raises(InputError, match="inside the 30×30 frames, got 10×8 at x 25, y 0"):
        Restoration(LocalNetwork(), burst, correspondence=maps, crop=Box(0, 25, 8, 10))
    with pytest.raises(InputError, match=r"maps \(1, 3, 2, 30, 30\) for this burst, got \(1, 4, 2, 30, 30\)"):
        restore_burst(LocalNetwork(), burst.select([0, 1, 2]), correspondence=maps)
    maps.to_keyframe[0, 1, 0, 5, 5] = float("nan")
    with pytest.raises(InputError, match="correspondence holds values that are not finite"):
        restore_burst(LocalNetwork(), burst, correspondence=maps)


def test_the_caller_s_model_and_frames_stay_as_they_are():
    """A preview during training: it is made in evaluation mode, and training goes on."""
    torch.manual_seed(0)
    model = BurstMamba(replace(preset("tiny"), drop_path=0.9))
    burst = Burst(torch.rand(1, 3, 16, 16).requires_grad_())
    expected = restore_burst(model.eval(), burst)
    model.train()
    model.keyframe.norm.eval()
    torch.testing.assert_close(restore_burst(model, burst), expected)
    assert model.training and model.keyframe.stages.training and not model.keyframe.norm.training


def test_tiles_follow_free_memory(monkeypatch):
    import burstmamba.restoration.runner as runner

    sizes = []
    for free in (2**27, 2**29, 2**31, 2**40):
        monkeypatch.setattr(runner, "free_memory", lambda device, free=free: free)
        sizes.append(runner.fitting_tile(preset("light"), 14, torch.device("cpu")))
    assert sizes == sorted(sizes) and sizes[0] >= 48 and sizes[-1] <= 192 and sizes[0] < sizes[-1]
    assert restore_module.SMALLEST_TILE == 48


@pytest.mark.parametrize("channels", [12, 15])
def test_half_weights_change_nothing_but_rounding(channels):
    """In a network whose channels have to be filled up, and with products that are made ahead."""
    torch.manual_seed(0)
    model = BurstMamba(replace(preset("tiny"), channels=channels, burst_channels=6)).eval()
    for parameter in model.burst.projections.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    frames = torch.rand(1, 3, 3, 12, 14)
    with torch.inference_mode():
        expected = model(frames)
        with torch.autocast("cpu", torch.bfloat16):
            found, rounded = in_half(model)(frames), model(frames)
    assert (rounded - expected).abs().max() > 1e-4  # rounding can be told from none
    assert (found - expected).abs().mean() < 1.5 * (rounded - expected).abs().mean()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.keyframe.stages[0].blocks[0].scan.in_proj.weight.shape == (4 * channels, channels)


def test_memory_that_a_library_lacks():
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))


def test_other_threads_are_not_watched():
    """Two callers may share a network; each hears of its own work."""
    model, told = BurstMamba(preset("tiny")).eval(), []
    frames = torch.rand(1, 1, 3, 16, 16)
    with Runner(model).watched(told.append):
        other = threading.Thread(target=lambda: model(frames))
        other.start()
        other.join()
        assert not told
        model(frames)
    assert told == pytest.approx([1 / 3, 2 / 3])
