"""Developed pictures: real files in every format, awkward modes and broken files."""

from __future__ import annotations

import struct
import sys
import zlib

import cv2
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image, ImageCms

from burstmamba.errors import InputError
from burstmamba.files import load_burst, read_burst, save_image
from burstmamba.files.png import chunk
from burstmamba.files.rgb import peek_rgb, read_rgb


def sixteen_bits(photo8: np.ndarray) -> np.ndarray:
    """16-bit samples whose low bytes matter."""
    return photo8.astype(np.uint16) * 256 + np.arange(photo8.size, dtype=np.uint16).reshape(photo8.shape) % 256


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("a.png", 0), ("a.tif", 0), ("a.bmp", 0), ("a.jpg", 12), ("a.webp", 24), ("a.avif", 24)],
)
def test_formats(tmp_path, photo, name, tolerance):
    picture = photo()
    options = {"subsampling": 0, "quality": 98} if name.endswith("jpg") else {"quality": 98}
    Image.fromarray(picture).save(tmp_path / name, **options)
    frame = read_rgb(tmp_path / name)
    assert frame.size == (24, 32) and frame.pixels.dtype == np.uint8 and frame.notes == ()
    assert np.abs(frame.pixels.astype(int) - picture).max() <= tolerance
    assert frame.tensor().shape == (3, 24, 32) and frame.tensor().min() >= 0 and frame.tensor().max() <= 1


@pytest.mark.parametrize("name", ["a.png", "a.tif", "lzw.tif", "deflate.tif", "planar.tif"])
def test_sixteen_bits_survive(tmp_path, photo, name):
    picture = sixteen_bits(photo())
    if name == "planar.tif":
        tifffile.imwrite(tmp_path / name, picture.transpose(2, 0, 1), photometric="rgb", planarconfig="separate")
    elif name == "deflate.tif":
        tifffile.imwrite(tmp_path / name, picture, photometric="rgb", compression="zlib", predictor=True)
    else:  # OpenCV compresses TIFF with LZW unless told otherwise
        options = [cv2.IMWRITE_TIFF_COMPRESSION, 1] if name == "a.tif" else []
        assert cv2.imwrite(str(tmp_path / name), picture[..., ::-1], options)
    frame = read_rgb(tmp_path / name)
    assert frame.metadata.bit_depth == 16
    np.testing.assert_array_equal(frame.pixels, picture)


def test_conversions_are_said(tmp_path, photo):
    picture = Image.fromarray(photo())
    picture.convert("L").save(tmp_path / "grey.png")
    picture.convert("1").save(tmp_path / "bw.png")
    picture.convert("P").save(tmp_path / "palette.png")
    picture.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=98)
    cv2.imwrite(str(tmp_path / "grey16.png"), sixteen_bits(photo())[..., 0])
    picture.putalpha(Image.new("L", picture.size, 255))
    picture.save(tmp_path / "opaque.png")
    picture.putalpha(Image.new("L", picture.size, 0))
    picture.save(tmp_path / "clear.png")
    expected = {
        "grey.png": "grey turned into RGB",
        "bw.png": "black and white turned into RGB",
        "palette.png": "palette turned into RGB",
        "cmyk.jpg": "CMYK converted to sRGB",
        "grey16.png": "grey turned into RGB",
        "opaque.png": "opaque alpha dropped",
        "clear.png": "transparency laid over white",
    }
    for name, note in expected.items():
        frame = read_rgb(tmp_path / name)
        assert frame.notes == (note,), name
        assert frame.pixels.shape == (24, 32, 3), name
    assert (read_rgb(tmp_path / "clear.png").pixels == 255).all()
    np.testing.assert_array_equal(read_rgb(tmp_path / "opaque.png").pixels, photo())
    assert np.abs(read_rgb(tmp_path / "cmyk.jpg").pixels.astype(int) - photo()).mean() < 6


