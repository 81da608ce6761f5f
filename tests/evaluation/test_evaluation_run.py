"""Evaluating methods on a small benchmark: batching, resuming, treatments, other methods' outputs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_evaluation_baselines import SHIFTS, detailed_scene, take_burst

from burstmamba.burst import Camera
from burstmamba.correspondence.field import Correspondence
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.evaluation.alignment_cache import AlignedBurst, AlignmentCache
from burstmamba.evaluation.benchmark import Benchmark, Item
from burstmamba.evaluation.bootstrap import interval, paired_difference
from burstmamba.evaluation.evaluate import Evaluation
from burstmamba.evaluation.outputs import read_output
from burstmamba.evaluation.reconstruct import Method, frames_and_maps, move_centres, reconstruct
from burstmamba.evaluation.scores import Score, ScoreBook, summaries
from burstmamba.evaluation.treatment import frame_order, treat
from burstmamba.model.base_image import color_masks
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset

LR = 20


def sample(seed):
    frames, maps, target = take_burst(detailed_scene(4 * LR + 32, seed=seed), LR, SHIFTS[:4])
    return Sample(frames, target, correspondence=maps, exact=maps)


def benchmark(count=3):
    items = [
        Item("still", f"{index:02d}", ("openburst",), "half-pixel", lambda seed=index: sample(seed))
        for index in range(count)
    ]
    return Benchmark("charts", tuple(items))


def evaluation(folder, methods, **more):
    return Evaluation(benchmark(), methods, folder, workers=1, **more)


HEADER = {"benchmark": "charts", "weights_sha256": "0"}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    network = BurstMamba(preset("tiny")).eval()
    for projection in network.burst.projections:
        torch.nn.init.normal_(projection.weight, std=0.05)
    return network


def test_labels():
    assert Method("network", 1).label == "L=1"
    assert Method("network", 14).label == "L=14"
    assert Method("network", 14, "identity").label == "L=14 identity"
    assert Method("network", 14, "exact", "rounded").label == "L=14 exact, rounded"
    assert Method("network", 14, "auto", "copies").label == "L=14 copies"
    assert Method("bicubic").label == "bicubic"


def test_scores_equal_one_by_one(tmp_path, model):
    methods = [Method("bicubic"), Method("network", 1), Method("network", 4, "exact")]
    book = evaluation(tmp_path, methods, model=model).run(HEADER)
    assert len(book.scores) == 9
    for index in range(3):
        one = sample(index)
        with torch.no_grad():
            picture = model(one.frames, one.exact).clamp(0, 1)
        inner = (slice(None), slice(None), slice(16, -16), slice(16, -16))
        rounded = (picture * 255).round() / 255
        error = (rounded[inner].double() - one.target[inner].double()).square().mean()
        expected = -10 * torch.log10(error).item()
        assert book.values("still", "L=4 exact", "openburst")[f"{index:02d}"] == pytest.approx(expected, abs=1e-3)


def test_classical_beats_interpolation(tmp_path):
    methods = [Method("nearest"), Method("bicubic"), Method("classical", 4, "exact")]
    book = evaluation(tmp_path, methods).run(HEADER)
    means = [book.mean("still", method.label, "openburst") for method in methods]
    assert means[0] < means[1] < means[2]


def test_outputs_of_another_method(tmp_path):
    """Good, missing, damaged and wrongly sized pictures: the good ones are scored, the others listed."""
    import cv2

    folder = tmp_path / "peer"
    folder.mkdir()
    truth = (sample(0).target[0].permute(1, 2, 0).numpy()[..., ::-1] * 255).round().astype(np.uint8)
    cv2.imwrite(str(folder / "00.png"), truth)
    (folder / "01.png").write_bytes(b"no image")
    book = evaluation(tmp_path / "out", [Method("outputs", folder=folder), Method("bicubic")]).run(HEADER)
    assert book.values("still", "peer", "openburst")["00"] > 55  # only the 8-bit rounding of the target is left
    assert book.problems == {
        "peer: still/01": "01.png cannot be read; it is damaged or not an image.",
        "peer: still/02": f"no picture still/02.png or 02.png in {folder}.",
    }
    assert len(book.values("still", "bicubic", "openburst")) == 3
    (folder / "still").mkdir()
    cv2.imwrite(str(folder / "still/01.png"), truth[:40])
    cv2.imwrite(str(folder / "02.png"), (truth.astype(np.uint16) * 257))
    cv2.imwrite(str(folder / "00.png"), 255 - truth)
    book = evaluation(tmp_path / "out", [Method("outputs", folder=folder)]).run(HEADER)
    assert book.problems == {
        "peer: still/01": "01.png is 80×40 with 3 channel(s); an RGB picture of 80×80 is expected."
    }
    assert book.values("still", "peer", "openburst")["00"] < 20, "it is another picture now"


def test_formats_of_outputs(tmp_path):
    """Every format gives the same picture; what is cut off, odd or not an image is said."""
    import cv2

    pixels = np.random.default_rng(0).integers(0, 256, (16, 20, 3)).astype(np.uint8)
    unit = torch.from_numpy(pixels.transpose(2, 0, 1) / np.float32(255))
    tall = pixels.transpose(2, 0, 1)
    arrays = {"chw": tall, "hwc": pixels, "wide": pixels.astype(np.uint16) * 257, "float": pixels / 255}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    cv2.imwrite(str(tmp_path / "eight.png"), pixels[..., ::-1])
    cv2.imwrite(str(tmp_path / "sixteen.png"), pixels[..., ::-1].astype(np.uint16) * 257)
    cv2.imwrite(str(tmp_path / "floats.tiff"), (pixels[..., ::-1] / 255).astype(np.float32))
    cv2.imwrite(str(tmp_path / "alpha.png"), np.dstack((pixels[..., ::-1], np.full((16, 20), 255, np.uint8))))
    for name in (*arrays, "eight", "sixteen", "floats", "alpha"):
        assert torch.allclose(read_output(tmp_path, "still", name, (16, 20), linear=False), unit, atol=1e-6), name
    linear = read_output(tmp_path, "still", "sixteen", (16, 20), linear=True)
    assert torch.allclose(linear, unit * 65535 / 2**14, atol=1e-5)
    swapped = read_output(tmp_path, "still", "eight", (16, 20), linear=False, swapped=True)
    assert torch.allclose(swapped, unit.flip(0))

    whole = cv2.imencode(".jpg", pixels)[1].tobytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "broken.npy").write_bytes(b"no array")
    np.save(tmp_path / "flat.npy", pixels[..., 0])
    np.save(tmp_path / "signed.npy", pixels.astype(np.int64))
    np.save(tmp_path / "bytes.npy", pixels.astype(np.float32))
    cv2.imwrite(str(tmp_path / "grey.png"), pixels[..., 0])
    reasons = {
        "cut": "cut.jpg cannot be read", "empty": "empty.png cannot be read", "broken": "broken.npy cannot be read",
        "flat": "flat.npy is not an RGB picture", "grey": "grey.png is not an RGB picture",
        "signed": "signed.npy holds int64; 8 or 16 bits without sign or floats",
        "bytes": r"bytes.npy has floats up to 255 where \[0, 1\] is expected; divide them",
    }  # fmt: skip
    for name, reason in reasons.items():
        with pytest.raises(InputError, match=reason):
            read_output(tmp_path, "still", name, (16, 20), linear=False)


def test_selection():
    assert [item.name for item in benchmark().select(limit=2).items] == ["00", "01"]
    with pytest.raises(InputError, match="charts has no subset 'noisy'; it has still"):
        benchmark().select(["noisy"])


def test_other_pixel_centres_are_named_and_moved(tmp_path, model):
    """A network with half-pixel centres on corner targets: its picture is moved, as the closed form says."""
    corner = Item("raw-synburst", "00", ("openburst",), "corner", lambda: sample(0))
    mixed = Benchmark("mixed", (*benchmark(1).items, corner))
    assert mixed.moved("half-pixel") == ["raw-synburst"] and mixed.moved("corner") == ["still"]
    x = torch.arange(48, dtype=torch.float64)
    wave = torch.cos(0.7 * x)[None, :] * torch.sin(0.4 * x)[:, None]
    moved = move_centres(wave.expand(1, 3, -1, -1), 4, "corner")[0, 0]
    expected = torch.cos(0.7 * (x + 1.5))[None, :] * torch.sin(0.4 * (x + 1.5))[:, None]
    inner = (slice(8, -8), slice(8, -8))
    assert (moved - expected)[inner].abs().max() < 0.01
    back = move_centres(moved.expand(1, 3, -1, -1), 4, "half-pixel")[0, 0]
    assert (back - wave)[inner].abs().max() < 0.02
    one = sample(0)
    pictures = [
        reconstruct(Method("network"), one.frames[:, :1], None, model=model, scale=4, centres=centres, linear=False)
        for centres in ("half-pixel", "corner")
    ]
    assert torch.allclose(move_centres(pictures[0], 4, "corner"), pictures[1], atol=1e-5)


RAW_PROTOCOLS = ("burstsr-aligned", "realbsr-raw-linear", "realbsr-raw-vis")


def raw_benchmark():
    """One mosaic whose target has another camera's tint."""
    frames, _, target = take_burst(detailed_scene(4 * 40 + 32), 40, SHIFTS[:2])
    target = target * torch.tensor([0.8, 1.0, 0.6]).view(3, 1, 1)
    mosaics = (frames * color_masks(frames)).sum(dim=2, keepdim=True)
    camera = Camera("RGGB", linear=True, white_balance=(2.0, 1.0, 1.5))
    item = Item("raw", "00", RAW_PROTOCOLS, "half-pixel", lambda: Sample(mosaics, target, cameras=(camera,)))
    return Benchmark("raw", (item,))


