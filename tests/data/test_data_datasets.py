"""Every loader on small files in the published layouts, and on what can be wrong with them."""

import logging
import pickle
import sys
import types
from fractions import Fraction

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from burstmamba.data.burstsr import BurstSR, zurich_photographs
from burstmamba.data.datasets import open_dataset
from burstmamba.data.realbsr import RealBSRRaw, RealBSRRGB, white_balance
from burstmamba.data.synthetic_burst import SyntheticBurstVal
from burstmamba.errors import InputError

N = 6  # side of a packed frame


def packed(seed, low=600, high=16000):
    """(N, N, 4) uint16 in R, Gr, Gb, B order."""
    return np.random.default_rng(seed).integers(low, high, (N, N, 4), dtype=np.uint16)


def deep_rgb(seed, side):
    return np.random.default_rng(seed).integers(600, 16000, (side, side, 3), dtype=np.uint16)


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), array)  # as the benchmarks did: R, G, B arrays into a writer that expects B, G, R


def dump(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content))


def mosaic_of(array, scale, black=0):
    out = np.zeros((2 * N, 2 * N), np.float32)
    for channel, (y, x) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        out[y::2, x::2] = (array[..., channel].astype(np.float32) - black) / scale
    return torch.from_numpy(out)


META = {
    "rgb2cam": torch.eye(3),
    "cam2rgb": torch.eye(3),
    "rgb_gain": torch.tensor(1.2),
    "red_gain": torch.tensor(2.0),
    "blue_gain": torch.tensor(1.7),
    "smoothstep": True,
    "gamma": True,
    "shot_noise_level": 0.01,
    "read_noise_level": np.float32(1e-4),
    "frame_num": "0000",
}


@pytest.fixture
def synthetic(tmp_path):
    root = tmp_path / "SyntheticBurstVal"
    for b in range(2):
        for i in range(14):
            save(root / f"bursts/{b:04d}/im_raw_{i:02d}.png", packed(20 * b + i))
        save(root / f"gt/{b:04d}/im_rgb.png", deep_rgb(99 + b, 8 * N))
        dump(root / f"gt/{b:04d}/meta_info.pkl", META)
    return tmp_path


def test_synthetic_burst(synthetic):
    data = SyntheticBurstVal(synthetic)
    sample = data[1]
    assert len(data) == 2 and data.names == ("0000", "0001")
    assert sample.frames.shape == (1, 14, 1, 2 * N, 2 * N) and sample.centres == "corner" and sample.scale == 4
    assert torch.allclose(sample.frames[0, 3, 0], mosaic_of(packed(23), 2**14))
    # The files' own colour labels are exchanged; red is red nevertheless.
    assert torch.allclose(sample.target[0, 0], torch.from_numpy(deep_rgb(100, 8 * N)[..., 0] / np.float32(2**14)))
    camera = sample.cameras[0]
    assert camera.white_balance == pytest.approx((2.0, 1.0, 1.7)) and camera.noise == pytest.approx((0.01, 1e-4))
    with Image.open(synthetic / "SyntheticBurstVal/gt/0001/im_rgb.png") as picture:
        assert picture.mode != "I;16"  # a plain reader would see other channels: the trap is in the files


def test_older_archive_has_no_truth(tmp_path):
    for i in range(14):
        save(tmp_path / f"syn_burst_val/0000/im_raw_{i:02d}.png", packed(i))
    data = SyntheticBurstVal(tmp_path)
    assert data.burst(data.folders[0]).frames.shape == (14, 1, 2 * N, 2 * N)
    with pytest.raises(InputError, match="older archive has no ground truth"):
        data[0]


