"""`burstmamba train` and `burstmamba plot` as a user runs them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from training_toys import PHASE, RECIPE, toy_train

import burstmamba.recipes.open_raw
import burstmamba.recipes.open_rgb
import burstmamba.recipes.paper_synburst
import burstmamba.recipes.tiny
from burstmamba.checkpoint import load_checkpoint
from burstmamba.cli import main
from burstmamba.cli.train import program_start
from burstmamba.data.pictures import read_png
from burstmamba.errors import InputError
from burstmamba.training import preparation
from burstmamba.training.curves import draw_curves
from burstmamba.training.leaves import write_leaves
from burstmamba.training.logbook import read_logbook
from burstmamba.training.run import RunOptions

SMALL = [
    "model.blocks=(1,)", "model.channels=6", "model.burst_channels=4", "phases.steps=3", "phases.batch=2",
    "phases.patch=8", "complete.frames=((1, 0.5), (3, 0.5))", "validation.bursts=2", "validation.patch=8",
    "validation.frames=3",
]  # fmt: skip


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "burstmamba", *arguments]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(command(*arguments), cwd=cwd, env=environment, capture_output=True, text=True, timeout=200)


def docstring_command(text: str) -> list[str]:
    line = re.search(r"^ *burstmamba (train .*)$", text, re.MULTILINE)
    assert line is not None
    return shlex.split(line[1])


def without_minutes(arguments: list[str]) -> list[str]:
    """The command for as many steps as the recipe has."""
    if "--minutes" not in arguments:
        return arguments
    where = arguments.index("--minutes")
    return arguments[:where] + arguments[where + 2 :]


@pytest.mark.slow
def test_docstring_commands_at_tiny_size(tmp_path):
    """The commands of a recipe that draws its data, of one that reads photographs, of one of the paper's; then plot."""
    folders = ("photos/train-00", "photos/train-00", "photos/train-01", "photos/val")
    for number, folder in enumerate((*folders, "zurich/train/canon", "zurich/test/canon")):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        Image.effect_noise((200, 200), 80).convert("RGB").save(tmp_path / folder / f"{number}.jpg")
    settings = [word for setting in SMALL for word in ("--set", setting)]
    recipes = ((burstmamba.recipes.tiny, 3), (burstmamba.recipes.open_rgb, 3), (burstmamba.recipes.paper_synburst, 6))
    for module, steps in recipes:
        arguments = without_minutes(docstring_command(module.__doc__ or ""))
        result = run(*arguments, *settings, "--device", "cpu", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert "finished: " in result.stdout and "PSNR L=1" in result.stderr
        assert re.search(
            rf"complete step {steps} · loss 0\.\d+ · [\d.]+ steps/s .* 100.0 % .* left 0:00:00", result.stderr
        )
        model = load_checkpoint(tmp_path / arguments[arguments.index("--out") + 1] / "weights.safetensors")
        assert model.config.channels == 6
    phases = [line["phase"] for line in read_logbook(tmp_path / "runs" / "paper-synburst") if line["kind"] == "train"]
    assert phases == ["keyframe"] * 2 + ["complete"] * 2
    result = run(
        "plot",
        "runs/tiny",
        "runs/open-rgb",
        "runs/paper-synburst",
        "-o",
        "curves.png",
        "--over",
        "minutes",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.width > 800 and len(set(picture.convert("RGB").resize((64, 32)).getdata())) > 20


@pytest.mark.slow
def test_raw_recipe_restores_a_raw_burst(tmp_path):
    """The shipped RAW recipe at tiny size: trained, warm-started from its own export, loaded, given a burst of DNGs."""
    from burstmamba import load_burst, load_model, restore_burst

    write_leaves(tmp_path / "photos" / "train-00", 8, 240, 0)  # enough for processes of their own on two cores
    settings = [word for setting in SMALL for word in ("--set", setting)]
    arguments = without_minutes(docstring_command(burstmamba.recipes.open_raw.__doc__ or ""))
    arguments[arguments.index("--val") + 1] = "photos/train-00"
    first = run(*arguments, *settings, "--device", "cpu", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    arguments[arguments.index("--out") + 1] = "runs/second"
    settings += ["--set", "loss_space=srgb", "--warm-start", "runs/open-raw/export"]
    second = run(*arguments, *settings, "--device", "cpu", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    (validation,) = [line for line in read_logbook(tmp_path / "runs" / "second") if line["kind"] == "validation"]
    assert abs(validation["burst"] - validation["base"]) < 3  # three steps: still close to demosaicked and enlarged
    made = run("openburst", "photos/train-00", "-o", "bench", "--subsets", "raw", "--limit", "1", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    model = load_model(tmp_path / "runs" / "second" / "weights.safetensors")
    burst = load_burst(tmp_path / "bench" / "raw" / "bursts" / "leaves-00")
    assert model.config.in_channels == 1 and burst.frames.shape[:2] == (14, 1)
    picture = restore_burst(model, burst)
    h, w = burst.size
    assert picture.shape == (3, 4 * h, 4 * w) and torch.isfinite(picture).all()
    truth = read_png(tmp_path / "bench" / "raw" / "truth" / "leaves-00.png", channels=3, bits=16, swapped=False)
    for channel, ours in enumerate(picture):  # no colour is exchanged for another one
        assert ours.mean().item() == pytest.approx(truth[..., channel].mean() / 65535, rel=0.1)


def interrupt(arguments: list[str], folder: Path, number: int) -> tuple[int, str, str]:
    """Send a signal once the run in `folder` has trained; returns its exit code, output and errors."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(arguments, cwd=folder.parent, env=environment, **pipes)
    log = folder / "log.jsonl"
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not (log.exists() and '"train"' in log.read_text()):
        time.sleep(0.1)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def assert_saved_once(folder: Path) -> None:
    lines = read_logbook(folder)
    (saved,) = [line for line in lines if line["kind"] == "checkpoint"]
    assert (folder / "checkpoints" / saved["file"]).exists() and lines[-1]["finished"] is False


ENDLESS = [word for setting in [*SMALL, "phases.steps=100000", "save_steps=100000", "validation.every=100000"]
           for word in ("--set", setting)]  # fmt: skip


@pytest.mark.slow
def test_ctrl_c_writes_a_checkpoint(tmp_path):
    arguments = command("train", "tiny", "--out", "run", "--device", "cpu", *ENDLESS)
    code, output, errors = interrupt(arguments, tmp_path / "run", signal.SIGINT)
    assert code == 130, errors
    assert "stopped; go on with the same command and --resume" in output and "Traceback" not in errors
    assert_saved_once(tmp_path / "run")


@pytest.mark.slow
def test_torchrun_is_stopped_with_a_checkpoint(tmp_path):
    """The documented command with two processes: SIGTERM reaches both, one writes, and the run can be resumed."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "burstmamba"]
    arguments = [sys.executable, *launcher, "train", "tiny", "--out", "run", "--device", "cpu", *ENDLESS]
    _, output, errors = interrupt(arguments, tmp_path / "run", signal.SIGTERM)
    assert output.count("stopped; go on with the same command and --resume") == 1, errors
    assert [line["processes"] for line in read_logbook(tmp_path / "run") if line["kind"] == "start"] == [2]
    assert_saved_once(tmp_path / "run")
    again = run("train", "tiny", "--out", "run", "--resume", "--pause-after", "0.05", "--device", "cpu", *ENDLESS,
                cwd=tmp_path)  # fmt: skip
    assert again.returncode == 0 and "paused" in again.stdout, again.stderr


def test_memory_that_is_too_small_names_the_settings_that_help(tmp_path, monkeypatch):
    def full(run, source):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB. GPU 0 has …")

    monkeypatch.setattr(preparation, "train", full)
    with pytest.raises(
        InputError, match=r"too small for this recipe \(CUDA out of memory\).*checkpoint_stages=True.*batch"
    ):
        recipe = replace(RECIPE, phases=(replace(PHASE, patch=8),))
        preparation.run_recipe(recipe, RunOptions(out=tmp_path, tensorboard=False), [], device="cpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "open-rgb"], "error: this recipe needs photographs: give --data FOLDER."),
        (["train", "open-rgb", "--set", "phases.bach=2"], "Did you mean phases.batch?"),
        (["train", "tiny", "--device", "cpu", "--warm-start", "nothing.safetensors", *["--set", "phases.patch=8"]],
         "error: no weights at nothing.safetensors"),
        (["train", "tiny", "--minutes", "-1"], "error: --minutes must be more than 0, got -1.0."),
        (["train", "tiny", "--pause-after", "0"], "error: --pause-after must be more than 0, got 0.0."),
        (["train", "tiny", "--shard-mib", "0.5"], "error: --shard-mib must be at least 1, got 0.5."),
        (["train", "tiny", "--set", "validation.patch=3"],
         "error: bursts of photographs need an even validation.patch of at least 8 pixels, got 3."),
        (["plot", "nowhere"], "error: no logbook at nowhere"),
    ],
)  # fmt: skip
def test_errors_are_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["burstmamba", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_plot_of_the_folder_one_is_in(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure", reason="drawing is an extra")
    axes, make = [], figure.Figure.subplots
    monkeypatch.setattr(figure.Figure, "subplots", lambda *shape: axes.extend(make(*shape)) or axes)
    toy_train(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    draw_curves([Path()], Path("curves.png"))
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["mine"]


def test_program_start_is_in_the_past():
    assert 0 < time.monotonic() - program_start() < 3600
