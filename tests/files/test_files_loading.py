"""From files to a burst: order, keyframe, duplicates, limits, brackets, clips."""

from __future__ import annotations

import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

import burstmamba.files.loading as loading
from burstmamba.errors import InputError
from burstmamba.files import load_burst, read_burst
from burstmamba.files.selection import choose_frames, overlap, sharpness, survey
from burstmamba.files.shots import natural_key, read_frame


@pytest.fixture
def burst_folder(tmp_path, photo):
    """A folder of five different frames, shot1.png to shot12.png."""
    for number in (1, 2, 3, 10, 12):
        Image.fromarray(photo(seed=number)).save(tmp_path / f"shot{number}.png")
    return tmp_path


def test_natural_order(burst_folder):
    burst = load_burst(burst_folder)
    assert burst.names == ("shot1.png", "shot2.png", "shot3.png", "shot10.png", "shot12.png")
    assert burst.frames.shape == (5, 3, 24, 32) and burst.frames.dtype == torch.float32
    assert load_burst(str(burst_folder / "shot1*.png")).names == ("shot1.png", "shot10.png", "shot12.png")
    assert sorted(["IMG_10", "img_9", "IMG_009b"], key=natural_key) == ["img_9", "IMG_009b", "IMG_10"]
    assert sorted(["10²0", "9²", "²", "٣"], key=natural_key) == ["²", "٣", "9²", "10²0"]  # a superscript is no number


def test_values(burst_folder, photo):
    frames = load_burst(burst_folder).frames
    expected = torch.from_numpy(photo(seed=10).astype(np.float32) / 255).permute(2, 0, 1)
    torch.testing.assert_close(frames[3], expected)


def test_a_list_keeps_its_order(burst_folder):
    names = ["shot3.png", "shot1.png", "shot12.png"]
    assert load_burst([burst_folder / name for name in names]).names == tuple(names)


@pytest.mark.parametrize(("keyframe", "first"), [("first", 1), (3, 10), ("shot2.png", 2)])
def test_keyframe(burst_folder, photo, keyframe, first):
    """The keyframe comes first, pixels and all; the others keep their order."""
    burst = load_burst(burst_folder, keyframe=keyframe)
    rest = [number for number in (1, 2, 3, 10, 12) if number != first]
    assert burst.names == tuple(f"shot{number}.png" for number in (first, *rest))
    for frame, number in zip(burst.frames, (first, *rest), strict=True):
        assert torch.equal((frame * 255).round().byte().permute(1, 2, 0), torch.from_numpy(photo(seed=number)))


def test_sharpest_keyframe(tmp_path, photo):
    rng = np.random.default_rng(0)
    scene = cv2.resize(rng.integers(0, 255, (32, 48, 3), dtype=np.uint8), (192, 128), interpolation=cv2.INTER_CUBIC)
    for name, sigma in (("a", 3.0), ("b", 0.5), ("c", 1.5)):
        Image.fromarray(cv2.GaussianBlur(scene, (0, 0), sigma)).save(tmp_path / f"{name}.png")
    loaded = read_burst(tmp_path, keyframe="sharpest")
    assert loaded.burst.names[0] == "b.png"
    assert loaded.notes == ("b.png is the keyframe: the sharpest of 3 frames",)


def test_limit_keeps_the_sharp_and_overlapping(tmp_path):
    """Of a keyframe, two good frames, a blurred one and one that shows little of its view, the good ones are kept."""
    rng = np.random.default_rng(0)
    wide = cv2.resize(rng.integers(0, 255, (40, 80, 3), dtype=np.uint8), (480, 240), interpolation=cv2.INTER_CUBIC)

    def view(x: int) -> np.ndarray:
        return np.ascontiguousarray(wide[40:200, x : x + 200])

    frames = {"a": view(0), "b": cv2.GaussianBlur(view(1), (0, 0), 5), "c": view(2), "d": view(90), "e": view(3)}
    for name, pixels in frames.items():
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    loaded = read_burst(tmp_path, limit=3)
    assert loaded.burst.names == ("a.png", "c.png", "e.png")
    assert loaded.notes == ("the best 3 of 5 frames by sharpness and overlap are used",)
    assert load_burst(tmp_path, limit=1).names == ("a.png",)
    assert load_burst(tmp_path, limit=2, keyframe="b.png").names[0] == "b.png"
    surveys = [survey(i, read_frame(tmp_path / f"{name}.png")) for i, name in enumerate(frames)]
    assert choose_frames(surveys, keyframe=1, limit=9) == [0, 1, 2, 3, 4]
    assert overlap(surveys[0].thumbnail, surveys[3].thumbnail) == pytest.approx(1 - 90 / 200, abs=0.05)


