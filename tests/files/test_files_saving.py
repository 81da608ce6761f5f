"""Saved images: read back in every format, with their metadata, whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image, ImageCms

from burstmamba.burst import Camera
from burstmamba.errors import InputError
from burstmamba.files import SourceMetadata, read_burst, save_image
from burstmamba.files.metadata import describe
from burstmamba.files.saving import check_output, check_size

CAMERA = Camera(
    linear=True,
    white_balance=(2.0, 1.0, 1.5),
    color_matrix=((1.6, -0.5, -0.1), (-0.2, 1.5, -0.3), (0.0, -0.4, 1.4)),
)


@pytest.fixture
def image() -> torch.Tensor:
    """(3, 40, 56), smooth, 16 bits deep."""
    coarse = torch.rand(1, 3, 4, 5, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1
    return torch.nn.functional.interpolate(coarse, (40, 56), mode="bilinear")[0]


@pytest.fixture
def metadata() -> SourceMetadata:
    """Of a phone held upright."""
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0112], exif[0x0131] = "Acme", "Testcam", 6, "Firmware 1"
    exif[0x8769] = {0x829A: 0.01, 0x829D: 2.0, 0x8827: 400, 0x9003: "2026:11:15 03:20:10", 0xA002: 10, 0x927C: b"note"}
    exif[0x8825] = {1: "N", 2: (47.0, 30.0, 0.0)}
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return describe(exif, icc)


FILES = [
    ("a.png", 8, 0.5 / 255),
    ("a.png", 16, 0.5 / 65535),
    ("a.tif", 8, 0.5 / 255),
    ("a.tiff", 16, 0.5 / 65535),
    ("a.jpg", 8, 0.03),
    ("a.webp", 8, 0.06),
    ("a.avif", 8, 0.04),
]


@pytest.mark.parametrize(("name", "bits", "tolerance"), FILES)
def test_round_trip(tmp_path, image, metadata, name, bits, tolerance):
    path = save_image(tmp_path / name, image, bits=bits, metadata=metadata)
    loaded = read_burst(path)
    assert (loaded.burst.frames[0] - image).abs().max() <= tolerance + 1e-6
    assert loaded.metadata.bit_depth == bits and loaded.metadata.orientation == 1
    assert loaded.metadata.icc_profile == metadata.icc_profile
    assert loaded.metadata.exposure == pytest.approx(1.0)
    assert loaded.metadata.taken == metadata.taken is not None
    kept = Image.Exif()
    kept.load(loaded.metadata.exif)
    assert (kept[0x0110], kept[0x0131]) == ("Testcam", "Firmware 1")
    assert kept.get_ifd(0x8825)[1] == "N"
    assert os.listdir(tmp_path) == [name]


def test_size_and_orientation_are_the_new_ones(tmp_path, image, metadata):
    with Image.open(save_image(tmp_path / "a.jpg", image, metadata=metadata)) as picture:
        exif = picture.getexif()
        details = exif.get_ifd(0x8769)
    assert exif[0x0112] == 1
    assert (details[0xA002], details[0xA003]) == (56, 40)
    assert 0x927C not in details


@pytest.mark.parametrize(("name", "bits"), [("a.tif", 8), ("a.tif", 16), ("a.png", 8), ("a.png", 16)])
def test_other_readers_agree(tmp_path, image, metadata, name, bits):
    """tifffile, OpenCV and Pillow see the same pixels; without metadata as well."""
    import cv2

    white = 2**bits - 1
    expected = (image * white).round().permute(1, 2, 0).numpy().astype(np.int64)
    for number, facts in enumerate((metadata, None)):
        path = save_image(tmp_path / f"{number}{name}", image, bits=bits, metadata=facts)
        np.testing.assert_array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED)[..., ::-1], expected)
        if name == "a.tif":
            np.testing.assert_array_equal(tifffile.imread(path), expected)
        if bits == 8:
            with Image.open(path) as picture:
                picture.verify()
            np.testing.assert_array_equal(np.asarray(Image.open(path)), expected)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("size", [(1700, 601), (3, 200_000), (5000, 1), (1, 1)])
@pytest.mark.parametrize("ending", ["tif", "png"])
def test_many_strips(tmp_path, ending, size, bits):
    """Pictures of one and of several strips, which are encoded apart from each other."""
    import cv2

    image = torch.rand(3, *size, generator=torch.Generator().manual_seed(0)) * 1.2 - 0.1
    expected = (image.clamp(0, 1) * (2**bits - 1)).round().permute(1, 2, 0).numpy()
    path = save_image(tmp_path / f"a.{ending}", image, bits=bits)
    if ending == "tif":
        np.testing.assert_array_equal(tifffile.imread(path), expected)
        with tifffile.TiffFile(path) as file:
            assert (len(file.pages.first.dataoffsets) > 1) == (3 * bits // 8 * size[0] * size[1] > 1 << 20)
    else:
        found = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(found[..., ::-1], expected)
        with Image.open(path) as picture:
            picture.verify()


def test_the_parts_of_a_png_are_one_stream(tmp_path):
    """Its checksum too, which most readers do not look at."""
    import zlib

    save_image(tmp_path / "a.png", torch.rand(3, 900, 901, generator=torch.Generator().manual_seed(0)))
    data, position, stream, parts = (tmp_path / "a.png").read_bytes(), 8, b"", 0
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        kind, body = data[position + 4 : position + 8], data[position + 8 : position + 8 + length]
        assert zlib.crc32(kind + body) == int.from_bytes(data[position + 8 + length : position + 12 + length], "big")
        position += 12 + length
        if kind == b"IDAT":
            stream, parts = stream + body, parts + 1
    assert parts > 2 and kind == b"IEND"
    assert len(zlib.decompress(stream)) == 900 * (1 + 3 * 901)  # an error if the checksum is wrong


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.jpg"])
def test_values_that_are_no_numbers(tmp_path, name, value):
    """In a late strip: nothing is left of the file."""
    image = torch.full((3, 2000, 700), 0.5)
    image[1, 1900, 3] = value
    with pytest.raises(InputError, match="NaN or infinite values and was not saved"):
        save_image(tmp_path / name, image)
    assert os.listdir(tmp_path) == []


def test_linear_dng(tmp_path, image, metadata):
    """LibRaw opens it, finds our white balance and matrix, and develops it as we do."""
    rawpy = pytest.importorskip("rawpy", reason="RAW files are read by rawpy, which is not installed")
    from burstmamba.files.develop import develop

    dim = image * 0.4
    path = save_image(tmp_path / "a.dng", dim, camera=CAMERA, metadata=metadata)
    with rawpy.imread(str(path)) as raw:
        gains = np.array(raw.camera_whitebalance[:3]) / raw.camera_whitebalance[1]
        matrix = raw.color_matrix[:, :3]
        picture = raw.postprocess(
            use_camera_wb=True, no_auto_bright=True, adjust_maximum_thr=0.0, output_bps=16, gamma=(1, 1)
        )
    np.testing.assert_allclose(gains, CAMERA.white_balance, rtol=1e-3)
    np.testing.assert_allclose(matrix, CAMERA.color_matrix, atol=2e-3)
    light = torch.from_numpy(picture / 65535).float().permute(2, 0, 1)
    plain = torch.einsum(
        "dc,chw->dhw", torch.tensor(CAMERA.color_matrix), dim * torch.tensor([2.0, 1, 1.5]).view(3, 1, 1)
    )
    inside = (plain > 0.01).all(dim=0) & (plain < 0.99).all(dim=0)
    assert inside.float().mean() > 0.3
    assert (light - plain)[:, inside].abs().max() < 2e-3
    assert (develop(dim, CAMERA, look="linear") - plain)[:, inside].abs().max() < 1e-5
    with tifffile.TiffFile(path) as file:
        tags = file.pages.first.tags
        assert tags["Compression"].value == 1 and tags["ColorMatrix1"].dtype == tifffile.DATATYPE.SRATIONAL
        assert tags["Model"].value == "Testcam" and tags["ExifTag"].value["ISOSpeedRatings"] == 400


def test_values_outside_are_clipped(tmp_path):
    image = torch.tensor([-0.5, 0.5, 1.5]).view(3, 1, 1)
    assert Image.open(save_image(tmp_path / "a.png", image)).getpixel((0, 0)) == (0, 128, 255)


def test_existing_files_are_kept(tmp_path, image):
    path = save_image(tmp_path / "a.png", image)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"a\.png exists already; choose another name or allow replacing"):
        save_image(path, 1 - image)
    assert path.read_bytes() == before
    save_image(path, 1 - image, force=True)
    assert path.read_bytes() != before


def test_errors(tmp_path, image):
    with pytest.raises(InputError, match=r"a\.xyz must end in one of \.png, \.tif"):
        save_image(tmp_path / "a.xyz", image)
    with pytest.raises(InputError, match=r"JPEG holds 8-bit samples, 16 were asked for; 16 bits go into \.png, \.tif"):
        save_image(tmp_path / "a.jpg", image, bits=16)
    with pytest.raises(InputError, match="PNG holds 8- or 16-bit samples, 12 were asked for; ask for 8 or 16"):
        save_image(tmp_path / "a.png", image, bits=12)
    with pytest.raises(InputError, match="the folder .*nowhere does not exist; create it first"):
        save_image(tmp_path / "nowhere" / "a.png", image)
    with pytest.raises(InputError, match="is a folder; name a file in it"):
        (tmp_path / "dir.png").mkdir()
        save_image(tmp_path / "dir.png", image)
    with pytest.raises(InputError, match="is a folder; name a file in it"):
        save_image(tmp_path, image)
    with pytest.raises(InputError, match="a linear DNG holds linear camera colours, so it needs a RAW burst"):
        save_image(tmp_path / "a.dng", image)
    with pytest.raises(InputError, match=r"image must be a floating-point tensor \(3, h, w\)"):
        save_image(tmp_path / "a.png", image[None])
    with pytest.raises(InputError, match="contains NaN or infinite values and was not saved"):
        save_image(tmp_path / "a.png", image / 0)
    with pytest.raises(InputError, match="WEBP holds at most 16383 pixels a side, the image is 20000×1; save a PNG"):
        save_image(tmp_path / "a.webp", torch.zeros(3, 1, 20000))
    with pytest.raises(InputError, match=r"30000×30000 pixels of 16 bits exceed TIFF's 4 GiB; save a PNG or use fewer"):
        check_size("a.tif", 30000, 30000, 16)
    with pytest.raises(InputError, match="of 16 bits exceed DNG's 4 GiB"):
        check_size("a.dng", 30000, 30000)
    check_size("a.tif", 30000, 30000, 8)
    check_size("a.png", 30000, 30000, 16)
    with pytest.raises(InputError, match="quality must be a whole number from 1 to 100, got 101"):
        save_image(tmp_path / "a.jpg", image, quality=101)
    assert [entry for entry in os.listdir(tmp_path) if entry != "dir.png"] == []


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may write everywhere")
def test_unwritable_folder(tmp_path, image):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InputError, match="cannot be written to; choose another one"):
            check_output(tmp_path / "a.png")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("code", "words"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "Permission denied; choose another folder")]
)
def test_failing_disk_leaves_nothing(tmp_path, image, monkeypatch, code, words):
    def fail(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match=rf"a\.tif could not be written: {words}"):
        save_image(tmp_path / "a.tif", image)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device that is always full")
def test_full_disk_for_real(tmp_path):
    """A file-size limit stops the write half way: one sentence, no partial file."""
    script = (
        "import resource, signal, torch\n"
        "from burstmamba.files import save_image\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        f"save_image({str(tmp_path / 'a.png')!r}, torch.rand(3, 200, 300))\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "a.png could not be written: the disk is full" in result.stderr
    assert os.listdir(tmp_path) == []


def test_interrupt_leaves_nothing(tmp_path, image, monkeypatch):
    def interrupt(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_image(tmp_path / "a.png", image)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", ["png", "tif", "jpg"])
def test_names_with_other_letters_survive(tmp_path, image, ending):
    exif = Image.Exif()
    exif[0x013B], exif[0x8298] = "Jörg".encode(), "© Jörg Müller".encode()
    Image.new("RGB", (8, 8)).save(tmp_path / "in.jpg", exif=exif)
    metadata = read_burst(tmp_path / "in.jpg").metadata
    save_image(tmp_path / f"out.{ending}", image, metadata=metadata)
    with Image.open(tmp_path / f"out.{ending}") as picture:
        kept = picture.getexif()
        assert kept[0x013B].encode("latin-1").decode() == "Jörg"
        assert kept[0x8298].encode("latin-1").decode() == "© Jörg Müller"


def test_linear_light_is_not_called_srgb(tmp_path, image):
    save_image(tmp_path / "linear.png", image, bits=16, linear=True)
    save_image(tmp_path / "encoded.png", image, bits=16)
    with Image.open(tmp_path / "linear.png") as linear, Image.open(tmp_path / "encoded.png") as encoded:
        assert linear.info["gamma"] == 1.0 and "srgb" not in linear.info
        assert linear.info["chromaticity"] == (0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06)
        assert encoded.info["srgb"] == 0


def test_the_longest_names(tmp_path, image):
    longest = "a" * 251 + ".png"
    assert save_image(tmp_path / longest, image).exists()
    assert [path.name for path in tmp_path.iterdir()] == [longest]
    with pytest.raises(InputError, match="could not be written: File name too long"):
        save_image(tmp_path / ("a" * 300 + ".png"), image)


def test_no_quality_is_no_quality(tmp_path, image):
    for quality in (0, 50.5, 101):
        with pytest.raises(InputError, match=f"quality must be a whole number from 1 to 100, got {quality}"):
            save_image(tmp_path / "a.jpg", image, quality=quality)