def test_colours_of_a_tiff_are_those_meant(tmp_path, photo):
    picture, path = photo(), tmp_path / "a.tif"
    tifffile.imwrite(path, 255 - picture[..., 0], photometric="miniswhite")
    np.testing.assert_array_equal(read_rgb(path).pixels[..., 1], picture[..., 0])
    deep = sixteen_bits(picture)
    tifffile.imwrite(path, 65535 - deep[..., 0], photometric="miniswhite")
    np.testing.assert_array_equal(read_rgb(path).pixels[..., 1], deep[..., 0])
    Image.fromarray(picture).convert("LAB").save(path)
    assert read_rgb(path).notes == ("LAB converted to sRGB",)
    smooth = np.full((24, 32, 3), (180, 90, 60), np.uint8)
    Image.fromarray(smooth).convert("LAB").save(path)
    assert np.abs(read_rgb(path).pixels.astype(int) - smooth).max() <= 4
    Image.fromarray(picture).convert("1").save(path)
    assert read_rgb(path).notes == ("black and white turned into RGB",)
    tifffile.imwrite(path, np.concatenate((65535 - deep, 0 * deep[..., :1]), 2), photometric="separated")
    with pytest.raises(InputError, match=r"a\.tif holds 16-bit SEPARATED colours; save it as 8- or 16-bit RGB"):
        read_rgb(path)
    tifffile.imwrite(path, picture, photometric="rgb", bigtiff=True)
    np.testing.assert_array_equal(read_rgb(path).pixels, picture)
    assert peek_rgb(path)[0] == (24, 32)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["CMYK", "P"])
def test_a_tiff_that_pillow_decodes_is_turned_once(tmp_path, mode, orientation):
    scene = np.zeros((16, 32, 3), np.uint8)
    scene[:8, :16], scene[8:] = (255, 0, 0), (0, 255, 0)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(scene).save(tmp_path / "rgb.tif", exif=exif)
    Image.fromarray(scene).convert(mode, palette=Image.Palette.ADAPTIVE).save(tmp_path / "a.tif", exif=exif)
    frame, expected = read_rgb(tmp_path / "a.tif"), read_rgb(tmp_path / "rgb.tif")
    assert peek_rgb(tmp_path / "a.tif")[0] == frame.size == expected.size
    np.testing.assert_array_equal(frame.pixels, expected.pixels)


@pytest.mark.parametrize("name", ["a.png", "alpha.png", "deep.png", "a.tif"])
def test_a_grey_profile_does_not_describe_rgb(tmp_path, photo, name):
    grey, profile = photo()[..., 0], b"a profile of greys" * 20
    if name == "a.tif":
        tifffile.imwrite(tmp_path / name, grey, extratags=[(34675, 7, len(profile), profile, True)])
    elif name == "deep.png":
        data = cv2.imencode(".png", grey.astype(np.uint16) * 257)[1].tobytes()
        (tmp_path / name).write_bytes(data[:33] + chunk(b"iCCP", b"grey\0\0" + zlib.compress(profile)) + data[33:])
    else:
        Image.fromarray(grey).convert("LA" if name == "alpha.png" else "L").save(tmp_path / name, icc_profile=profile)
    frame = read_rgb(tmp_path / name)
    assert frame.notes in (("grey turned into RGB",), ("opaque alpha dropped",))
    assert frame.metadata.icc_profile is None


def test_sixteen_bit_alpha(tmp_path, photo):
    picture = sixteen_bits(photo())
    half = np.full((24, 32, 1), 32768, np.uint16)
    cv2.imwrite(str(tmp_path / "a.png"), np.concatenate((picture[..., ::-1], half), axis=2))
    frame = read_rgb(tmp_path / "a.png")
    assert frame.notes == ("transparency laid over white",)
    alpha = 32768 / 65535
    np.testing.assert_allclose(frame.pixels, picture * alpha + 65535 * (1 - alpha), atol=1)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.tif"])
def test_orientation(tmp_path, orientation, name):
    """The marked corner of the scene ends top left, whatever way the camera was held."""
    scene = np.zeros((16, 32, 3), np.uint8)
    scene[:8, :16] = (250, 20, 20)
    scene[:8, 16:] = (20, 250, 20)
    stored = {
        2: scene[:, ::-1],
        3: scene[::-1, ::-1],
        4: scene[::-1],
        5: scene.transpose(1, 0, 2),
        6: np.rot90(scene),
        7: np.rot90(scene, 2).transpose(1, 0, 2),
        8: np.rot90(scene, -1),
    }.get(orientation, scene)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / name, exif=exif)
    frame = read_rgb(tmp_path / name)
    assert frame.size == (16, 32) == peek_rgb(tmp_path / name)[0]
    assert np.abs(frame.pixels.astype(int) - scene)[2:6, 2:14].max() < 20
    assert np.abs(frame.pixels.astype(int) - scene)[2:6, 18:30].max() < 20
    assert frame.metadata.orientation == orientation


