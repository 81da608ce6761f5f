"""`burstmamba restore` as a subprocess: exit codes and what it says."""

import json
import shlex
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image
from restore_runs import command, scene, write_burst

from burstmamba.cli import main


def test_a_burst_becomes_a_picture_and_the_report_says_how(burst, tiny, tmp_path):
    output = tmp_path / "großes Bild.png"
    done = command("restore", burst, "-o", output, "--model", tiny, "--compare", tmp_path / "both.png", "--json")
    assert done.returncode == 0, done.stderr
    assert Image.open(output).size == (192, 160)
    report = json.loads(done.stdout)
    assert report["size"] == [192, 160] and report["keyframe"] == "shot 0.png" and report["tiles"] == 1
    assert [frame["name"] for frame in report["frames"]] == ["shot 0.png", "shot 1.png", "shot 2.png"]
    assert 3.5 < report["motion"] < 5.5  # two frames on: 4 pixels aside, 2 down
    assert set(report["seconds"]) == {"load", "model", "align", "network", "collect", "save"}
    assert report["peak_memory_mb"] > 50
    assert "3 frame(s) of 48×40, keyframe shot 0.png (the first frame)" in done.stderr
    assert f"wrote {output}" in done.stderr
    assert (tmp_path / "both.png").exists()
    again = command("restore", burst, "-o", output, "--model", tiny)
    assert again.returncode == 2
    assert (
        again.stderr.strip()
        == f"error: {output} exists already; choose another name or allow replacing it with --force."
    )


