"""Jobs in this process: every kind of frame in, every kind of picture out."""

import errno
import json
import multiprocessing
import os

import cv2
import numpy as np
import pytest
import torch
from PIL import Image, ImageCms
from restore_runs import scene, tiny_checkpoint, write_burst, write_dng_burst
from torch import nn

import burstmamba.restoration.job as job_module
from burstmamba.errors import InputError
from burstmamba.model.config import ModelConfig
from burstmamba.restoration.batch import BatchItem, plan_batch, run_batch
from burstmamba.restoration.job import JobSettings, run_job


class Interpolation(nn.Module):
    """Stands in for the network where pictures must be right: bicubic, and superpixels for a mosaic."""

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        self.config = ModelConfig(in_channels=in_channels)

    def forward(self, frames, maps):
        keyframe = frames[:, 0]
        if self.config.in_channels == 1:
            planes = nn.functional.pixel_unshuffle(keyframe, 2)
            keyframe = torch.stack((planes[:, 0], planes[:, 1:3].mean(1), planes[:, 3]), 1)
        size = (4 * frames.shape[-2], 4 * frames.shape[-1])
        return nn.functional.interpolate(keyframe, size, mode="bicubic", align_corners=False)


@pytest.fixture
def interpolation(monkeypatch):
    """Every model name loads the stand-in."""
    monkeypatch.setattr(
        job_module, "load_model", lambda name, device: Interpolation(1 if str(name).endswith("-raw") else 3)
    )
    monkeypatch.setattr(job_module, "shipped_models", lambda: ["light", "light-raw"])


def picture(path):
    return np.asarray(Image.open(path)).astype(float)


@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_scales_are_averages_of_the_whole(interpolation, burst, tmp_path, scale):
    report = run_job(burst, tmp_path / "out.png", JobSettings(scale=scale))
    assert report.size == (48 * scale, 40 * scale)
    got = picture(tmp_path / "out.png")
    assert got.shape == (40 * scale, 48 * scale, 3)
    keyframe = Image.open(burst / "shot 0.png")
    expected = np.asarray(keyframe.resize((48 * scale, 40 * scale), Image.Resampling.BICUBIC)).astype(float)
    assert np.abs(got - expected)[4:-4, 4:-4].mean() < 4


def test_a_crop_shows_that_part(interpolation, burst, tmp_path):
    run_job(burst, tmp_path / "whole.png")
    run_job(burst, tmp_path / "part.png", JobSettings(crop=(10, 4, 20, 30)))
    whole, part = picture(tmp_path / "whole.png"), picture(tmp_path / "part.png")
    assert np.abs(part - whole[16:136, 40:120]).max() <= 1


@pytest.mark.parametrize("ending", ["png", "tif", "jpg", "webp", "avif"])
def test_every_format_is_written(interpolation, burst, tmp_path, ending):
    run_job(burst, tmp_path / f"out.{ending}")
    reference = np.asarray(Image.open(burst / "shot 0.png").resize((192, 160), Image.Resampling.BICUBIC)).astype(float)
    assert np.abs(picture(tmp_path / f"out.{ending}") - reference).mean() < 6


@pytest.mark.parametrize("ending", ["png", "tif", "jpg", "webp", "avif"])
def test_exif_profile_and_orientation_are_kept(interpolation, tmp_path, ending):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    frames = tmp_path / "shots"
    frames.mkdir()
    exif = Image.Exif()
    exif[0x0112], exif[0x0110] = 6, "Acme Testcam"
    exif[0x8769] = {0x829A: 0.01, 0x9003: "2024:05:06 07:08:09"}
    whole = scene(56, 64)
    for i in range(2):
        shot = Image.fromarray(whole[i : i + 40, i : i + 48])
        shot.save(frames / f"{i}.jpg", exif=exif, icc_profile=profile, quality=95)
    run_job(frames, tmp_path / f"out.{ending}")
    with Image.open(tmp_path / f"out.{ending}") as restored:
        assert restored.size == (160, 192)  # upright: the frames lie on their side
        found = restored.getexif()
        assert found[0x0110] == "Acme Testcam" and found.get(0x0112, 1) == 1
        assert found.get_ifd(0x8769)[0x9003] == "2024:05:06 07:08:09"
        assert restored.info["icc_profile"] == profile