def test_metadata(tmp_path, photo):
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Acme", "Testcam"
    exif[0x8769] = {0x829A: 0.01, 0x829D: 2.0, 0x8827: 400, 0x9003: "2026:11:15 03:20:10", 0x9291: "25"}
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.fromarray(photo()).save(tmp_path / "a.jpg", exif=exif, icc_profile=icc)
    metadata = read_rgb(tmp_path / "a.jpg").metadata
    assert metadata.icc_profile == icc
    assert metadata.exposure == pytest.approx(0.01 * 400 / 4)
    assert metadata.taken is not None and metadata.taken.isoformat() == "2026-11-15T03:20:10.250000"
    kept = Image.Exif()
    kept.load(metadata.exif)
    assert kept[0x0110] == "Testcam" and kept[0x0112] == 1
    assert kept.get_ifd(0x8769)[0x8827] == 400


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png", "pages.tif"])
def test_animations_give_their_first_frame(tmp_path, photo, name):
    frames = [Image.fromarray(photo(seed=seed)) for seed in range(3)]
    options = {"lossless": True} if name == "a.webp" else {}
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **options)
    frame = read_rgb(tmp_path / name)
    assert "3 frames is used" in frame.notes[0] or "3 pages is used" in frame.notes[0]
    if name != "a.gif":
        np.testing.assert_array_equal(frame.pixels, photo(seed=0))


@pytest.mark.parametrize("size", [(1, 1), (3, 5000), (5000, 3)])
def test_odd_sizes(tmp_path, photo, size):
    Image.fromarray(photo(*size)).save(tmp_path / "a.png")
    assert load_burst(tmp_path / "a.png").frames.shape == (1, 3, *size)


def test_unicode_and_spaces(tmp_path, photo):
    folder = tmp_path / "my shöts 写真"
    folder.mkdir()
    Image.fromarray(photo()).save(folder / "фото 1.jpg")
    cv2.imencode(".png", sixteen_bits(photo(seed=1)))[1].tofile(folder / "фото 2.png")
    assert load_burst(folder).names == ("фото 1.jpg", "фото 2.png")


def test_errors(tmp_path, photo):
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(InputError, match=r"^empty\.jpg is empty \(0 bytes\); copy it again or leave it out\.$"):
        load_burst(tmp_path / "empty.jpg")
    (tmp_path / "text.jpg").write_text("This is a text file. " * 10)
    with pytest.raises(InputError, match=r"^text\.jpg is not a picture in a format that is read here; leave it out\.$"):
        load_burst(tmp_path / "text.jpg")
    with pytest.raises(InputError, match=r"missing\.jpg does not exist; check the name"):
        load_burst(tmp_path / "missing.jpg")
    tifffile.imwrite(tmp_path / "float.tif", photo().astype(np.float32))
    with pytest.raises(InputError, match=r"float\.tif holds floating-point samples; save it as 8 or 16 bit"):
        load_burst(tmp_path / "float.tif")


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.avif", "a.tif", "deep.png", "deep.tif"])
def test_truncated_files_are_refused(tmp_path, name):
    rng = np.random.default_rng(0)
    if name.startswith("deep"):
        cv2.imwrite(str(tmp_path / name), rng.integers(0, 65535, (64, 64, 3), dtype=np.uint16))
    else:
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for share in (0.5, 0.9, 0.97):
        (tmp_path / name).write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(InputError, match=rf"^{name} is cut off or damaged"):
            read_burst(tmp_path / name)


