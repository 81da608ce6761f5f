"""Plain folders and the commands that write them."""

import dataclasses
import errno
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from typer.testing import CliRunner

from burstmamba.cli import build_app
from burstmamba.data.datasets import open_dataset
from burstmamba.data.examples import example_burst
from burstmamba.data.folders import BurstFolders, write_burst
from burstmamba.data.mosaic_dng import read_mosaic_dng
from burstmamba.data.pictures import write_whole
from burstmamba.data.sample import Sample
from burstmamba.data.synthetic_burst import SyntheticBurstVal
from burstmamba.data.writing import BurstWriter, prepare_folder
from burstmamba.errors import InputError
from burstmamba.evaluation.catalogue import open_benchmark
from burstmamba.synthesis import synthesis_preset, synthesize_burst


def sample_of(name, size=16):
    config = synthesis_preset(name)
    generator = torch.Generator().manual_seed(0)
    photos = torch.rand(1, 3, config.source_size(size), config.source_size(size), generator=generator)
    return synthesize_burst(photos, config, generator, cameras=True)


@pytest.mark.parametrize("name", ["handheld-rgb", "handheld-raw", "synburst"])
def test_written_bursts_come_back(tmp_path, name):
    sample = sample_of(name)
    write_burst(tmp_path, "one", sample, notes={"seed": 3})
    (back,) = list(BurstFolders(tmp_path))
    step = 1 / 15000 if sample.frames.shape[2] == 1 else 1e-6
    assert (back.frames - sample.frames).abs().max() <= step
    assert (back.target - sample.target).abs().max() <= (1 / 65535 if sample.frames.shape[2] == 1 else 0.51 / 255)
    assert torch.equal(back.exact.to_frame, sample.exact.to_frame) and back.centres == sample.centres
    assert back.cameras[0].noise == pytest.approx(sample.cameras[0].noise) and back.names == ("one",)
    assert json.loads((tmp_path / "bursts/one/burst.json").read_text())["seed"] == 3


def test_dng_opens_in_a_raw_converter(tmp_path):
    rawpy = pytest.importorskip("rawpy", reason="RAW files are read by rawpy, which is not installed")
    sample = sample_of("handheld-raw", 32)
    write_burst(tmp_path, "one", sample)
    path = tmp_path / "bursts/one/00.dng"
    with rawpy.imread(str(path)) as raw:
        assert raw.color_desc == b"RGBG" and raw.raw_pattern.tolist() == [[0, 1], [3, 2]]
        gains = np.array(raw.camera_whitebalance[:3]) / raw.camera_whitebalance[1]
        levels = raw.raw_image_visible.astype(np.float32)
    assert gains == pytest.approx(sample.cameras[0].white_balance, rel=1e-4)
    assert np.array_equal((levels - 512) / (16383 - 512), read_mosaic_dng(path))


def test_an_earlier_burst_of_the_name_is_replaced(tmp_path):
    """Its further frames, frames of the other kind and its maps are gone; other bursts stay."""
    write_burst(tmp_path, "one", sample_of("handheld-raw"))
    write_burst(tmp_path, "two", sample_of("handheld-rgb"))
    shorter = sample_of("handheld-rgb")
    shorter = dataclasses.replace(shorter, frames=shorter.frames[:, :3], correspondence=None, exact=None)
    write_burst(tmp_path, "one", shorter)
    one, two = BurstFolders(tmp_path)
    assert torch.allclose(one.frames, shorter.frames, atol=1e-5) and one.exact is None
    assert two.frames.shape[1] == 14 and two.exact is not None


def test_sixteen_bits_are_kept(tmp_path):
    frames = (torch.rand(1, 2, 3, 8, 8) * 65535).round() / 65535
    write_burst(tmp_path, "deep", Sample(frames, torch.rand(1, 3, 32, 32)))
    assert (BurstFolders(tmp_path)[0].frames - frames).abs().max() < 1e-6


