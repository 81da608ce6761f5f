"""RAW files: real DNGs written here and read back by LibRaw."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from burstmamba.errors import InputError
from burstmamba.files import HeaderlessRaw, load_burst, read_burst
from burstmamba.files.develop import develop
from burstmamba.files.grouping import group_bursts
from burstmamba.files.mosaic import mosaic_to_rgb, pack, rggb_offset, shift_to_rggb, unpack, upright, upright_mosaic
from burstmamba.files.raw import peek_raw, read_raw

pytest.importorskip("rawpy", reason="RAW files are read by rawpy, which is not installed")
ORDERS = ("RGGB", "BGGR", "GRBG", "GBRG")


@pytest.mark.parametrize("cfa", ORDERS)
def test_values(tmp_path, whole_mosaic, mosaic, write_dng, cfa):
    """Every order gives the very samples of the one mosaic that the four files were cut from."""
    frame = read_raw(write_dng(tmp_path / "a.dng", mosaic(cfa), cfa))
    top, left = rggb_offset(cfa)
    # Cut by (top, left) to make the file, then by (top, left) again to return to red.
    cut = whole_mosaic[2 * top :, 2 * left :][: frame.size[0], : frame.size[1]]
    expected = (cut.astype(np.float32) - 256) / (3840 - 256)
    assert frame.camera.cfa == "RGGB" and frame.camera.linear
    assert frame.size == (64 - 2 * top, 96 - 2 * left)
    np.testing.assert_allclose(frame.pixels, expected.clip(0, 1), atol=1e-6)
    assert bool(frame.notes) == (cfa != "RGGB")


def test_camera(tmp_path, mosaic, write_dng):
    noise = (51041, 12, 6, (1e-4, 2e-6, 2e-4, 4e-6, 3e-4, 6e-6), True)
    camera = read_raw(write_dng(tmp_path / "a.dng", mosaic(), extra=(noise,))).camera
    assert camera.white_balance == pytest.approx((2.0, 1.0, 1.5), rel=1e-3)
    matrix = np.array(camera.color_matrix)
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(matrix, [[1.6, -0.5, -0.1], [-0.2, 1.5, -0.3], [0, -0.4, 1.4]], atol=0.01)
    assert camera.noise == pytest.approx((2e-4, 4e-6))


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_orientation(tmp_path, mosaic, write_dng, orientation):
    """A turned sensor gives an upright RGGB mosaic: each colour lands where the turned picture has it."""
    sites = mosaic()
    frame = read_raw(write_dng(tmp_path / "a.dng", sites, orientation=orientation))
    turned = (upright(sites, orientation).astype(np.float32) - 256) / (3840 - 256)
    colours = upright(np.tile([["R", "G"], ["G", "B"]], (32, 48)), orientation)
    order = "".join(colours[:2, :2].ravel())
    np.testing.assert_allclose(frame.pixels, shift_to_rggb(turned.clip(0, 1), order), atol=1e-6)
    assert peek_raw(tmp_path / "a.dng")[0] == turned.shape


def test_linear_dng_is_demosaicked(tmp_path, write_dng, photo):
    pixels = (photo(64, 96).astype(np.uint16) << 3) + 256
    loaded = read_burst(write_dng(tmp_path / "a.dng", pixels))
    assert loaded.burst.frames.shape == (1, 3, 64, 96)
    assert loaded.burst.camera.cfa is None and not loaded.burst.camera.linear
    assert "no Bayer mosaic, demosaicked by LibRaw to RGB" in loaded.notes[0]


def test_x_trans_is_demosaicked(tmp_path, write_dng):
    """A grey wall on a 6×6 pattern comes out as grey sRGB."""
    pattern = "GGRGGBGGBGGRBRGRBGGGBGGRGGRGGBRBGBRG"
    sites = np.tile(np.array(["RGB".index(colour) for colour in pattern]).reshape(6, 6), (90, 96))
    grey = 0.4 / np.array((2.0, 1.0, 1.5))
    pixels = (256 + grey[sites] * (3840 - 256)).round().astype(np.uint16)
    loaded = read_burst(write_dng(tmp_path / "a.dng", pixels, pattern))
    assert loaded.burst.frames.shape == (1, 3, 540, 576) and loaded.burst.camera.cfa is None
    assert "no Bayer mosaic, demosaicked by LibRaw to RGB" in loaded.notes[0]
    encoded = 1.055 * 0.4 ** (1 / 2.4) - 0.055
    assert (loaded.burst.frames[..., 20:-20, 20:-20] - encoded).abs().max() < 0.01


def test_exposure_bracket_is_normalised(tmp_path, mosaic, write_dng):
    """Frames at half the exposure come out as bright as the keyframe, and it is said."""
    bright = mosaic()
    dark = ((bright.astype(np.float32) - 256) / 2 + 256).round().astype(np.uint16)
    for name, pixels, seconds in (("a", bright, 100), ("b", dark, 50)):
        exposure = [(33434, 5, 1, (seconds, 10000), True), (34855, 3, 1, 100, True), (33437, 5, 1, (28, 10), True)]
        write_dng(tmp_path / f"{name}.dng", pixels, extra=tuple(exposure))
    loaded = read_burst(tmp_path)
    assert (loaded.burst.frames[0] - loaded.burst.frames[1]).abs().max() < 1e-3
    assert "b.dng was exposed 1.0 stops darker than the keyframe and has been scaled to it" in loaded.notes
    as_is = read_burst(tmp_path, exposure="as-is").burst.frames
    assert float(as_is[1].mean()) == pytest.approx(float(as_is[0].mean()) / 2, rel=0.01)


def test_bursts_of_raw_files_that_are_no_tiff_are_told_apart_by_time(tmp_path, mosaic, write_dng):
    """An Olympus file as far as its header goes: its time is known to LibRaw alone."""
    stand_in = struct.pack("<HHII", 34666, 4, 1, 0)  # tifffile writes no pointer to EXIF
    for i, minute in enumerate((0, 0, 30, 30)):
        path = write_dng(tmp_path / "a.dng", mosaic(), extra=((34666, 4, 1, 0, True),))
        content = path.read_bytes().replace(stand_in, struct.pack("<HHII", 34665, 4, 1, path.stat().st_size))
        after = len(content) + 2 + 3 * 12 + 4
        exif = struct.pack("<H", 3) + struct.pack("<HHII", 33434, 5, 1, after) + struct.pack("<HHII", 34855, 3, 1, 100)
        exif += struct.pack("<HHIII", 36867, 2, 20, after + 8, 0) + struct.pack("<II", 1, 100)
        taken = f"2024:05:01 12:{minute:02d}:0{i}".encode() + bytes(1)
        (tmp_path / f"P{i}.orf").write_bytes(b"IIRO" + content[4:] + exif + taken)
    path.unlink()
    first = tmp_path / "P0.orf"
    assert peek_raw(first)[1].taken == read_raw(first).metadata.taken is not None
    groups = [[path.name for path in group.paths] for group in group_bursts(tmp_path)]
    assert groups == [["P0.orf", "P1.orf"], ["P2.orf", "P3.orf"]]


def test_clipped_bright_frame_is_left_out(tmp_path, mosaic, write_dng):
    dark = mosaic()
    bright = ((dark.astype(np.float32) - 256) * 4 + 256).clip(0, 4095).astype(np.uint16)
    for name, pixels, seconds in (("a", dark, 50), ("b", bright, 200)):
        exposure = [(33434, 5, 1, (seconds, 10000), True), (34855, 3, 1, 100, True)]
        write_dng(tmp_path / f"{name}.dng", pixels, extra=tuple(exposure))
    loaded = read_burst(tmp_path)
    assert loaded.burst.names == ("a.dng",)
    assert loaded.notes == ("b.dng left out: exposed 2.0 stops brighter than the keyframe, with clipped highlights",)


def test_errors(tmp_path, mosaic, write_dng):
    (tmp_path / "text.dng").write_text("no RAW at all, whatever the name says")
    with pytest.raises(InputError, match=r"text\.dng is not a RAW file that LibRaw reads; leave it out"):
        load_burst(tmp_path / "text.dng")
    whole = write_dng(tmp_path / "whole.dng", mosaic()).read_bytes()
    (tmp_path / "cut.dng").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.dng is cut off or damaged"):
        load_burst(tmp_path / "cut.dng")
    for size in (2 * 768 * 512, 100):  # the first is a size that LibRaw takes for a certain camera's
        (tmp_path / "dump.raw").write_bytes(bytes(size))
        with pytest.raises(InputError, match=r"dump\.raw has no header .* give its size and levels .* HeaderlessRaw"):
            load_burst(tmp_path / "dump.raw")
    with pytest.raises(InputError, match=r"has 100 bytes where 8×8 16-bit samples take 128"):
        read_burst(tmp_path / "dump.raw", headerless=HeaderlessRaw(8, 8, "RGGB", 0, 4095))
    with pytest.raises(InputError, match="white level above its black level"):
        HeaderlessRaw(8, 8, "RGGB", 100, 100)
    with pytest.raises(InputError, match=r"whole\.dng claims 96×64 pixels, more than the 0 megapixels"):
        read_burst(tmp_path / "whole.dng", max_pixels=1000)


def test_mixed_raw_and_developed_is_refused(tmp_path, mosaic, write_dng, photo):
    from PIL import Image

    write_dng(tmp_path / "a.dng", mosaic())
    Image.fromarray(photo(64, 96)).save(tmp_path / "b.jpg")
    with pytest.raises(InputError, match=r"b\.jpg is a developed picture and a\.dng is RAW"):
        load_burst(tmp_path)
    Image.fromarray(photo(64, 96)).save(tmp_path / "a.jpg")
    (tmp_path / "b.jpg").unlink()
    loaded = read_burst(tmp_path)
    assert loaded.burst.names == ("a.dng",)
    assert "1 developed picture(s) beside RAW files of the same name ignored" in loaded.notes


def test_pack():
    mosaic = torch.arange(24.0).reshape(1, 1, 4, 6)
    planes = pack(mosaic)
    assert planes.shape == (1, 4, 2, 3)
    for site, (y, x) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        assert torch.equal(planes[0, site], mosaic[0, 0, y::2, x::2])
    assert torch.equal(unpack(planes), mosaic)


def test_demosaicking_keeps_flat_colours():
    colour = torch.tensor([0.7, 0.4, 0.1])
    mosaic = torch.empty(1, 1, 8, 10)
    mosaic[..., 0::2, 0::2], mosaic[..., 1::2, 1::2] = colour[0], colour[2]
    mosaic[..., 0::2, 1::2] = mosaic[..., 1::2, 0::2] = colour[1]
    torch.testing.assert_close(mosaic_to_rgb(mosaic), colour.view(1, 3, 1, 1).expand(1, 3, 8, 10))


def test_small_mosaics():
    with pytest.raises(InputError, match="a BGGR mosaic needs at least 3×3 pixels, got 2×2"):
        shift_to_rggb(np.zeros((2, 2)), "BGGR")
    with pytest.raises(InputError, match="at least 2×2"):
        upright_mosaic(np.zeros((1, 5)), "RGGB", 1)


def test_four_orders_of_a_photograph_agree(shared_data):
    """One Nikon photograph sampled in four orders: after demosaicking the same picture, up to interpolation."""
    pictures = {}
    for cfa in ORDERS:
        layout = HeaderlessRaw(768, 512, cfa, 600, 15520, (1.949, 1.0, 1.344))
        burst = read_burst(shared_data / "raw" / f"DSC_1339_768x512_{cfa.lower()}.raw", headerless=layout).burst
        pictures[cfa] = mosaic_to_rgb(burst.frames)[0]
    for cfa in ORDERS[1:]:
        top, left = rggb_offset(cfa)
        height, width = min(pictures[cfa].shape[1], 512 - top), min(pictures[cfa].shape[2], 768 - left)
        base = pictures["RGGB"][:, top : top + height, left : left + width]
        error = (base - pictures[cfa][:, :height, :width]).square().mean()
        assert -10 * error.log10() > 36, cfa
        # Red and blue swapped, or a wrong shift, would be far off.
        assert -10 * (base - pictures[cfa][[2, 1, 0], :height, :width]).square().mean().log10() < 25


def test_colours_agree_with_libraw(shared_data):
    """A real DNG: our white balance, levels and matrix give LibRaw's own linear picture."""
    import rawpy

    path = shared_data / "raw" / "colorchart.dng"
    burst = load_burst(path)
    assert burst.frames.shape == (1, 1, 1156, 1734)
    assert burst.camera.white_balance == pytest.approx((2.477, 1.0, 2.477 / 1.462), rel=1e-3)
    ours = develop(mosaic_to_rgb(burst.frames)[0], burst.camera, look="linear")
    with rawpy.imread(str(path)) as raw:
        theirs = raw.postprocess(
            use_camera_wb=True, no_auto_bright=True, adjust_maximum_thr=0.0, output_bps=16, gamma=(1, 1)
        )
    theirs = torch.from_numpy(theirs / 65535).float().permute(2, 0, 1)
    ours, theirs = (torch.nn.functional.avg_pool2d(picture, 34) for picture in (ours, theirs))
    assert (ours - theirs).abs().max() < 0.01
    assert (ours - theirs).abs().mean() < 0.001


def test_colour_chart(shared_data):
    """Developed chart patches have their colours, judged against the chart's white."""
    burst = load_burst(shared_data / "raw" / "colorchart.dng")
    picture = develop(mosaic_to_rgb(burst.frames)[0], burst.camera)

    def patch(x: int, y: int) -> torch.Tensor:
        return picture[:, 2 * y - 12 : 2 * y + 12, 2 * x - 12 : 2 * x + 12].mean((1, 2))

    white, black = patch(353, 465), patch(627, 465)
    blue, green, red, yellow = (patch(x, 410) / white for x in (353, 407, 462, 517))
    assert white.max() > 0.85 and black.max() < 0.2
    assert red[0] > 3 * red[1] and red[0] > 3 * red[2]
    assert green[1] > 1.3 * green[0] and green[1] > 1.3 * green[2]
    assert blue[2] > 2 * blue[0] and blue[2] > 2 * blue[1]
    assert yellow[0] > 0.8 and yellow[1] > 0.7 and yellow[2] < 0.1