def test_mosaics_under_the_raw_protocols(tmp_path):
    """White balance and the packed keyframe reach the protocols; kept pictures score the same as outputs."""
    images = tmp_path / "images"
    made = Evaluation(raw_benchmark(), [Method("bicubic")], tmp_path / "a", workers=1, images=images).run({})
    means = {name: made.mean("raw", "bicubic", name) for name in RAW_PROTOCOLS}
    assert means["burstsr-aligned"] > means["realbsr-raw-linear"] + 3 and np.isfinite(means["realbsr-raw-vis"])

    outputs = [Method("outputs", folder=images / "bicubic")]
    again = Evaluation(raw_benchmark(), outputs, tmp_path / "b", workers=1).run({})
    swapped = Evaluation(raw_benchmark(), outputs, tmp_path / "c", workers=1, swapped_outputs=True).run({})
    for name in RAW_PROTOCOLS:
        assert again.mean("raw", "bicubic", name) == pytest.approx(means[name], abs=0.05), name  # files round
    assert swapped.mean("raw", "bicubic", "realbsr-raw-linear") != pytest.approx(means["realbsr-raw-linear"], abs=0.01)


def test_bursts_that_are_too_short_are_named(tmp_path, model):
    """L = 5 of four frames is not scored under a name that it does not deserve."""
    methods = [Method("network", 4, "exact"), Method("network", 5, "exact")]
    book = evaluation(tmp_path, methods, model=model).run(HEADER)
    assert book.distinct("method") == ["L=4 exact"]
    assert book.problems == {"L=5 exact: still": "its bursts have 4 frames; choose a --burst-length of at most that."}
    named = replace(benchmark(1), name="openburst-like")
    book = Evaluation(named, methods[1:], tmp_path / "openburst", model=model, workers=1).run(HEADER)
    assert book.problems == {
        "L=5 exact: still": "its bursts have 4 frames; longer ones: burstmamba openburst --frames."
    }