@pytest.mark.parametrize("count", [13, 15])
def test_wrong_number_of_frames(synthetic, count, caplog):
    folder = synthetic / "SyntheticBurstVal/bursts/0000"
    if count == 13:
        (folder / "im_raw_07.png").unlink()
    else:
        save(folder / "im_raw_14.png", packed(5))
    with pytest.raises(InputError, match=f"0000 has {count} frames where 14 are expected"):
        SyntheticBurstVal(synthetic)[0]
    with caplog.at_level(logging.WARNING):
        kept = list(SyntheticBurstVal(synthetic, skip_bad=True))
    assert [sample.names for sample in kept] == [("0001",)]
    assert "left out" in caplog.text and "--skip-bad" in caplog.text
    assert SyntheticBurstVal(synthetic, frames=None)[0].frames.shape[1] == count


def test_damaged_files(synthetic):
    path = synthetic / "SyntheticBurstVal/bursts/0000/im_raw_02.png"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"im_raw_02.png is cut off after \d+ bytes; unpack or download it again"):
        SyntheticBurstVal(synthetic)[0]
    path.write_bytes(b"GIF89a" + whole)
    with pytest.raises(InputError, match="is not a PNG file"):
        SyntheticBurstVal(synthetic)[0]
    save(path, packed(2).astype(np.uint8))
    with pytest.raises(InputError, match=r"should have 4 channel\(s\) of 16 bits, got 4 of 8"):
        SyntheticBurstVal(synthetic)[0]
    save(path, deep_rgb(2, N))
    with pytest.raises(InputError, match="got 3 of 16"):
        SyntheticBurstVal(synthetic)[0]
    save(path, packed(2)[:4])
    with pytest.raises(InputError, match="im_raw_02.png is 6×4 where im_raw_00.png is 6×6"):
        SyntheticBurstVal(synthetic)[0]


def truncated(path):
    path.write_bytes(path.read_bytes()[:-50])


BAD = {
    "missing frame": lambda root: (root / "bursts/0000/im_raw_07.png").unlink(),
    "truncated PNG": lambda root: truncated(root / "bursts/0000/im_raw_07.png"),
    "wrong depth": lambda root: save(root / "bursts/0000/im_raw_07.png", packed(2).astype(np.uint8)),
    "wrong size": lambda root: save(root / "bursts/0000/im_raw_07.png", packed(2)[:4]),
    "no truth": lambda root: (root / "gt/0000/im_rgb.png").unlink(),
    "truncated pickle": lambda root: truncated(root / "gt/0000/meta_info.pkl"),
    "hostile pickle": lambda root: dump(root / "gt/0000/meta_info.pkl", {"gamma": print}),
}


@pytest.mark.parametrize("kind", BAD)
def test_the_rest_stays_usable(synthetic, kind, caplog):
    BAD[kind](synthetic / "SyntheticBurstVal")
    with pytest.raises(InputError, match="0000"):
        list(SyntheticBurstVal(synthetic))
    with caplog.at_level(logging.WARNING):
        kept = list(open_dataset("synburst-val", synthetic, skip_bad=True))
    assert [sample.names for sample in kept] == [("0001",)] and "left out" in caplog.text


def test_wrong_truth(synthetic):
    save(synthetic / "SyntheticBurstVal/gt/0000/im_rgb.png", deep_rgb(0, 4 * N))
    with pytest.raises(InputError, match="is 24×24 where ×4 of the 12×12 mosaic is expected"):
        SyntheticBurstVal(synthetic)[0]


