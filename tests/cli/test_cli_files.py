"""The command as somebody starts it, on files of every kind: exit code, what it says, what it leaves behind."""

import os
import struct
import sys
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image
from restore_runs import command, scene, tiny_checkpoint, write_burst

from burstmamba.errors import InputError
from burstmamba.files.shots import find_shots

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A folder with every kind of bad input."""
    root = tmp_path_factory.mktemp("shelf")
    (root / "empty folder").mkdir()
    (root / "zero.jpg").write_bytes(b"")
    (root / "text.jpg").write_text("this is not a picture")
    Image.fromarray(scene()).save(root / "good.jpg")
    (root / "cut.jpg").write_bytes((root / "good.jpg").read_bytes()[:500])
    mixed = write_burst(root / "mixed")
    Image.fromarray(scene(24, 24)).save(mixed / "odd.png")
    header = b"IHDR" + struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"0" * 1000)
    chunks = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (header, data)]
    (root / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return root


REFUSED = {
    "empty folder": "the folder {root}/empty folder holds no picture, RAW file or clip; expected at least one.",
    "zero.jpg": "zero.jpg is empty (0 bytes); copy it again or leave it out.",
    "text.jpg": "text.jpg is not a picture in a format that is read here; leave it out.",
    "cut.jpg": "cut.jpg is cut off or damaged (Truncated File Read); copy it again or leave it out.",
    "bomb.png": "bomb.png claims far more pixels than a photograph has; leave it out.",
    "mixed": "odd.png is 24×24 where the other frames are 48×40; frames of one burst must have one size, "
    "leave the odd ones out.",
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_give_one_sentence(shelf, tiny, tmp_path, name):
    done = command("restore", shelf / name, "-o", tmp_path / "out.png", "--model", tiny)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr == f"error: {REFUSED[name].format(root=shelf)}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that nobody can write to")
def test_an_unwritable_output(shelf, tiny):
    done = command("restore", shelf / "good.jpg", "-o", "/proc/out.png", "--model", tiny)
    assert done.returncode == 2
    reason = "/proc/out.png could not be written: No such file or directory; choose another folder."
    if os.geteuid() != 0:
        reason = "the folder /proc cannot be written to; choose another one."
    assert done.stderr == f"error: {reason}\n"


def test_a_screen_without_the_letters_of_a_name(tiny, tmp_path):
    Image.fromarray(scene()).save(tmp_path / "東京.jpg")
    done = command("restore", tmp_path / "東京.jpg", "-o", tmp_path / "out.png", "--model", tiny, encoding="latin-1")
    assert done.returncode == 0, done.stderr
    assert "keyframe ??.jpg (the first frame)" in done.stdout and "? 384×320" in done.stdout


def unusual(name, path):
    """Write an unusual picture."""
    pixels = scene(40, 48)
    picture, turned = Image.fromarray(pixels), Image.Exif()
    turned[0x0112] = 6
    if name == "animated.gif":
        picture.save(path, save_all=True, append_images=[Image.fromarray(scene(40, 48, seed=1))])
    elif name == "sixteen.tif":
        tifffile.imwrite(path, pixels.astype(np.uint16) * 257, photometric="rgb")
    elif name == "alpha.png":
        picture.putalpha(Image.fromarray(scene(40, 48, seed=1)[..., 0]))
        picture.save(path)
    elif name == "one pixel.png":
        picture.crop((0, 0, 1, 1)).save(path)
    elif name == "strip.png":
        Image.fromarray(scene(40, 5000)[:3]).save(path)
    elif name == "turned.jpg":
        picture.save(path, exif=turned)
    elif name == "cmyk.jpg":
        picture.convert("CMYK").save(path)
    elif name == "grey.png":
        picture.convert("L").save(path)
    else:
        picture.save(path)


TAKEN = {
    "one file.jpg": ("1 frame(s) of 48×40, keyframe one file.jpg (the first frame)", (192, 160)),
    "one pixel.png": ("1 frame(s) of 1×1", (4, 4)),
    "strip.png": ("1 frame(s) of 5000×3", (20000, 12)),
    "animated.gif": ("animated, only the first of its 2 frames is used (1 of 1 frames)", (192, 160)),
    "cmyk.jpg": ("CMYK converted to sRGB (1 of 1 frames)", (192, 160)),
    "grey.png": ("grey turned into RGB (1 of 1 frames)", (192, 160)),
    "alpha.png": ("transparency laid over white (1 of 1 frames)", (192, 160)),
    "sixteen.tif": ("1 frame(s) of 48×40, keyframe sixteen.tif", (192, 160)),
    "turned.jpg": ("turned upright by its EXIF orientation (1 of 1 frames)", (160, 192)),
    "Grüße aus 東京 [1] & 'mehr'.webp": ("keyframe Grüße aus 東京 [1] & 'mehr'.webp (the first frame)", (192, 160)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_unusual_files_become_pictures(tiny, tmp_path, name):
    unusual(name, tmp_path / name)
    output = tmp_path / f"{name} restored.png"
    done = command("restore", tmp_path / name, "-o", output, "--model", tiny)
    assert done.returncode == 0, done.stderr
    said, size = TAKEN[name]
    assert said in done.stdout and f"wrote {output}\n" in done.stdout and done.stderr == ""
    assert Image.open(output).size == size
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, output.name])


def test_a_frame_is_never_replaced(tmp_path):
    frames = write_burst(tmp_path / "shots")
    before = (frames / "shot 0.png").read_bytes()
    model = tiny_checkpoint(tmp_path / "tiny.safetensors")
    for options in (("-o", frames / "shot 0.png"), ("-o", tmp_path / "a.png", "--compare", frames / "shot 0.png")):
        result = command("restore", frames, *options, "--force", "--model", model)
        assert result.returncode == 2 and "is one of the frames; choose another name" in result.stderr
    assert (frames / "shot 0.png").read_bytes() == before


def test_a_folder_one_may_not_enter(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir()
    write_burst(closed / "shots")

    def refuse(path, *more, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("burstmamba.files.shots.os.stat", refuse)
    with pytest.raises(InputError, match="cannot be read .Permission denied"):
        find_shots(closed / "shots")