def test_frames_of_another_kind_are_refused(tmp_path):
    for name, preset in (("a", "handheld-raw"), ("b", "handheld-raw"), ("c", "handheld-rgb")):
        write_burst(tmp_path, name, sample_of(preset))
    (tmp_path / "bursts/a/00.png").write_bytes((tmp_path / "bursts/c/00.png").read_bytes())
    tifffile.imwrite(tmp_path / "bursts/b/00.dng", np.zeros((16, 16), np.uint16))  # no black and white levels
    for path in (tmp_path / "bursts/c").glob("*.png"):
        path.rename(path.with_suffix(".jpg"))
    data = BurstFolders(tmp_path)
    with pytest.raises(InputError, match="holds PNG and DNG files; a burst has frames of one kind"):
        data[0]
    with pytest.raises(InputError, match="another camera's: only mosaics with black 512 and white 16383"):
        data[1]
    with pytest.raises(InputError, match="has no frames that can be read here"):
        data[2]


def test_example_burst_is_bundled():
    frames = sorted(example_burst("dogs-raw").glob("*.dng"))
    assert len(frames) == 8 and sum(path.stat().st_size for path in frames) < 600_000
    assert read_mosaic_dng(frames[0]).shape == (160, 128)
    with pytest.raises(InputError, match="no example burst 'cat'; there are dogs-raw"):
        example_burst("cat")


def test_optional_files_may_be_missing(tmp_path):
    write_burst(tmp_path, "one", sample_of("handheld-rgb"), maps=False)
    (tmp_path / "bursts/one/burst.json").unlink()
    back = BurstFolders(tmp_path)[0]
    assert back.exact is None and back.centres == "half-pixel"


def test_errors(tmp_path):
    with pytest.raises(InputError, match=r"no plain bursts in .*bursts; expected bursts/NAME/00.png"):
        BurstFolders(tmp_path)
    for name in ("a", "b", "c", "d"):
        write_burst(tmp_path, name, sample_of("handheld-rgb"))
    (tmp_path / "truth/a.png").unlink()
    (tmp_path / "bursts/b/burst.json").write_text("{}")
    (tmp_path / "maps/c.safetensors").write_bytes(b"nothing")
    data = BurstFolders(tmp_path)
    with pytest.raises(InputError, match=r"truth/a.png cannot be read"):
        data[0]
    with pytest.raises(InputError, match=r"burst.json does not describe a burst"):
        data[1]
    with pytest.raises(InputError, match=r"c.safetensors cannot be read"):
        data[2]
    kept = list(open_dataset("folders", tmp_path, skip_bad=True))
    assert [sample.names for sample in kept] == [("d",)]


def test_samples_check_themselves():
    with pytest.raises(InputError, match=r"a sample needs frames \(b, l, c, h, w\)"):
        Sample(torch.zeros(1, 3, 4, 4), torch.zeros(1, 3, 16, 16))
    with pytest.raises(InputError, match=r"whole multiple of the 1 burst\(s\) of 4×4 pixels, got 1 of 15×16"):
        Sample(torch.zeros(1, 2, 3, 4, 4), torch.zeros(1, 3, 16, 15))
    one = sample_of("handheld-rgb")
    two = Sample.collate([one, one])
    assert two.frames.shape[0] == 2 and two.exact.to_frame.shape[0] == 2 and len(two.cameras) == 2
    with pytest.raises(InputError, match="must have one shape"):
        Sample.collate([one, sample_of("handheld-rgb", 18)])
    assert sample_of("handheld-raw").burst().camera.cfa == "RGGB"