def test_dry_run_writes_nothing(burst, tiny, tmp_path):
    done = command("restore", burst, "--model", tiny, "--dry-run", "--crop", "4,2,20,10", "--scale", "2")
    assert done.returncode == 0, done.stderr
    assert "1 window(s) of up to" in done.stdout and "→ 40×20" in done.stdout
    assert "wrote" not in done.stdout and not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A good picture, a good burst, and an empty folder."""
    root = tmp_path_factory.mktemp("shelf")
    (root / "empty").mkdir()
    Image.fromarray(scene()).save(root / "good.jpg")
    Image.new("RGB", (4200, 2)).save(root / "wide.png")
    write_burst(root / "burst")
    return root


MISTAKES = {
    "nothing": ("-o out.png", "name the frames, their folder or a clip, or a folder of bursts with --each"),
    "no output": ("good.jpg", "name the picture to write with -o, such as -o photo.png."),
    "missing": ("nowhere -o out.png", "nowhere does not exist; check the name."),
    "no such folder": ("good.jpg -o a/out.png", "does not exist; create it first."),
    "unknown ending": ("good.jpg -o out.xyz", "out.xyz must end in one of"),
    "no model": ("good.jpg -o out.png --model nonsense", "no model 'nonsense'"),
    "crop": ("good.jpg -o out.png --crop 1,2,3", "crop must be X,Y,W,H in frame pixels"),
    "crop in no numbers": ("good.jpg -o out.png --crop 1,2,3,²", "crop must be X,Y,W,H in frame pixels"),
    "keyframe": ("good.jpg -o out.png --keyframe ²", "keyframe must be first, sharpest, a position or one of"),
    "crop outside": ("good.jpg -o out.png --crop 90,0,20,20", "must lie inside the 96×80 frames"),
    "device": ("good.jpg -o out.png --device warp", "device must be auto, cpu, cuda or cuda:N, got 'warp'."),
    "estimator": (
        "burst -o out.png --correspondence magic",
        "unknown correspondence method 'magic'",
    ),
    "scale": ("good.jpg -o out.png --scale 5", "scale must be a whole number from 1 to 4, got 5."),
    "tile": ("good.jpg -o out.png --tile 10", "tile must be at least 48 pixels"),
    "linear": ("good.jpg -o out.png --linear", "these frames are developed RGB"),
    "dng": ("good.jpg -o out.dng", "DNG holds linear RAW colours and these frames are developed RGB"),
    "dry run of a dng": ("good.jpg -o out.dng --dry-run", "DNG holds linear RAW colours"),
    "dry run of a large webp": ("wide.png -o out.webp --dry-run", "WEBP holds at most 16383 pixels a side"),
    "output is a folder": ("good.jpg -o empty", "empty is a folder; name a file in it."),
    "compared in a dng": ("good.jpg -o out.png --compare both.dng", "a comparison is developed; name it .png or .jpg."),
    "workers for one": ("good.jpg -o out.png --workers 2", "--format, --workers and --ray belong to --each DIR"),
    "format for one": ("good.jpg -o out.png --format jpg", "--format, --workers and --ray belong to --each DIR"),
    "both": ("good.jpg --each empty -o out", "and not both."),
    "each of nothing": ("--each empty -o out", "expected at least one burst."),
    "each of no folder": ("--each good.jpg -o out", "is not a folder; expected a folder of bursts."),
    "each compared": ("--each burst -o out --compare both.png", "--compare and --crop belong to one burst"),
    "each onto itself": ("--each burst -o burst", "would lie among the frames of burst; name another folder with -o."),
    "compared onto itself": ("good.jpg -o out.png --compare ./out.png", "cannot be the picture and the comparison"),
    "dry run onto a file": ("good.jpg -o good.jpg --dry-run", "good.jpg exists already"),
    "each in no format": ("--each burst -o out --format gif", "the format must be one of png, tif, tiff, jpg"),
    "each in too many bits": ("--each burst -o out --format jpg --bits 16", "JPEG holds 8-bit samples, 16 were asked"),
    "each by no model": ("--each burst -o out --model nonsense", "no model 'nonsense'"),
    "each too large": ("--each burst -o out --scale 9", "scale must be a whole number from 1 to 4, got 9."),
    "each too large for all": ("--each burst -o out --scale 9 --model auto", "from 1 to 4, got 9."),
    "each on no device": ("--each burst -o out --device warp", "device must be auto, cpu, cuda or cuda:N, got 'warp'."),
    "no workers": ("--each burst -o out --workers 0", "workers must be at least 1, got 0."),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_give_one_line_and_exit_code_2(case, shelf, tiny, monkeypatch, capsys):
    arguments, sentence = MISTAKES[case]
    model = [] if "--model" in arguments else ["--model", str(tiny)]
    before = {path for path in shelf.rglob("*")}
    monkeypatch.chdir(shelf)
    monkeypatch.setattr(sys, "argv", ["burstmamba", "restore", *arguments.split(), *model])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith("error: ") and sentence in line and "\n" not in line
    assert set(shelf.rglob("*")) == before


def test_a_full_disk_leaves_no_file(burst, tiny, tmp_path):
    done = command("restore", burst, "-o", tmp_path / "out.png", "--model", tiny, limit_bytes=4096)
    assert done.returncode == 2
    output = tmp_path / "out.png"
    sentence = f"{output} could not be written: the disk is full; free some space or choose another folder."
    assert done.stderr == f"error: {sentence}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX shells")
@pytest.mark.parametrize("listener", ["| head -1", "> /dev/full"])
@pytest.mark.parametrize("each", [False, True])
def test_the_picture_is_written_even_if_nobody_listens(burst, tiny, tmp_path, listener, each):
    shots, goes_to = (("--each", burst.parent), "pictures") if each else ((burst,), "out.png")
    call = [sys.executable, "-u", "-m", "burstmamba", "restore", *shots, "-o", tmp_path / goes_to, "--model", tiny]
    line = f"{shlex.join(map(str, call))} {listener}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert Image.open(tmp_path / goes_to / f"{burst.name}.png" if each else tmp_path / goes_to).size == (192, 160)


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_ctrl_c_leaves_no_partial_file(tiny, tmp_path):
    frames = write_burst(tmp_path / "large", count=2, height=600, width=600)
    call = [sys.executable, "-u", "-m", "burstmamba", "restore", str(frames), "-o", str(tmp_path / "out.png")]
    process = subprocess.Popen(
        [*call, "--model", str(tiny)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background run ignores it
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "will take about" in line:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert errors == "interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.slow
def test_ctrl_c_stops_the_workers(tiny, tmp_path):
    """What runs is stopped as well, and what was handed to the workers is not begun."""
    for i in range(12):
        write_burst(tmp_path / "bursts" / str(i), count=3, height=160, width=160, seed=i)
    call = [sys.executable, "-u", "-m", "burstmamba", "restore", "--each", str(tmp_path / "bursts"), "--workers", "2"]
    process = subprocess.Popen(
        [*call, "-o", str(tmp_path / "out"), "--model", str(tiny)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("[1/12] ")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130 and errors == "interrupted\n"
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert len(names) <= 4 and all(name.endswith(".png") for name in names), names  # two were being saved at most


def test_a_dry_run_of_each_needs_no_output(tmp_path, monkeypatch, capsys):
    write_burst(tmp_path / "one", count=2)
    monkeypatch.chdir(tmp_path / "one")
    monkeypatch.setattr(sys, "argv", ["burstmamba", "restore", "--each", "..", "--dry-run"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0 and capsys.readouterr().out == "one: 2 file(s)\n"


def test_each_goes_on_past_bad_bursts_and_resumes(tiny, tmp_path):
    root = tmp_path / "bursts"
    write_burst(root / "one", count=2, height=24, width=24)
    write_burst(root / "two", count=2, height=24, width=24, seed=5)
    (root / "broken").mkdir()
    (root / "broken" / "a.jpg").write_text("no picture")
    arguments = ["restore", "--each", root, "-o", tmp_path / "out", "--model", tiny]
    first = command(*arguments)
    assert first.returncode == 1, first.stderr
    assert "2 restored, 0 already there, 1 failed" in first.stdout
    assert "broken: " in first.stdout and "a.jpg" in first.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["one.png", "two.png"]
    (tmp_path / "out" / "one.png").unlink()
    second = command(*arguments, "--workers", "2", "--json")
    assert second.returncode == 1
    assert {entry["name"]: entry["skipped"] for entry in json.loads(second.stdout)} == {
        "one": False,
        "two": True,
        "broken": False,
    }
    assert (tmp_path / "out" / "one.png").exists()
