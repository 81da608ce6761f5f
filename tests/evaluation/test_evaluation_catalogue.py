"""Folders are recognised and scored by their own protocols; estimated maps are kept and reused."""

import pickle
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from test_evaluation_baselines import SHIFTS, detailed_scene, take_burst
from typer.testing import CliRunner

from burstmamba.burst import Burst
from burstmamba.cli import build_app
from burstmamba.data.folders import write_burst
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.evaluation.alignment_cache import AlignmentCache
from burstmamba.evaluation.catalogue import find_layout, open_benchmark
from burstmamba.evaluation.evaluate import Evaluation
from burstmamba.evaluation.reconstruct import Method


def rgb_sample(lr=40, frames=3):
    burst, maps, target = take_burst(detailed_scene(4 * lr + 32), lr, SHIFTS[:frames])
    return Sample(burst, target, correspondence=maps, exact=maps)


def test_plain_bursts(tmp_path):
    write_burst(tmp_path, "one", rgb_sample())
    assert find_layout(tmp_path) == "bursts"
    (item,) = open_benchmark(tmp_path).items
    assert item.protocols == ("openburst",) and item.centres == "half-pixel"
    assert item.load().frames.shape == (1, 3, 3, 40, 40)
    book = Evaluation(open_benchmark(tmp_path), [Method("bicubic")], tmp_path / "out", workers=1).run({})
    assert 10 < book.mean("bursts", "bicubic", "openburst") < 40


def test_centres_of_plain_bursts(tmp_path):
    """Each burst says how its target lies; interpolation follows it."""
    for name, centres in (("a", "corner"), ("b", "half-pixel")):
        write_burst(tmp_path, name, replace(rgb_sample(), centres=centres))
    assert [item.centres for item in open_benchmark(tmp_path).items] == ["corner", "half-pixel"]
    assert open_benchmark(tmp_path).moved("half-pixel") == ["bursts"]
    book = Evaluation(open_benchmark(tmp_path), [Method("bicubic")], tmp_path / "out", workers=1).run({})
    scores = book.values("bursts", "bicubic", "openburst")
    assert scores["b"] > scores["a"] + 1, "the scene was taken with half-pixel centres"
    (tmp_path / "bursts/a/burst.json").write_text("{")
    with pytest.raises(InputError, match="does not describe a burst"):
        open_benchmark(tmp_path).items[0].load()


def test_bad_bursts_are_left_out_when_asked(tmp_path):
    for name in ("a", "b"):
        write_burst(tmp_path, name, rgb_sample())
    (tmp_path / "bursts/a/01.png").write_bytes(b"no")
    benchmark, said = open_benchmark(tmp_path), []
    with pytest.raises(InputError, match="01.png is not a PNG file"):
        Evaluation(benchmark, [Method("bicubic")], tmp_path / "out", workers=1).run({})
    assert [item.name for item in benchmark.readable(said.append, 2).items] == ["b"]
    assert len(said) == 1 and "01.png is not a PNG file" in said[0]
    options = ["-o", str(tmp_path / "scores"), "--skip-bad", "--no-lpips", "--device", "cpu"]
    done = CliRunner().invoke(build_app(), ["evaluate", "none", str(tmp_path), *options])
    assert done.exit_code == 0 and "left out: " in done.stderr and "01.png is not a PNG file" in done.stderr
    (tmp_path / "truth/b.png").unlink()
    with pytest.raises(InputError, match="not one of the 2 bursts of bursts can be read"):
        benchmark.readable(said.append, 2)


def test_written_openburst(tmp_path):
    for subset in ("still", "moving"):
        write_burst(tmp_path / subset, "0004", rgb_sample())
    (tmp_path / "openburst.json").write_text('{"benchmark": "openburst", "published": false}')
    benchmark = open_benchmark(tmp_path)
    assert benchmark.name == "openburst-like" and benchmark.subsets == ["still", "moving"]
    with pytest.raises(InputError, match="has none of the subsets raw, raw-synburst"):
        open_benchmark(tmp_path, mosaics=True)
    write_burst(tmp_path / "raw", "0004", Sample(torch.rand(1, 3, 1, 40, 40), torch.rand(1, 3, 160, 160)))
    everything = open_benchmark(tmp_path, mosaics=None)
    assert everything.subsets == ["still", "moving", "raw"] and everything.items[-1].protocols == ("openburst-raw",)
    for alone in ("still", "raw"):  # one subset of it is still it
        one = open_benchmark(tmp_path / alone, mosaics=None)
        assert one.name == "openburst-like" and one.subsets == [alone] and len(one.items) == 1
    (item,) = open_benchmark(tmp_path / "raw", "bursts", mosaics=None).items
    assert item.protocols == ("openburst-raw",) and item.subset == "bursts"
    (tmp_path / "openburst.json").write_text('{"benchmark": "openburst", "published": true, "frames": 30}')
    assert open_benchmark(tmp_path).name == "openburst-30"