def test_the_best_frames_of_a_long_clip(interpolation, tmp_path):
    clip, whole = tmp_path / "a clip.mp4", scene(80, 120)
    writer = cv2.VideoWriter(str(clip), cv2.VideoWriter_fourcc(*"mp4v"), 30, (64, 48))
    if not writer.isOpened():
        pytest.skip("this OpenCV cannot write MP4")
    for i in range(40):
        y, x = i % 7, i % 11
        writer.write(np.ascontiguousarray(whole[y : y + 48, x : x + 64, ::-1]))
    writer.release()
    report = run_job(clip, None, JobSettings(burst_length=5))
    assert len(report.frames) == 5 and report.keyframe == "a clip.mp4#0"
    assert any(note.startswith("the best 5 of") and "by sharpness and overlap" in note for note in report.notes)


@pytest.mark.parametrize("cfa", ["RGGB", "BGGR", "GRBG", "GBRG"])
def test_raw_frames_are_developed_in_the_right_colours(interpolation, tmp_path, cfa):
    shots = write_dng_burst(tmp_path / cfa, cfa)
    report = run_job(shots, tmp_path / "out.png", JobSettings(compare=str(tmp_path / "compare.png")))
    assert report.model == "light-raw" and Image.open(report.compare).size[0] > 1000
    red, green, blue = picture(tmp_path / "out.png")[20:-20, 20:-20].mean((0, 1))
    assert red > green + 10 > blue + 20  # the card's light is 1.2 : 0.8 : 0.6
    linear = run_job(shots, tmp_path / "linear.tif", JobSettings(linear=True, bits=16))
    assert linear.output.endswith("linear.tif")
    import tifffile

    card = tifffile.imread(tmp_path / "linear.tif")[20:-20, 20:-20].mean((0, 1))
    np.testing.assert_allclose(card / card[1], [1.5, 1, 0.75], rtol=0.03)
    run_job(shots, tmp_path / "out.dng")
    assert (tmp_path / "out.dng").stat().st_size > 6 * 160 * 160


def test_a_tripod_is_said(interpolation, tmp_path):
    frames = tmp_path / "still"
    frames.mkdir()
    noise = np.random.default_rng(0)
    for i in range(3):
        noisy = scene(64, 64) + noise.normal(0, 4, (64, 64, 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(frames / f"{i}.png")
    said = []
    report = run_job(frames, None, say=said.append)
    assert any("nothing moved between the frames" in line for line in said) and report.motion < 0.25
    as_they_are = run_job(frames, None, JobSettings(correspondence="identity"))
    assert not any("nothing moved" in note for note in as_they_are.notes)  # nobody has looked


def test_what_the_estimator_found_is_said(interpolation, burst):
    said = []
    report = run_job(burst, None, say=said.append)
    assert report.estimator.startswith("auto (") and any(
        line.endswith(f"estimator {report.estimator}") for line in said
    )
    assert run_job(burst, None, JobSettings(correspondence="homography")).estimator == "homography"


def test_what_a_format_cannot_hold_is_refused_before_the_network(interpolation, tmp_path, monkeypatch):
    Image.fromarray(scene(40, 5000)[:3]).save(tmp_path / "strip.png")
    monkeypatch.setattr(Interpolation, "forward", lambda self, frames, maps: pytest.fail("the network ran"))
    with pytest.raises(InputError, match="WEBP holds at most 16383 pixels a side, the image is 20000×12"):
        run_job(tmp_path / "strip.png", tmp_path / "out.webp")
    assert run_job(tmp_path / "strip.png", None).size == (20000, 12)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (3, 500), (500, 3), (9, 13)])
def test_bursts_of_tiny_and_narrow_frames(interpolation, tmp_path, capfd, height, width):
    whole = scene(512, 512)
    for i in range(3):
        Image.fromarray(whole[i : i + height, 2 * i : 2 * i + width]).save(tmp_path / f"{i}.png")
    report = run_job(tmp_path, tmp_path / "out.png")
    assert report.size == picture(tmp_path / "out.png").shape[1::-1] == (4 * width, 4 * height)
    assert report.frames[0]["kept"] and len(report.frames) == 3
    assert capfd.readouterr() == ("", "")  # what is to be said is in the report


