"""Figures: they show what they claim, and are written whole."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from test_evaluation_baselines import SHIFTS, detailed_scene, take_burst

from burstmamba.burst import Burst, Camera
from burstmamba.cli.figures import figures
from burstmamba.correspondence.field import Correspondence
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.evaluation import catalogue, reconstruct
from burstmamba.evaluation.benchmark import Benchmark, Item
from burstmamba.evaluation.figures import curves, panels
from burstmamba.evaluation.figures.burst_pictures import (
    burst_priors,
    contribution_maps,
    contribution_picture,
    edge_correlation,
    maps_picture,
)
from burstmamba.evaluation.figures.curves import length_scores, plot_length, plot_tradeoff, read_peers
from burstmamba.evaluation.figures.panels import GAP, Box, comparison, grid, most_different_box, strip
from burstmamba.evaluation.scores import Score, ScoreBook
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset


def picture(value=0.5, size=128):
    return torch.full((3, size, size), value)


def test_box_is_found_where_methods_differ():
    other = picture()
    other[:, 70:90, 30:50] = 1.0
    box = most_different_box([picture(), other], size=32)
    assert box.left <= 30 and box.left + 32 >= 50 and box.top <= 70 and box.top + 32 >= 90
    assert torch.equal(box.cut(other), other[:, box.top : box.top + 32, box.left : box.left + 32])


def test_box_errors():
    assert Box.parse("1,2,3,4") == Box(1, 2, 3, 4)
    for text in ("1,2,3", "a,b,c,d", "1,2,0,4", "-1,2,3,4"):
        with pytest.raises(InputError, match="box"):
            Box.parse(text)
    with pytest.raises(InputError, match="the box 100,0,40,10 reaches beyond the picture of 128×128"):
        Box(100, 0, 40, 10).cut(picture())


def test_comparison_magnifies_without_smoothing():
    sharp = picture(0.0)
    sharp[:, 64, 64] = 1.0
    made = comparison({"a": sharp, "b": picture(0.0)}, box=Box(60, 60, 8, 8), zoom=4)
    pixels = np.asarray(made)
    white = (pixels[: 8 * 4] == 255).all(axis=-1)
    # The one white pixel appears as a 4×4 square in the first inset; the gaps between panels are white, too.
    columns = white.all(axis=0)
    assert (white[:, ~columns].sum(axis=0) == 4).sum() >= 4
    with pytest.raises(InputError, match="must have one size"):
        comparison({"a": picture(), "b": picture(size=64)})


def test_captions_are_not_cut_off():
    """A small inset has as much room as its name needs, and rows are filled evenly."""
    long = "another method with a long name"
    made = grid([(long, picture(size=16))] * 5, zoom=2)
    text = (np.asarray(made.convert("L"))[32 : 32 + 22] < 128).any(axis=0)
    alone = (np.asarray(grid([(long, picture(size=400))]).convert("L"))[400:] < 128).any(axis=0)
    assert text.sum() == 3 * alone.sum()  # three columns, not four and one
    narrow = comparison({"a": picture(), long: picture(0.4)}, box=Box(0, 0, 8, 8))
    assert narrow.width > 2 * alone.nonzero()[0].max()


def test_strip_joins_halves():
    joined = np.asarray(strip(picture(0.0), picture(1.0)))
    assert (joined[0, :60] == 0).all() and (joined[0, 70:] == 255).all()
    assert strip(picture(0.0, 32), picture(1.0)).size == (128, 128)


def book(lengths=(1, 2, 14), extra=""):
    made = ScoreBook({"benchmark": "openburst"})
    for length in lengths:
        for image in range(4):
            label = f"L={length}{extra if length > 1 else ''}"
            made.add(Score("still", str(image), label, "openburst", 30 + 0.1 * length + image, 0.9))
    return made


def test_length_rows():
    assert length_scores(book(), "still", "openburst") == {1: "L=1", 2: "L=2", 14: "L=14"}
    assert length_scores(book(extra=" exact"), "still", "openburst")[14] == "L=14 exact"
    mixed = ScoreBook(scores={**book(lengths=(1, 14), extra=" copies").scores, **book(lengths=(2, 14)).scores})
    assert length_scores(mixed, "still", "openburst") == {1: "L=1", 2: "L=2", 14: "L=14"}
    with pytest.raises(InputError, match="hold no rows such as L=1"):
        length_scores(book(lengths=()), "still", "openburst")


def test_curves_are_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    plot_length(book(), tmp_path / "length.png")
    (tmp_path / "peers.csv").write_text("name,gflops,psnr\nFBANet,120,31.01\n")
    assert read_peers(tmp_path / "peers.csv") == {"FBANet": (120.0, 31.01)}
    plot_tradeoff(tmp_path / "tradeoff.png", tmp_path / "peers.csv", book(), "tiny")
    for name in ("length", "tradeoff"):
        assert np.asarray(Image.open(tmp_path / f"{name}.png").convert("L")).std() > 5
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="must be a CSV with the columns name, gflops, psnr"):
        read_peers(tmp_path / "bad.csv")


def drawn(monkeypatch, plot, *arguments):
    """The axes of a curve instead of its file."""
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    figures = []
    monkeypatch.setattr(curves, "_save", lambda figure, path: figures.append(figure))
    plot(*arguments)
    figures[0].draw_without_rendering()
    return figures[0].axes


def test_every_length_has_a_tick(monkeypatch, tmp_path):
    (axes,) = drawn(monkeypatch, plot_length, book(lengths=(1, 14, 30)), tmp_path / "x.png")
    assert axes.get_xticks().tolist() == [1, 14, 30]


def test_names_in_the_tradeoff_do_not_overlap(monkeypatch, tmp_path):
    scores = book()
    with pytest.raises(InputError, match=r"do not say what network they are of; say it with --preset paper\|"):
        drawn(monkeypatch, plot_tradeoff, tmp_path / "x.png", None, scores)
    scores.header["weights"] = "light-raw.safetensors"
    published, own = drawn(monkeypatch, plot_tradeoff, tmp_path / "x.png", None, scores)
    assert own.get_legend().get_texts()[0].get_text() == "light-raw, still"
    for axes in (published, own):
        inside, boxes = axes.get_window_extent(), [text.get_window_extent() for text in axes.texts]
        texts = [text.get_text() for text in axes.texts]
        outside = [box.x0 < inside.x0 or box.x1 > inside.x1 for box in boxes]
        assert [text for text, out in zip(texts, outside, strict=True) if out] == []
        pairs = [(i, j) for i in range(len(boxes)) for j in range(i) if boxes[i].overlaps(boxes[j])]
        assert [(texts[i], texts[j]) for i, j in pairs] == []


def test_motion_is_shown_in_colours(scene):
    """The still picture of flow is white, motion to the right is red."""
    burst, _ = scene
    still, right = torch.zeros(1, 3, 2, 24, 24), torch.zeros(1, 3, 2, 24, 24)
    right[:, 1, 0] = 2.0
    pixels = np.asarray(maps_picture(burst, Correspondence(right, still)))
    height = (pixels.shape[0] + GAP) // 2
    first, second = (pixels[height + 20, column] for column in (20, (pixels.shape[1] + GAP) // 4 + 20))
    assert first.tolist() == [255, 0, 0] and second.tolist() == [255, 255, 255]


@pytest.fixture(scope="module")
def scene():
    frames, maps, _ = take_burst(detailed_scene(4 * 24 + 32), 24, SHIFTS[:3])
    return Burst(frames[0]), maps


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    network = BurstMamba(preset("tiny")).eval()
    for projection in network.burst.projections:
        torch.nn.init.normal_(projection.weight, std=0.1)
    return network


def test_priors_are_what_the_keyframe_stream_receives(model, scene):
    burst, maps = scene
    priors = burst_priors(model, burst.frames[None], maps)
    assert len(priors) == len(model.config.blocks)
    assert priors[0].shape == (1, model.config.channels, 24, 24)
    silent = BurstMamba(preset("tiny")).eval()
    for projection in silent.burst.projections:
        torch.nn.init.zeros_(projection.weight)
        torch.nn.init.zeros_(projection.bias)
    assert not any(prior.any() for prior in burst_priors(silent, burst.frames[None], maps))
    with pytest.raises(InputError, match="two frames are needed"):
        burst_priors(model, burst.frames[None, :1], None)


def test_contribution_follows_edges():
    keyframe = torch.zeros(3, 16, 16)
    keyframe[:, :, 8:] = 1.0
    on_edge = torch.zeros(1, 4, 16, 16)
    on_edge[..., 7:9] = 1.0
    elsewhere = torch.zeros(1, 4, 16, 16)
    elsewhere[..., :3] = 1.0
    edge, other = contribution_maps([on_edge, elsewhere])
    assert edge_correlation(edge[0], keyframe) > 0.9 > 0 > edge_correlation(other[0], keyframe)


def test_inside_pictures(model, scene):
    burst, maps = scene
    shown = maps_picture(burst, maps)
    assert shown.width > 4 * 24 and np.asarray(shown).std() > 5
    assert contribution_picture(model, burst, maps).width > 3 * 24
    with pytest.raises(InputError, match="frame must be between 1 and 2, got 3"):
        maps_picture(burst, maps, frame=3)
    confident = Correspondence(maps.to_frame, maps.to_keyframe, torch.ones(1, 3, 1, 24, 24))
    assert maps_picture(burst, confident).size == shown.size


def test_a_burst_that_does_not_fit_is_refused(model, scene, monkeypatch):
    monkeypatch.setattr(reconstruct, "free_memory", lambda device: 1000)
    with pytest.raises(InputError, match="3 frames of 24×24 do not fit in memory at once; cut a part out of them"):
        contribution_picture(model, *scene)


def keep(folder, method, value):
    path = folder / method / "still" / "0004.png"
    path.parent.mkdir(parents=True)
    Image.fromarray(np.full((64, 64, 3), value, np.uint8)).save(path)


def test_command(tmp_path):
    keep(tmp_path, "bicubic", 100)
    keep(tmp_path, "L=14", 120)
    command = [sys.executable, "-m", "burstmamba", "figures", "comparison", tmp_path, "--image", "still/0004"]
    done = subprocess.run([*map(str, command), "-o", str(tmp_path / "f.png")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Image.open(tmp_path / "f.png").width > 64
    figures("strip", str(tmp_path), out=tmp_path / "s.png", image="still/0004", methods="bicubic,L=14")
    assert Image.open(tmp_path / "s.png").size == (64, 64)


def test_linear_pictures_are_developed(tmp_path):
    """A grey card through a camera that sees little red and blue: grey in the figure, its PSNR of the linear values."""
    import cv2

    camera, folder = Camera("RGGB", linear=True, white_balance=(2.0, 1.0, 2.0)), tmp_path / "pictures"
    for method, level in (("bicubic", 0.1), ("L=14", 0.2)):
        (folder / method / "burst").mkdir(parents=True)
        bgr = np.full((64, 64, 3), level) * np.array((0.5, 1.0, 0.5))
        cv2.imwrite(str(folder / method / "burst/0.png"), (bgr * 2**14).astype(np.uint16))
    target = 0.2 * torch.tensor([0.5, 1.0, 0.5]).view(1, 3, 1, 1).expand(1, 3, 64, 64)
    sample = Sample(torch.full((1, 1, 1, 16, 16), 0.1), target, cameras=(camera,))
    items = (Item("burst", "0", ("openburst-raw",), "half-pixel", lambda: sample),)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "open_benchmark", lambda folder, mosaics: Benchmark("x", items))
        seen = []
        patch.setattr(panels, "psnr", lambda a, b: seen.append((a.max(), b.max())) or torch.tensor([20.0]))
        options = {"image": "burst/0", "benchmark": tmp_path, "box": "4,4,16,16"}
        figures("comparison", str(folder), out=tmp_path / "c.png", **options)
        figures("strip", str(folder), out=tmp_path / "s.png", **options)
    assert [value.item() for pair in seen for value in pair] == pytest.approx([0.1, 0.2, 0.2, 0.2], abs=1e-4)
    before, after = (np.asarray(Image.open(tmp_path / "s.png"))[5, x].astype(int) for x in (5, 60))
    assert np.ptp(before) <= 2 and np.ptp(after) <= 2 and 60 < before[1] < after[1]


def test_command_mistakes(tmp_path):
    keep(tmp_path, "bicubic", 100)
    with pytest.raises(InputError, match="unknown figure 'pie'; the known ones are comparison"):
        figures("pie", "x")
    with pytest.raises(InputError, match="which burst\\? Say it with --image, for example --image still/0004"):
        figures("comparison", str(tmp_path))
    with pytest.raises(InputError, match="no pictures METHOD/still/0001.png"):
        figures("comparison", str(tmp_path), image="still/0001")
    with pytest.raises(InputError, match="no picture of still/0004 by 'L=14'; there are bicubic"):
        figures("comparison", str(tmp_path), image="still/0004", methods="L=14")
    with pytest.raises(InputError, match="a strip needs two --methods"):
        figures("strip", str(tmp_path), image="still/0004", methods="bicubic")