def test_decompression_bombs_are_refused(tmp_path):
    """A file of some hundred bytes that claims 30000×30000 pixels is refused unread."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    for side, words in ((30000, "claims far more pixels"), (12500, "claims 12500×12500 pixels, more than the 150")):
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))
        (tmp_path / "bomb.png").write_bytes(data + chunk(b"IEND", b""))
        with pytest.raises(InputError, match=words):
            load_burst(tmp_path / "bomb.png")


def test_heic(tmp_path, photo):
    heif = pytest.importorskip("pillow_heif", reason="needs the extra heif")
    heif.register_heif_opener()
    exif = Image.Exif()
    exif[0x0110] = "Testcam"
    Image.fromarray(photo(64, 96)).save(tmp_path / "a.heic", quality=95, exif=exif)
    frame = read_rgb(tmp_path / "a.heic")
    assert np.abs(frame.pixels.astype(int) - photo(64, 96)).mean() < 4
    assert frame.metadata.exif is not None and b"Testcam" in frame.metadata.exif


@pytest.mark.parametrize("name", ["a.heic", "a.jpg"])  # phones call them so, too
def test_heic_says_what_to_install(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / name).write_bytes(b"\0\0\0\x18ftypheic")
    with pytest.raises(InputError, match=rf"{name} is HEIC, which needs pillow-heif: pip install 'burstmamba\[heif\]'"):
        load_burst(tmp_path / name)


@pytest.mark.parametrize("name", ["a.png", "deep.png", "a.tif", "deep.tif", "a.jpg", "a.webp", "a.avif"])
def test_damaged_files_never_raise_anything_else(tmp_path, photo, name):
    """Forty copies with random bytes changed: read, or refused in a sentence that names the file."""
    image = torch.from_numpy(photo(40, 56).astype(np.float32) / 255).permute(2, 0, 1)
    path = save_image(tmp_path / name, image, bits=16 if name.startswith("deep") else 8)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(40):
        damaged = bytearray(whole)
        for place in rng.integers(0, min(len(whole), 300), 3):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(bytes(damaged))
        try:
            load_burst(path)
        except InputError as error:  # refusing is allowed, in a sentence
            assert name in str(error)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("orientation", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_compressed_tiff_is_turned_once(tmp_path, photo, bits, orientation):
    """tifffile leaves LZW to another package; OpenCV, which decodes it, turns pictures itself."""
    picture = photo() if bits == 8 else sixteen_bits(photo())
    plain, lzw = tmp_path / "plain.tif", tmp_path / "lzw.tif"
    tag = [(274, "H", 1, orientation, True)]
    tifffile.imwrite(plain, picture, photometric="rgb", extratags=tag, metadata=None)
    assert cv2.imwrite(str(lzw), picture[..., ::-1])  # LZW
    with tifffile.TiffFile(lzw) as file:
        place = file.pages.first.tags[284].offset  # how planes lie, which need not be said
    with lzw.open("r+b") as stream:
        stream.seek(place)
        stream.write(struct.pack("<HHIHH", 274, 3, 1, orientation, 0))
    expected, frame = read_rgb(plain), read_rgb(lzw)
    np.testing.assert_array_equal(frame.pixels, expected.pixels)
    assert peek_rgb(lzw)[0] == frame.size == ((32, 24) if orientation >= 5 else (24, 32))


@pytest.mark.parametrize("kind", ["unspecified", "assocalpha", "unassalpha"])
def test_what_a_tiff_says_of_its_fourth_channel(tmp_path, photo, kind):
    picture, alpha = photo().astype(np.float32), np.full((24, 32, 1), 128, np.uint8)
    share = 128 / 255
    stored = picture * share if kind == "assocalpha" else picture
    samples = np.concatenate((np.rint(stored).astype(np.uint8), alpha), axis=2)
    tifffile.imwrite(tmp_path / "a.tif", samples, photometric="rgb", extrasamples=[kind])
    expected = picture if kind == "unspecified" else picture * share + 255 * (1 - share)
    frame = read_rgb(tmp_path / "a.tif")
    assert np.abs(frame.pixels - expected).max() <= 1.5
    assert len(frame.notes) == 1


def test_a_grey_profile_does_not_stay_with_rgb(tmp_path, photo):
    picture = sixteen_bits(photo())[..., :1]
    rows = np.concatenate((picture, np.full_like(picture, 65535)), axis=2).astype(">u2")
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 24, 16, 4, 0, 0, 0))
    profile = chunk(b"iCCP", b"grey\0\0" + zlib.compress(b"\0" * 16 + b"GRAY" + b"\0" * 108))
    body = chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + profile + body)
    frame = read_rgb(tmp_path / "a.png")
    assert frame.metadata.icc_profile is None and "grey turned into RGB" in frame.notes
    np.testing.assert_array_equal(frame.pixels[..., 1], picture[..., 0])


def test_cmyk_with_the_profile_of_something_else(tmp_path, photo):
    rgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.fromarray(photo()).convert("CMYK").save(tmp_path / "a.jpg", quality=98, icc_profile=rgb)
    frame = read_rgb(tmp_path / "a.jpg")
    assert frame.metadata.icc_profile is None and np.abs(frame.pixels.astype(int) - photo()).mean() < 12