def test_keyframe_and_burst_length(interpolation, burst):
    report = run_job(burst, None, JobSettings(keyframe="2", burst_length=2))
    assert report.keyframe == "shot 2.png" and report.keyframe_reason == "as asked for"
    assert len(report.frames) == 2
    assert run_job(burst, None, JobSettings(keyframe="sharpest")).keyframe_reason == "the sharpest frame"


def test_a_large_result_is_spooled_to_a_file(interpolation, burst, tmp_path, monkeypatch):
    import burstmamba.restoration.canvas as canvas

    run_job(burst, tmp_path / "memory.png", JobSettings(tile=48))
    monkeypatch.setattr(canvas, "IN_MEMORY", 1000)
    monkeypatch.setattr(canvas, "FREE_SHARE", 0)
    run_job(burst, tmp_path / "file.png", JobSettings(tile=48))
    assert (picture(tmp_path / "file.png") == picture(tmp_path / "memory.png")).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.png", "memory.png"]


@pytest.mark.skipif(os.name != "posix", reason="files without a name are POSIX's")
def test_a_killed_program_leaves_no_spooled_picture(interpolation, burst, tmp_path, monkeypatch):
    """The file that holds a large picture has no name while the network runs."""
    import burstmamba.restoration.canvas as canvas

    def forward(self, frames, maps):
        seen.append(sorted(path.name for path in tmp_path.iterdir()))
        return whole(self, frames, maps)

    seen, whole = [], Interpolation.forward
    monkeypatch.setattr(canvas, "IN_MEMORY", 1000)
    monkeypatch.setattr(canvas, "FREE_SHARE", 0)
    monkeypatch.setattr(Interpolation, "forward", forward)
    run_job(burst, tmp_path / "out.png", JobSettings(tile=48))
    assert seen and not any(seen)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs a system that reserves room for a file")