def test_sharpness_ignores_brightness():
    grey = np.random.default_rng(0).random((64, 64)).astype(np.float32)
    assert sharpness(grey * 0.5) == pytest.approx(sharpness(grey), rel=0.01)
    assert sharpness(cv2.GaussianBlur(grey, (0, 0), 2)) < 0.5 * sharpness(grey)


def test_duplicates_are_dropped(burst_folder, photo):
    Image.fromarray(photo(seed=2)).save(burst_folder / "shot4.tif")
    loaded = read_burst(burst_folder)
    assert len(loaded.burst) == 5
    assert loaded.notes == ("shot4.tif dropped: an exact duplicate of shot2.png",)
    assert load_burst(burst_folder, keyframe="shot4.tif").names[0] == "shot2.png"
    limited = read_burst(burst_folder, limit=4)
    assert "1 exact duplicate(s) dropped" in limited.notes and len(limited.burst) == 4


@pytest.mark.parametrize("limit", [None, 3])
def test_positions_count_duplicates(burst_folder, photo, limit):
    """A keyframe is the file asked for, or the one that it repeats, whether frames have to be chosen or not."""
    Image.fromarray(photo(seed=1)).save(burst_folder / "shot1b.png")
    assert load_burst(burst_folder, keyframe=5, limit=limit).names[0] == "shot12.png"
    assert load_burst(burst_folder, keyframe=1, limit=limit).names[0] == "shot1.png"
    assert load_burst(burst_folder, keyframe="shot1b.png", limit=limit).names[0] == "shot1.png"


def test_mixed_sizes_name_the_odd_file(burst_folder, photo):
    Image.fromarray(photo(24, 30)).save(burst_folder / "shot0.png")
    with pytest.raises(InputError, match=r"^shot0\.png is 30×24 where the other frames are 32×24; frames of one burst"):
        load_burst(burst_folder)
    Image.fromarray(photo(20, 30)).save(burst_folder / "shot00.png")
    with pytest.raises(
        InputError, match=r"shot0+\.png is 30×2\d where the other frames are 32×24 \(1 more differ as well\)"
    ):
        load_burst(burst_folder)


def test_bounded_memory(burst_folder, monkeypatch):
    """Without a limit as many frames are kept as the bound holds, in half precision beyond the other one."""
    frame_bytes = 24 * 32 * 3 * 2
    monkeypatch.setattr(loading, "MOST_BYTES", 3 * frame_bytes)
    monkeypatch.setattr(loading, "HALF_ABOVE", 5 * frame_bytes)
    loaded = read_burst(burst_folder)
    assert len(loaded.burst) == 3 and loaded.burst.frames.dtype == torch.float16
    assert "the best 3 of 5 frames by sharpness and overlap are used" in loaded.notes
    assert read_burst(burst_folder, precision="float32").burst.frames.dtype == torch.float32


def test_bracket_of_developed_pictures_is_refused(tmp_path, photo):
    base = photo().astype(np.float32)

    def save(name: str, pixels: np.ndarray, seconds: float) -> None:
        exif = Image.Exif()
        exif[0x8769] = {0x829A: seconds, 0x8827: 100}
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / name, exif=exif)

    save("a.png", base, 0.01)
    save("b.png", base * 0.45, 0.0025)
    with pytest.raises(InputError, match=r"b\.png is exposed 2\.0 stops darker than the keyframe a\.png: an exposure"):
        load_burst(tmp_path)
    assert len(read_burst(tmp_path, exposure="as-is").burst) == 2
    for stops in (-2, -1, 1, 2):  # of light, as a camera encodes it
        light = 0.1 * (base / 255) ** 2.2
        save("a.png", 255 * light ** (1 / 2.2), 0.01)
        save("b.png", 255 * (light * 2.0**stops) ** (1 / 2.2), 0.01 * 2.0**stops)
        with pytest.raises(InputError, match=rf"exposed {abs(stops)}\.0 stops"):
            load_burst(tmp_path)
    save("a.png", base, 0.01)
    # Automatic exposure under changing light: the files differ, the pictures do not.
    save("b.png", base * 0.99, 0.0025)
    assert len(load_burst(tmp_path)) == 2