def test_what_openburst_json_lists_is_opened(tmp_path):
    """Bursts and subsets of an earlier set may lie beside the new ones."""
    for subset in ("still", "moving"):
        for name in ("0004", "older"):
            write_burst(tmp_path / subset, name, rgb_sample())
    (tmp_path / "openburst.json").write_text('{"subsets": ["still"], "names": ["0004"]}')
    assert [(item.subset, item.name) for item in open_benchmark(tmp_path).items] == [("still", "0004")]
    with pytest.raises(InputError, match="has none of the subsets moving; write them with burstmamba openburst"):
        open_benchmark(tmp_path / "moving")
    (tmp_path / "openburst.json").write_text('{"subsets": ["still"], "names": ["0004", "lost"]}')
    with pytest.raises(InputError, match="lost has no frames"):
        open_benchmark(tmp_path).items[1].load()


def test_a_damaged_description_is_said(tmp_path):
    for content in ("{", "[1, 2]", "7", '{"names": 7}'):
        (tmp_path / "openburst.json").write_text(content)
        with pytest.raises(
            InputError, match=r"openburst\.json cannot be read \(.*\); write it again with burstmamba openburst"
        ):
            open_benchmark(tmp_path)


def test_photographs_are_not_openburst_as_written(tmp_path):
    with pytest.raises(
        InputError, match=r"has no openburst\.json; for a folder of photographs say --layout photographs"
    ):
        open_benchmark(tmp_path, "openburst")


def test_longer_bursts_of_photographs(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "0001.png")
    benchmark = open_benchmark(tmp_path, mosaics=None, frames=16)
    assert benchmark.name == "openburst-like-16"
    lengths = {item.subset: item.load().frames.shape[1] for item in benchmark.items}
    assert lengths == {**dict.fromkeys(("still", "noisy", "moving", "badframe", "raw"), 16), "raw-synburst": 14}
    short = open_benchmark(tmp_path, frames=5)
    assert short.name == "openburst-like" and short.items[0].load().frames.shape[1] == 14


def test_realbsr(tmp_path):
    folder = tmp_path / "test" / "000_0001"
    folder.mkdir(parents=True)
    sample = rgb_sample(lr=40, frames=14) if len(SHIFTS) >= 14 else rgb_sample(lr=40, frames=3)
    for index in range(14):
        frame = sample.frames[0, index % 3].permute(1, 2, 0).numpy()[..., ::-1]
        cv2.imwrite(str(folder / f"000_MFSR_Sony_0001_x1_{index:02d}.png"), (frame * 255).round().astype(np.uint8))
    truth = sample.target[0].permute(1, 2, 0).numpy()[..., ::-1]
    cv2.imwrite(str(folder / "000_MFSR_Sony_0001_x4.png"), (truth * 255).round().astype(np.uint8))
    assert find_layout(tmp_path) == "realbsr-rgb"
    book = Evaluation(open_benchmark(tmp_path), [Method("bicubic")], tmp_path / "out", workers=1).run({})
    assert book.distinct("protocol") == ["realbsr-rgb", "realbsr-rgb-fbanet"]
    pooled, channels = (book.mean("realbsr-rgb", "bicubic", name) for name in book.distinct("protocol"))
    assert pooled <= channels + 1e-9


