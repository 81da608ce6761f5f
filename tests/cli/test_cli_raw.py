"""A RAW model beside the others is all that RAW bursts need: DNG in, PNG, TIFF and linear DNG out."""

import sys

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from restore_runs import tiny_checkpoint, write_dng_burst

import burstmamba.checkpoint as checkpoint
from burstmamba import load_burst, load_model, restore_burst
from burstmamba.cli import main
from burstmamba.data.examples import EXAMPLES

LIGHT = np.array([1.2, 0.8, 0.6])
"""Of the card on the frames, in linear sRGB."""


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder of weights in which a small random RAW network is called light-raw."""
    folder = tmp_path / "weights"
    folder.mkdir()
    tiny_checkpoint(folder / "light-raw.safetensors", "tiny-raw", learnt=0.01)
    monkeypatch.setattr(checkpoint, "WEIGHTS", folder)
    return folder


@pytest.fixture
def restore(monkeypatch):
    """`burstmamba restore …` in this process; the exit code."""

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["burstmamba", "restore", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code

    return run


@pytest.mark.parametrize("cfa", ["RGGB", "BGGR", "GRBG", "GBRG"])
def test_dng_frames_become_pictures(shipped, restore, tmp_path, capsys, cfa):
    frames = write_dng_burst(tmp_path / "shots", cfa, count=3)
    picture, linear, raw = tmp_path / "out.png", tmp_path / "linear.tif", tmp_path / "out.dng"
    assert restore(frames, "-o", picture, "--compare", tmp_path / "both.jpg") == 0
    assert "model light-raw on cpu" in capsys.readouterr().out
    assert restore(frames, "-o", linear, "--linear", "--bits", "16") == 0
    assert restore(frames, "-o", raw) == 0
    height, width = load_burst(frames).size
    size = (4 * width, 4 * height)
    assert Image.open(picture).size == size and Image.open(tmp_path / "both.jpg").size[0] > 1000

    card = tifffile.imread(linear)
    assert card.dtype == np.uint16 and card.shape == (size[1], size[0], 3)
    colour = card[40:-40, 40:-40].mean((0, 1))
    np.testing.assert_allclose(colour / colour[1], LIGHT / LIGHT[1], rtol=0.03)

    import rawpy

    with rawpy.imread(str(raw)) as file:
        assert file.num_colors == 3 and (file.sizes.width, file.sizes.height) == size
        np.testing.assert_allclose(
            np.array(file.camera_whitebalance[:3]) / file.camera_whitebalance[1], (2, 1, 1.5), rtol=0.01
        )


def test_python(shipped, tmp_path):
    model = load_model("light-raw")
    burst = load_burst(write_dng_burst(tmp_path / "shots"))
    image = restore_burst(model, burst)
    assert model.config.in_channels == 1 and image.shape == (3, 4 * burst.size[0], 4 * burst.size[1])
    assert torch.isfinite(image).all()


def test_the_example(shipped, restore, tmp_path):
    assert (
        restore(EXAMPLES / "dogs-raw", "-o", tmp_path / "dogs.png", "--crop", "20,10,48,40", "--burst-length", 2) == 0
    )
    assert Image.open(tmp_path / "dogs.png").size == (192, 160)


def test_without_a_raw_model(shipped, restore, tmp_path, capsys):
    (shipped / "light-raw.safetensors").rename(shipped / "light.safetensors")
    frames = write_dng_burst(tmp_path / "shots")
    assert restore(frames, "-o", tmp_path / "out.png") == 2
    line = capsys.readouterr().err.strip()
    assert line == (
        "error: the frames are RAW mosaics and no model for them is shipped with this version; name one with "
        "--model FILE.safetensors, or develop them to 16-bit TIFF first."
    )
    assert not (tmp_path / "out.png").exists()


def test_a_part_is_as_bright_as_in_the_whole(shipped, restore, tmp_path):
    frames = EXAMPLES / "dogs-raw"
    shots = sorted(frames.glob("*.dng"))[:1]
    assert restore(*shots, "-o", tmp_path / "whole.png", "--scale", "1") == 0
    assert restore(*shots, "-o", tmp_path / "part.png", "--scale", "1", "--crop", "20,32,32,28") == 0
    whole, part = (np.asarray(Image.open(tmp_path / f"{name}.png")).astype(float) for name in ("whole", "part"))
    assert np.abs(whole[32:60, 20:52] - part).mean() < 6


def test_linear_pictures_say_so(shipped, restore, tmp_path):
    frames = write_dng_burst(tmp_path / "shots", "RGGB", count=2)
    assert restore(frames, "-o", tmp_path / "linear.png", "--linear", "--bits", "16") == 0
    with Image.open(tmp_path / "linear.png") as picture:
        assert picture.info["gamma"] == 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_a_raw_file_whose_name_is_not_utf8(shipped, restore, tmp_path):
    frames = write_dng_burst(tmp_path / "shots", "RGGB", count=2)
    odd = frames / "odd\udcff.dng"
    sorted(frames.glob("*.dng"))[0].rename(odd)
    assert restore(odd, "-o", tmp_path / "out.png") == 0