def test_a_full_disk_is_seen_before_a_large_result_is_spooled(interpolation, burst, tmp_path, monkeypatch):
    import burstmamba.restoration.canvas as canvas

    def full(descriptor, offset, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(canvas, "IN_MEMORY", 1000)
    monkeypatch.setattr(canvas, "FREE_SHARE", 0)
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(Interpolation, "forward", lambda self, frames, maps: pytest.fail("the network ran"))
    with pytest.raises(InputError, match=r"out\.png could not be written: the disk is full"):
        run_job(burst, tmp_path / "out.png")
    assert not list(tmp_path.iterdir())


def test_a_large_burst_is_aligned_in_pairs(interpolation, burst, tmp_path, monkeypatch):
    import burstmamba.restoration.pairwise as pairwise

    together = run_job(burst, None)
    monkeypatch.setattr(pairwise, "SEVERAL", 1)
    apart = run_job(burst, None)
    assert [frame["name"] for frame in apart.frames] == [frame["name"] for frame in together.frames]
    for one, other in zip(together.frames, apart.frames, strict=True):
        np.testing.assert_allclose(one["motion"], other["motion"], atol=0.1)
        assert one["index"] == other["index"] and one["kept"] == other["kept"]


def test_notes_of_pairs_are_put_together(interpolation, tmp_path, monkeypatch):
    import burstmamba.restoration.pairwise as pairwise

    frames = write_burst(tmp_path / "drift", count=4)
    for i in (1, 3):
        darker = picture(frames / f"shot {i}.png") * 0.8
        Image.fromarray(darker.astype(np.uint8)).save(frames / f"shot {i}.png")
    Image.fromarray(scene(40, 48, seed=9)).save(frames / "shot 2.png")
    monkeypatch.setattr(pairwise, "SEVERAL", 1)
    apart = run_job(frames, None)
    assert len(apart.notes) == 2 and len([frame for frame in apart.frames if frame["kept"]]) == 3
    assert any(note.endswith("shot 1.png, shot 3.png.") for note in apart.notes)
    assert any(note.startswith("shot 2.png is left out") for note in apart.notes)


def test_every_stage_tells_how_far_it_is(interpolation, burst, tmp_path, monkeypatch):
    import burstmamba.restoration.pairwise as pairwise

    monkeypatch.setattr(pairwise, "SEVERAL", 1)
    steps = []
    run_job(burst, tmp_path / "out.png", progress=lambda *step: steps.append(step))
    assert list(dict.fromkeys(stage for stage, _, _ in steps)) == ["load", "align", "restore", "save"]
    assert [step for step in steps if step[0] == "load"] == [("load", 1, 3), ("load", 2, 3), ("load", 3, 3)]
    for stage in ("load", "align", "restore", "save"):
        _, done, total = [step for step in steps if step[0] == stage][-1]
        assert done == total


def test_stopping_the_alignment_begins_no_further_pair(interpolation, tmp_path, monkeypatch):
    import burstmamba.restoration.pairwise as pairwise

    begun = []
    align_one = pairwise.align_frame
    monkeypatch.setattr(pairwise, "SEVERAL", 1)
    monkeypatch.setattr(pairwise, "pairs_at_once", lambda pixels: 1)
    monkeypatch.setattr(pairwise, "align_frame", lambda *given: begun.append(given[2]) or align_one(*given))

    def stop(stage, done, total):
        if stage == "align" and total > 1:
            raise KeyboardInterrupt

    threads = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        run_job(write_burst(tmp_path / "long", count=9), None, progress=stop)
    assert len(begun) < 4 and torch.get_num_threads() == threads


def test_the_report_is_json(interpolation, burst):
    report = json.loads(json.dumps(run_job(burst, None).to_dict()))
    assert report["output"] == "" and report["frames"][0]["kept"] is True


def test_batches_run_on_ray(burst, tmp_path):
    pytest.importorskip("ray", reason="needs the extra `batch` (ray)")
    model = tiny_checkpoint(tmp_path / "tiny.safetensors")
    shots = tuple(str(path) for path in sorted(burst.iterdir()))
    items = [BatchItem(str(i), shots, str(tmp_path / f"{i}.png")) for i in range(2)]
    results = list(run_batch(items, JobSettings(model=str(model)), ray_address="local"))
    assert sorted(result.item.name for result in results) == ["0", "1"] and not any(r.error for r in results)
    assert (tmp_path / "1.png").exists()


def test_ray_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'burstmamba\[batch\]'"):
        list(run_batch([], JobSettings(), ray_address="local"))


def test_results_inside_the_folder_are_no_burst(interpolation, tmp_path):
    for name in ("a", "b"):
        write_burst(tmp_path / name)
    first = plan_batch(tmp_path, tmp_path / "restored")
    assert [item.name for item in first] == ["a", "b"]
    assert all(result.report for result in run_batch(first, JobSettings()))
    assert plan_batch(tmp_path, tmp_path / "restored") == first


def test_bad_bursts_do_not_stop_a_batch(interpolation, burst, tmp_path):
    (tmp_path / "bad.jpg").write_text("nothing")
    shots = tuple(str(path) for path in sorted(burst.iterdir()))
    items = [
        BatchItem("bad", (str(tmp_path / "bad.jpg"),), str(tmp_path / "bad.png")),
        BatchItem("good", shots, str(tmp_path / "sub" / "good.png")),
    ]
    bad, good = run_batch(items, JobSettings())
    assert "bad.jpg" in bad.error and good.error is None and (tmp_path / "sub" / "good.png").exists()
    assert [result.skipped for result in run_batch(items, JobSettings())] == [False, True]


def test_a_worker_that_is_killed_costs_its_bursts_alone(burst, tmp_path):
    """As the system does when memory runs out: what was not done is said, and the summary still comes."""
    model = tiny_checkpoint(tmp_path / "tiny.safetensors")
    shots = tuple(str(path) for path in sorted(burst.iterdir()))
    items = [BatchItem(str(i), shots, str(tmp_path / f"{i}.png")) for i in range(12)]
    results = run_batch(items, JobSettings(model=str(model)), workers=2)
    seen = [next(results)]
    for worker in multiprocessing.active_children():
        worker.kill()
    seen.extend(results)
    assert sorted(result.item.name for result in seen) == sorted(item.name for item in items)
    lost = [result for result in seen if result.error]
    assert lost and all("a worker was ended" in result.error for result in lost)
    assert all((tmp_path / f"{result.item.name}.png").exists() for result in seen if result.report)