def test_maps_are_shared_by_all_burst_lengths(tmp_path, model, monkeypatch):
    """They are read once for each burst, however many methods use them."""
    asked = []
    get = AlignmentCache.get

    def counted(cache, burst, name):
        asked.append(name)
        return get(cache, burst, name)

    methods = [Method("network", n, "homography") for n in (2, 3, 4)] + [Method("classical", 2, "homography")]
    cache = AlignmentCache(tmp_path / "maps")
    cache.fill([item.load_burst for item in benchmark().items], "homography", 1, lambda: None)
    monkeypatch.setattr(AlignmentCache, "get", counted)
    monkeypatch.setattr(AlignmentCache, "fill", lambda *_: None)
    book = evaluation(tmp_path, methods, model=model).run(HEADER)
    assert asked == ["homography"] * 3 and len(book.scores) == 12


def test_other_frames_of_the_same_burst(model):
    one = sample(0)
    maps = AlignedBurst([0, 1, 2, 3], one.exact)
    frames, chosen = frames_and_maps(one, Method("network", 3, "auto", "others"), lambda name: maps)
    assert torch.equal(frames, one.frames[:, [0, 2, 3]]) and torch.equal(
        chosen.to_frame, one.exact.to_frame[:, [0, 2, 3]]
    )
    frames, chosen = frames_and_maps(one, Method("network", 3, "identity", "others"), lambda name: maps)
    assert torch.equal(frames, one.frames[:, [0, 2, 3]]) and chosen is None