def save_rgb(path, side, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


LAYOUTS = {
    "beside the frames": ("test/003_0021", "test/003_0021", "x4warp"),
    "rewarp": ("test/003_0021", "test/003_0021", "x4rewarp"),
    "aligned, HR": ("test/LR_aligned/003_0021", "test/HR/003_0021", "x4"),
    "aligned, GT": ("test/LR_aligned/003_0021", "test/GT/003_0021", "x4"),
    "unpacked patches": ("testpatch/003_0021", "testpatch/003_0021", "x4warp"),
}


@pytest.mark.parametrize("names", [("train", "test"), ("trainpatch", "testpatch")])
def test_realbsr_splits_stay_apart(tmp_path, names):
    for burst, folder in enumerate(names):
        for i in range(14):
            save_rgb(tmp_path / folder / f"00{burst}_0001/00{burst}_MFSR_Sony_0001_x1_{i:02d}.png", 4, i)
    assert RealBSRRGB(tmp_path, split="train").names == ("000_0001",)
    assert RealBSRRGB(tmp_path, split="test").names == ("001_0001",)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_realbsr_rgb(tmp_path, layout):
    frames, truth, suffix = LAYOUTS[layout]
    written = [save_rgb(tmp_path / frames / f"003_MFSR_Sony_0021_x1_{i:02d}.png", 10, i) for i in range(14)]
    target = save_rgb(tmp_path / truth / f"003_MFSR_Sony_0021_{suffix}.png", 40, 77)
    data = RealBSRRGB(tmp_path)
    sample = data[0]
    assert len(data) == 1 and sample.names == ("003_0021",)
    assert torch.allclose(sample.frames[0, 5], torch.from_numpy(written[5]).permute(2, 0, 1) / 255)
    assert torch.allclose(sample.target[0], torch.from_numpy(target).permute(2, 0, 1) / 255)


def test_realbsr_errors(tmp_path):
    with pytest.raises(InputError, match=r"no RealBSR-RGB bursts below .* expected folders like 000_0001"):
        RealBSRRGB(tmp_path)
    for i in range(14):
        save_rgb(tmp_path / f"test/001_0002/001_MFSR_Sony_0002_x1_{i:02d}.png", 10, i)
    with pytest.raises(InputError, match=r"no ground truth \(\*_x4\*.png\)"):
        RealBSRRGB(tmp_path)[0]
    save_rgb(tmp_path / "test/HR/001_0002/001_MFSR_Sony_0002_x4.png", 20, 1)
    with pytest.raises(InputError, match="is 20×20 where 40×40 is expected for frames stored as 10×10"):
        RealBSRRGB(tmp_path)[0]
    (tmp_path / "test/001_0002/001_MFSR_Sony_0002_x1_03.png").unlink()
    with pytest.raises(InputError, match="001_0002 has 13 frames"):
        RealBSRRGB(tmp_path)[0]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("suffix", ["", "_RAW"])
@pytest.mark.parametrize("subtracted", [False, True])
def test_realbsr_raw(tmp_path, first, suffix, subtracted):
    folder = tmp_path / f"test/001_0009{suffix}"
    for i in range(14):
        save(folder / f"001_MFSR_Sony_0009_x1_{i + first:02d}.png", packed(i))
    save(folder / "001_MFSR_Sony_0009_x4_rgb.png", deep_rgb(55, 8 * N))
    meta = {"black_level": [512] * 4, "cam_wb": [2048.0, 1024.0, 1536.0, 1024.0], "norm_factor": 1.0}
    dump(
        folder / "MFSR_Sony_0009_x4.pkl", meta | {"black_level_subtracted": subtracted, "while_balance_applied": False}
    )
    sample = RealBSRRaw(tmp_path)[0]
    black = 0 if subtracted else 512
    assert torch.allclose(sample.frames[0, 4, 0], mosaic_of(packed(4), 16383, black), atol=1e-6)
    expected = (deep_rgb(55, 8 * N)[..., 2].astype(np.float32) - black) / 16383
    assert torch.allclose(sample.target[0, 2], torch.from_numpy(expected), atol=1e-6)
    assert sample.cameras[0].white_balance == (2.0, 1.0, 1.5)


def test_values_of_white_balance():
    assert white_balance([2.0, 1.0, 1.5]) == (2.0, 1.0, 1.5)
    assert white_balance([4.0, 2.0, 2.0, 3.0]) == (2.0, 1.0, 1.5)  # R, G, G, B
    assert white_balance([4.0, 2.0, 3.0, 2.0]) == (2.0, 1.0, 1.5)  # R, G, B, G
    assert white_balance([4.0, 2.0, 3.0, 0.0]) == (2.0, 1.0, 1.5)


# exifread's types by the names that such files carry; the reader knows them without the package.
IfdTag = type("IfdTag", (), {"__module__": "exifread.classes"})
OldRatio = type(
    "Ratio",
    (),
    {"__module__": "exifread.utils", "__init__": lambda self, num, den: self.__dict__.update(num=num, den=den)},
)
NewRatio = type("Ratio", (Fraction,), {"__module__": "exifread.utils"})


def exif(kind, ratio, time, iso, f_number):
    def tag(value):
        made = IfdTag()
        made.printable, made.values = "", [value]
        return made

    values = {"ExposureTime": ratio(*time), "ISOSpeedRatings": iso, "FNumber": ratio(f_number, 1)}
    return {f"{kind} {name}": tag(value) for name, value in values.items()}


def dump_exif(path, content, ratio, monkeypatch):
    monkeypatch.setitem(sys.modules, "exifread", types.ModuleType("exifread"))
    for module, name, value in (("exifread.classes", "IfdTag", IfdTag), ("exifread.utils", "Ratio", ratio)):
        fake = types.ModuleType(module)
        setattr(fake, name, value)
        monkeypatch.setitem(sys.modules, module, fake)
    dump(path, content)


@pytest.fixture
def phone(tmp_path, monkeypatch):
    folder = tmp_path / "val/0001_0003"
    meta = {"black_level": [64.0] * 4, "cam_wb": [2.0, 1.0, 1.0, 1.6], "color_matrix": np.eye(3)}
    meta["exif_data"] = exif("Image", OldRatio, (1, 50), 100, 2)
    for i in range(14):
        save(folder / f"samsung_{i:02d}/im_raw.png", packed(i, 64, 1023))
        dump_exif(folder / f"samsung_{i:02d}/meta_info.pkl", meta, OldRatio, monkeypatch)
    save(folder / "canon/im_raw.png", deep_rgb(3, 8 * N))
    canon = {"black_level": [600.0] * 4, "cam_wb": [2.0, 1.0, 1.0, 1.5], "rgb_xyz_matrix": np.eye(3)}
    canon["exif_data"] = exif("EXIF", NewRatio, (1, 50), 200, 4)
    dump_exif(folder / "canon/meta_info.pkl", canon, NewRatio, monkeypatch)
    return tmp_path


def test_burstsr(phone):
    sample = BurstSR(phone)[0]
    assert torch.allclose(sample.frames[0, 2, 0], mosaic_of(packed(2, 64, 1023), 1023, 64), atol=1e-6)
    # (1/50 · 100 / 4) / (1/50 · 200 / 16) = 2.
    expected = np.clip((deep_rgb(3, 8 * N)[..., 1].astype(np.float32) - 600) / 16383 * 2, 0, 1)
    assert torch.allclose(sample.target[0, 1], torch.from_numpy(expected), atol=1e-6)
    assert sample.cameras[0].white_balance == pytest.approx((2.0, 1.0, 1.6))


def test_burstsr_errors(phone):
    dump(phone / "val/0001_0003/canon/meta_info.pkl", {"black_level": [600.0] * 4})
    with pytest.raises(InputError, match="lacks the EXIF value ExposureTime"):
        BurstSR(phone)[0]
    (phone / "val/0001_0003/canon/meta_info.pkl").unlink()
    with pytest.raises(InputError, match=r"meta_info.pkl is missing"):
        BurstSR(phone)[0]
    with pytest.raises(InputError, match=r"no BurstSR bursts in .* expected val/0000_0000/samsung_00"):
        BurstSR(phone / "nowhere")


def test_zurich(tmp_path):
    save_rgb(tmp_path / "train/canon/0.png", 64, 0)
    assert zurich_photographs(tmp_path) == tmp_path / "train/canon"
    with pytest.raises(InputError, match=r"test/canon is missing"):
        zurich_photographs(tmp_path, "test")


def test_datasets_by_name(synthetic, tmp_path):
    assert isinstance(open_dataset("synburst-val", synthetic), SyntheticBurstVal)
    with pytest.raises(InputError, match="no data set of kind 'ntire'; choose one of synburst-val, realbsr-rgb"):
        open_dataset("ntire", tmp_path)