def test_synthetic_burst(tmp_path):
    """A mosaic on the corner grid: bicubic aligned to it scores better than one with half-pixel centres."""
    root = tmp_path / "SyntheticBurstVal"
    (root / "bursts/0000").mkdir(parents=True)
    (root / "gt/0000").mkdir(parents=True)
    y, x = np.mgrid[0:160, 0:160]
    truth = np.repeat((0.4 + 0.3 * np.sin(x / 9) * np.cos(y / 11))[..., None], 3, axis=2)
    lr = truth[::4, ::4, 0]
    packed = np.stack((lr[0::2, 0::2], lr[0::2, 1::2], lr[1::2, 0::2], lr[1::2, 1::2]), axis=-1)
    for index in range(14):
        cv2.imwrite(str(root / f"bursts/0000/im_raw_{index:02d}.png"), (packed * 2**14).astype(np.uint16))
    cv2.imwrite(str(root / "gt/0000/im_rgb.png"), (truth * 2**14).astype(np.uint16))
    with open(root / "gt/0000/meta_info.pkl", "wb") as file:
        pickle.dump({"rgb_gain": torch.tensor(1.0)}, file)
    assert find_layout(tmp_path) == "synburst"
    benchmark = open_benchmark(tmp_path, mosaics=True)
    (item,) = benchmark.items
    assert item.centres == "corner" and item.protocols == ("synburst-linear",)
    sample = item.load()
    from burstmamba.evaluation.baselines import bicubic
    from burstmamba.evaluation.protocol import protocol, score

    scores = {
        centres: score(bicubic(sample.frames[:, 0], centres=centres), sample.target, protocol("synburst-linear"))
        for centres in ("corner", "half-pixel")
    }
    assert scores["corner"]["psnr"].item() > scores["half-pixel"]["psnr"].item() + 5


def test_photographs_and_nothing(tmp_path):
    with pytest.raises(InputError, match="looks like none of the known benchmarks; say which with --layout"):
        find_layout(tmp_path)
    Image.fromarray(np.zeros((200, 200, 3), np.uint8)).save(tmp_path / "a.png")
    assert find_layout(tmp_path) == "photographs"
    with pytest.raises(InputError, match="unknown layout 'zip'"):
        open_benchmark(tmp_path, "zip")


def scene_burst(seed):
    frames, _, _ = take_burst(detailed_scene(4 * 48 + 32, seed=seed), 48, SHIFTS[:3])
    return Burst(frames[0])


def first_burst():
    return scene_burst(0)


def test_maps_are_estimated_once(tmp_path, monkeypatch):
    cache = AlignmentCache(tmp_path)
    burst = first_burst()
    aligned = cache.get(burst, "homography")
    assert aligned.kept[0] == 0 and aligned.maps.to_frame.shape[1] == len(aligned.kept)
    shift = torch.tensor(SHIFTS[1]) / 4
    if 1 in aligned.kept:
        inner = aligned.maps.to_frame[0, aligned.kept.index(1), :, 12:-12, 12:-12]
        assert (inner.mean(dim=(1, 2)) + shift).abs().max() < 0.4
    import burstmamba.evaluation.alignment_cache as module

    monkeypatch.setattr(module, "estimate_to_file", lambda *_: pytest.fail("estimated twice"))
    assert cache.get(burst, "homography").kept == aligned.kept
    changed = Burst(burst.frames * 0.9)
    assert cache.path(changed, "homography") != cache.path(burst, "homography")
    assert cache.path(burst, "dense") != cache.path(burst, "homography")
    before = cache.path(burst, "homography")
    monkeypatch.setattr(module, "estimators", lambda: "changed")
    assert cache.path(burst, "homography") != before  # maps of older estimators are not used


def test_first_frames_of_an_aligned_burst(tmp_path):
    aligned = AlignmentCache(tmp_path).get(first_burst(), "homography")
    kept, maps = aligned.among(range(1, 2))
    assert kept[0] == 0 and all(index < 2 for index in kept) and maps.to_frame.shape[1] == len(kept)
    kept, maps = aligned.among(range(2, 3))
    assert kept[0] == 0 and 1 not in kept and maps.to_frame.shape[1] == len(kept)


@pytest.mark.slow
def test_processes_fill_the_cache(tmp_path):
    seen = []
    AlignmentCache(tmp_path).fill([first_burst], "homography", 2, lambda: seen.append(1))
    assert len(seen) == 1 and len(list(tmp_path.glob("homography-*.safetensors"))) == 1