def test_treatments():
    one = sample(0)
    frames, maps = one.frames, one.exact
    copied, none = treat(frames, maps, "copies")
    assert none is None and torch.equal(copied, frames[:, :1].expand_as(frames))
    _, rounded = treat(frames, maps, "rounded")
    assert torch.equal(rounded.to_frame, maps.to_frame.round())
    aligned, identity = treat(frames, maps, "prealigned")
    assert torch.allclose(aligned[:, 0], frames[:, 0], atol=1e-5) and not identity.to_frame.any()
    inside = (slice(None), slice(None), slice(None), slice(5, -5), slice(5, -5))
    assert (aligned - frames[:, :1])[inside].abs().mean() < (frames - frames[:, :1])[inside].abs().mean() / 1.5
    trusted = Correspondence(maps.to_frame, maps.to_keyframe, torch.full((1, 4, 1, LR, LR), 0.7))
    same, unmoved = treat(frames, trusted, "unaligned")
    assert torch.equal(same, frames) and not unmoved.to_keyframe.any()
    assert torch.equal(unmoved.confidence, trusted.confidence)
    turned, order = treat(frames, maps, "reverse")
    assert torch.equal(turned[:, 1], frames[:, 3]) and torch.equal(order.to_frame[:, 1], maps.to_frame[:, 3])
    shuffled, _ = treat(frames, maps, "shuffle")
    assert torch.equal(shuffled[:, 0], frames[:, 0])
    assert sorted(shuffled.sum(dim=(2, 3, 4))[0].tolist()) == pytest.approx(
        sorted(frames.sum(dim=(2, 3, 4))[0].tolist())
    )
    for length in range(3, 15):
        for treatment in ("shuffle", "reverse"):
            order = frame_order(length, treatment)
            assert order[0] == 0 and sorted(order) == list(range(length)) != order
    assert frame_order(2, "shuffle") == [0, 1]
    with pytest.raises(InputError, match="unknown treatment 'blur'"):
        treat(frames, maps, "blur")
    with pytest.raises(InputError, match="mix the colours of a mosaic"):
        treat(frames[:, :, :1], maps, "prealigned")


def test_interval():
    values = list(np.random.default_rng(0).normal(30, 1, 200))
    spread = interval(values)
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.high - spread.low == pytest.approx(2 * 1.96 * np.std(values) / np.sqrt(200), rel=0.05)
    assert interval([float("inf"), 30.0]).mean == 30.0
    assert interval([]).count == 0
    alone = interval([30.0])
    assert alone.sign == 0 and alone.text() == "30.00" and interval([30.0, 31.0]).text() == "30.50 [30.00, 31.00]"


def test_paired_difference_sees_what_the_spread_hides():
    base = np.random.default_rng(1).normal(30, 5, 40)
    better = base + 0.1 + np.random.default_rng(2).normal(0, 0.05, 40)
    assert paired_difference(list(better), list(base)).sign == 1
    assert paired_difference(list(base), list(better)).sign == -1
    noise = base + np.random.default_rng(3).normal(0, 1, 40) - 0.0
    assert paired_difference(list(base), list(noise)).sign == 0
    with pytest.raises(InputError, match="the same images, got 1 and 2 scores"):
        paired_difference([1.0], [1.0, 2.0])


def test_summary():
    book = ScoreBook({"benchmark": "x"})
    for image, value in (("a", 30.0), ("b", 32.0)):
        book.add(Score("still", image, "L=1", "openburst", value, 0.9, 0.1, seconds=0.5))
    (row,) = summaries(book)
    assert row.means == {"psnr": 31.0, "ssim": 0.9, "lpips": 0.1} and row.images == 2 and row.seconds == 0.5
    assert (row.spread.low, row.spread.high) == (30.0, 32.0)
    assert row.cells()[4:] == ["31.00 [30.00, 32.00]", "0.9000", "0.1000", "0.500", "-"]


def test_maps_are_asked_for_only_when_needed():
    assert not Method("network", 1).needs_estimate
    assert not Method("network", 14, "identity").needs_estimate
    assert not Method("network", 14, "auto", "copies").needs_estimate
    assert Method("network", 14).needs_estimate and Method("classical", 14, "homography").needs_estimate


def test_missing_maps_error(tmp_path, model):
    bare = Benchmark(
        "charts",
        (Item("still", "00", ("openburst",), "half-pixel", lambda: Sample(sample(0).frames, sample(0).target)),),
    )
    with pytest.raises(InputError, match="carry no exact maps; estimate them with --correspondence auto"):
        Evaluation(bare, [Method("network", 4, "exact")], tmp_path, model=model, workers=1).run(HEADER)


def test_identity_maps_equal_no_maps(model):
    one = sample(0)
    with torch.no_grad():
        assert torch.allclose(model(one.frames, None), model(one.frames, Correspondence.identity(one.frames)))