def test_errors(tmp_path, photo):
    with pytest.raises(InputError, match="holds no picture, RAW file or clip; expected at least one"):
        load_burst(tmp_path)
    with pytest.raises(InputError, match="no files were given; name a folder"):
        load_burst([])
    with pytest.raises(InputError, match=r"no file matches .*\*\.png; check the pattern"):
        load_burst(tmp_path / "*.png")
    Image.fromarray(photo()).save(tmp_path / "a.png")
    (tmp_path / "notes.txt").write_text("hello")
    assert read_burst(tmp_path).notes == (f"1 other file(s) in {tmp_path.name} ignored, such as notes.txt",)
    with pytest.raises(InputError, match=r"notes\.txt has no ending of a picture, RAW file or clip"):
        load_burst([tmp_path / "notes.txt"])
    with pytest.raises(InputError, match="keyframe 3 is out of range: the burst has frames 0 to 0"):
        load_burst(tmp_path, keyframe=3)
    with pytest.raises(InputError, match="keyframe must be first, sharpest, a position or one of the frames, got 'b'"):
        load_burst(tmp_path, keyframe="b")
    with pytest.raises(InputError, match="limit must be at least 1 frame, got 0"):
        load_burst(tmp_path, limit=0)
    for option, known in (("exposure", "match, as-is"), ("hot_pixels", "mend, keep"), ("precision", "auto, float32")):
        with pytest.raises(InputError, match=f"{option} must be one of {known}.*, got 'none'"):
            read_burst(tmp_path, **{option: "none"})


@pytest.fixture(params=["mp4", "mov"])
def clip(tmp_path, photo, request):
    """A short clip of eight different frames."""
    path = tmp_path / f"clip.{request.param}"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), 24, (64, 48))
    if not writer.isOpened():
        pytest.skip("this OpenCV has no MPEG-4 encoder to write the clip with")
    for seed in range(8):
        writer.write(np.ascontiguousarray(photo(48, 64, seed)[..., ::-1]))
    writer.release()
    return path


def test_clip(clip, photo):
    loaded = read_burst(clip, keyframe=2, limit=5)
    assert loaded.burst.frames.shape == (5, 3, 48, 64)
    assert loaded.burst.names[0] == f"{clip.name}#2"
    expected = torch.from_numpy(photo(48, 64, 2).astype(np.float32) / 255).permute(2, 0, 1)
    assert (loaded.burst.frames[0] - expected).abs().mean() < 0.06
    assert len(load_burst(clip)) == 8


def test_bad_files_are_reported_once(tmp_path):
    """Decoders write to standard error on their own; a user's mistake is one line."""
    (tmp_path / "clip.mov").write_bytes(bytes.fromhex("0000001466747970717420200000000071742020") + bytes(3000))
    (tmp_path / "cut.tif").write_bytes(b"II*\0" + (5000).to_bytes(4, "little") + bytes(100))
    for name in ("clip.mov", "cut.tif"):
        script = f"from burstmamba.files import load_burst; load_burst({str(tmp_path / name)!r})"
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
        lines = result.stderr.splitlines()
        assert lines[-1].startswith(f"burstmamba.errors.InputError: {name}")
        assert lines[0].startswith("Traceback") and not any("moov" in line or "TiffPages" in line for line in lines)


def test_clip_errors(clip, tmp_path, photo):
    (tmp_path / "broken.mp4").write_bytes(b"not a video" * 50)
    with pytest.raises(InputError, match=r"broken\.mp4 holds no video that this OpenCV can decode; convert it to H"):
        load_burst(tmp_path / "broken.mp4")
    with pytest.raises(InputError, match=rf"{clip.name} is a video clip among 2 files"):
        load_burst([clip, tmp_path / "broken.mp4"])
    Image.fromarray(photo()).save(tmp_path / "a.png")
    loaded = read_burst(tmp_path)
    assert loaded.burst.names == ("a.png",)
    assert "2 clip(s) beside the pictures" in loaded.notes[0]


@pytest.mark.parametrize(("name", "count"), [("indoor-lowlight", 8), ("street-lr", 14), ("cloth-clip", 14)])
def test_real_bursts(shared_data, name, count):
    burst = load_burst(shared_data / "bursts" / name)
    assert len(burst) == count and burst.camera.cfa is None
    assert 0.05 < float(burst.frames.mean()) < 0.95


def test_numbers_of_numpy_name_a_keyframe(tmp_path, photo):
    for i in range(2):
        Image.fromarray(photo(seed=i)).save(tmp_path / f"{i}.png")
    assert load_burst(tmp_path, keyframe=np.int64(1)).names[0] == "1.png"


def test_every_frame_keeps_its_metadata(tmp_path, photo):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.fromarray(photo(seed=0)).save(tmp_path / "0.png")
    Image.fromarray(photo(seed=1)).save(tmp_path / "1.png", icc_profile=profile)
    loaded = read_burst(tmp_path, keyframe=1)
    assert [metadata.icc_profile for metadata in loaded.every_metadata] == [profile, None]
    assert loaded.metadata is loaded.every_metadata[0]
    assert "the frames' colour profiles differ; that of 1.png is taken for all" in loaded.notes


def test_names_that_no_file_can_have(tmp_path):
    with pytest.raises(InputError, match="cannot be read .File name too long"):
        read_burst(tmp_path / ("a" * 300 + ".png"))


def test_an_empty_name_is_not_this_folder():
    with pytest.raises(InputError, match="the name of the burst is empty"):
        load_burst("")