def run(*arguments):
    command = [sys.executable, "-m", "burstmamba", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.fixture
def album(tmp_path):
    folder = tmp_path / "album"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (220, 230, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "0007.png")
    return folder


@pytest.mark.slow
def test_synthesize_command(album, tmp_path):
    (album / "bad.jpg").write_bytes(b"no")
    out = tmp_path / "out"
    options = ("--preset", "synburst", "--layout", "synburst", "--size", 16, "--count", 2)
    refused = run("synthesize", album, "-o", out, *options)
    assert refused.returncode == 2 and "bad.jpg cannot be read" in refused.stderr and "Traceback" not in refused.stderr
    done = run("synthesize", album, "-o", out, *options, "--skip-bad", "--force")
    assert done.returncode == 0 and "2 burst(s) of 14 frames" in done.stdout, done.stderr
    data = SyntheticBurstVal(out)
    assert data.names == ("0000", "0001") and data[0].frames.shape == (1, 14, 1, 16, 16)
    assert (out / "SyntheticBurstVal/maps/0001.safetensors").is_file()
    again = run("synthesize", album, "-o", out)
    assert again.returncode == 2 and "is not empty; choose a new folder or add --force" in again.stderr


def test_every_photograph_has_a_motion_of_its_own(album, tmp_path):
    (album / "0008.png").write_bytes((album / "0007.png").read_bytes())
    wishes = {"preset": "handheld-rgb", "layout": "folders", "frames": 3, "size": 16, "nuisance": False, "maps": True}
    made = {}
    for out, seed in (("one", 0), ("again", 0), ("other", 1)):
        writer = BurstWriter.prepare(tmp_path / out, seed=seed, **wishes)
        for path, repetition in ((album / "0007.png", 0), (album / "0007.png", 1), (album / "0008.png", 0)):
            writer.write(path, repetition, 0)
        made[out] = {sample.names[0]: sample.exact.to_frame for sample in BurstFolders(tmp_path / out)}
    assert list(made["one"]) == ["0007", "0007-01", "0008"]
    assert all(torch.equal(maps, made["again"][name]) for name, maps in made["one"].items())
    everything = [maps for out in ("one", "other") for maps in made[out].values()]
    assert len({maps.numpy().tobytes() for maps in everything}) == 6


def test_bursts_with_other_settings(album, tmp_path):
    """`--set` changes one setting of the preset: frames that only shift, all as far as asked for."""
    still = ("--set", "rotation=0", "--set", "perspective=0", "--set", "rolling_shutter=0", "--no-nuisance")

    def shifts(name, shift):
        options = ("--frames", "6", "--size", "16", *still, "--set", f"shift={shift},{shift}")
        command = ["synthesize", str(album), "-o", str(tmp_path / name), *options]
        made = CliRunner().invoke(build_app(), command)
        assert made.exit_code == 0, made.output
        return BurstFolders(tmp_path / name)[0].exact.to_frame

    near, far = shifts("near", 0.5), shifts("far", 2.0)
    assert (near - near.mean((-2, -1), keepdim=True)).abs().max() < 1e-4  # nothing turns
    torch.testing.assert_close(far, 4 * near, atol=1e-4, rtol=1e-4)
    notes = json.loads((tmp_path / "far/bursts/0007/burst.json").read_text())
    assert notes["settings"] == ["rotation=0", "perspective=0", "rolling_shutter=0", "shift=2.0,2.0"]
    for setting, message in (
        ("shfit=1,1", "unknown setting 'shfit'. Did you mean shift?"),
        ("shift=1", "shift expects a value like (0.5, 8.0), got '1'."),
        ("frames=3", "use --frames instead of --set frames."),
        ("pipeline=synburst", "use --preset instead of --set pipeline."),
    ):
        command = ["synthesize", str(album), "-o", str(tmp_path / "no"), "--set", setting]
        wrong = CliRunner().invoke(build_app(), command)
        assert message in str(wrong.exception)
    assert not (tmp_path / "no").exists()


def test_bursts_are_not_written_over_each_other(album, tmp_path):
    (album / "0007-01.png").write_bytes((album / "0007.png").read_bytes())
    for command in ("synthesize", "openburst"):
        (album / "sub").mkdir(exist_ok=True)
        (album / "sub/0007.png").write_bytes((album / "0007.png").read_bytes())
        twice = CliRunner().invoke(build_app(), [command, str(album), "-o", str(tmp_path / "out")])
        assert isinstance(twice.exception, InputError)
        assert "would both give a burst '0007'; rename one of them" in str(twice.exception)
    shutil.rmtree(album / "sub")
    twice = CliRunner().invoke(build_app(), ["synthesize", str(album), "-o", str(tmp_path / "out"), "--count", "2"])
    assert "would both give a burst '0007-01'" in str(twice.exception)
    assert not (tmp_path / "out").exists()


def test_synthetic_burst_has_fourteen_frames(album, tmp_path):
    """A set of other lengths could not be read."""
    command = ["synthesize", str(album), "-o", str(tmp_path / "out"), "--preset", "synburst", "--layout", "synburst"]
    wrong = CliRunner().invoke(build_app(), [*command, "--frames", "8"])
    assert "the synburst layout holds bursts of 14 frames, got 8; leave --frames out" in str(wrong.exception)
    assert not (tmp_path / "out").exists()
    made = CliRunner().invoke(build_app(), [*command, "--size", "8"])
    folder = tmp_path / "out/SyntheticBurstVal"
    assert made.exit_code == 0 and (folder / "maps/0000.safetensors").is_file(), made.output
    (folder / "bursts/0000/im_raw_14.png").write_bytes(b"of a longer burst")
    again = CliRunner().invoke(build_app(), [*command, "--size", "8", "--no-maps", "--force"])
    assert again.exit_code == 0 and not list((folder / "maps").iterdir()), again.output
    assert SyntheticBurstVal(tmp_path / "out")[0].frames.shape == (1, 14, 1, 8, 8)


@pytest.mark.parametrize("command", ["synthesize", "openburst"])
def test_places_that_cannot_be_written_to(album, tmp_path, command):
    (tmp_path / "file").write_text("")
    for place, message in (("file", "file: it is a file; choose"), ("file/out", "cannot write to .*Not a dir")):
        refused = CliRunner().invoke(build_app(), [command, str(album), "-o", str(tmp_path / place), "--force"])
        assert isinstance(refused.exception, InputError) and re.search(message, str(refused.exception))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder where nobody can write, on Linux")
def test_folders_where_nothing_can_be_written():
    for place in ("/proc", "/proc/x"):
        with pytest.raises(InputError, match=f"cannot write to {place}: .*; choose another folder"):
            prepare_folder(Path(place), force=True)


def test_openburst_again(album, tmp_path):
    """What was written before and is not any more is no part of it."""
    out, options = tmp_path / "bench", ["--subsets", "still"]
    command = ["openburst", str(album), "-o", str(out), "--force"]
    assert CliRunner().invoke(build_app(), [*command, *options, "--maps", "--frames", "15"]).exit_code == 0
    (album / "0007.png").rename(album / "0008.png")
    assert CliRunner().invoke(build_app(), [*command, *options]).exit_code == 0
    (item,) = open_benchmark(out).items
    assert item.name == "0008" and item.load().frames.shape[1] == 14
    (album / "0008.png").write_bytes(b"no")
    assert CliRunner().invoke(build_app(), [*command, *options]).exit_code
    with pytest.raises(InputError, match="none of the known benchmarks"):  # half of it may be written
        open_benchmark(out)


def test_openburst_says_what_it_cannot_do(album, tmp_path):
    def refused(*options):
        result = CliRunner().invoke(build_app(), ["openburst", str(album), "-o", str(tmp_path / "out"), *options])
        assert result.exit_code
        return f"{result.stderr} {result.exception}"

    assert "there is no cuda:7: torch sees" in refused("--device", "cuda:7")
    assert "'--limit'" in refused("--limit", "0") and "'--frames'" in refused("--frames", "7")
    Image.new("RGB", (60, 50)).save(album / "small.png")
    assert "small.png: OpenBurst needs photographs of at least 176×176 pixels, got 60×50" in refused()


@pytest.mark.slow
def test_openburst_command(album, tmp_path):
    out = tmp_path / "bench"
    done = run("openburst", album, "-o", out, "--subsets", "still,raw")
    assert done.returncode == 0, done.stderr
    assert "not the published photographs" in done.stderr
    assert BurstFolders(out / "still")[0].frames.shape == (1, 14, 3, 54, 56)
    assert BurstFolders(out / "raw")[0].cameras[0].linear
    assert json.loads((out / "openburst.json").read_text())["published"] is False
    wrong = run("openburst", album, "-o", tmp_path / "x", "--subsets", "dark")
    assert wrong.returncode == 2 and "OpenBurst has no subset 'dark'" in wrong.stderr


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("burstmamba.data.pictures.os.replace", full)
    with pytest.raises(InputError, match="a.json could not be written: the disk is full"):
        write_whole(tmp_path / "a.json", b"{}")
    assert not list(tmp_path.iterdir())
