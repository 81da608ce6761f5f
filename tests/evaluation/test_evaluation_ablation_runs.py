"""Runs of an ablation: several processes share a folder, interrupted rows go on, scores follow the weights."""

import json
import signal
import subprocess
import sys
import time

import pytest
import torch

from burstmamba.checkpoint import save_checkpoint
from burstmamba.cli import ablate as ablating
from burstmamba.cli.ablate import ablate, run_folder, steps_taken
from burstmamba.errors import InputError
from burstmamba.evaluation import evaluate as evaluating
from burstmamba.evaluation.alignment_cache import AlignmentCache
from burstmamba.evaluation.folder_lock import folder_lock
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset
from burstmamba.training.overrides import load_recipe

SMALL = ("model.blocks=(1,1)", "model.channels=16", "phases.batch=1", "phases.patch=16")
SMALL += ("validation.bursts=1", "validation.patch=16", "threads=1", "log_every=1")


def start(table, folder, photographs, *options):
    command = [sys.executable, "-m", "burstmamba", "ablate", table, "--benchmark", photographs, "--data", photographs]
    command += ["--val", photographs, "--out", folder, "--device", "cpu", *options]
    command += [part for setting in SMALL for part in ("--set", setting)]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def lines(run, kind):
    log = run / "log.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    return [entry for entry in entries if entry["kind"] == kind]


@pytest.mark.slow
def test_two_processes_share_a_folder(photographs, tmp_path):
    """The same command twice: each trains a row, both end with tables, and the last ones are whole."""
    both = [start("split", tmp_path, photographs, "--steps", 2) for _ in range(2)]
    for code, out, err in map(finish, both):
        assert code == 0, err
        assert "| 50/50 < keyframe-centric | +2.967 dB |" in out
    for recipe in ("ablation-balanced", "ablation-psi"):
        assert len(lines(run_folder(tmp_path, recipe, 0), "start")) == 1, "trained by one process alone"
        assert len(json.loads((tmp_path / f"scores/{recipe}-s0/scores.json").read_text())["scores"]) == 2
    tables = [(tmp_path / name).read_text() for name in ("split.md", "split.json")]
    assert "not run" not in tables[0]
    code, _, err = finish(start("split", tmp_path, photographs, "--no-train"))
    assert code == 0 and tables == [(tmp_path / name).read_text() for name in ("split.md", "split.json")], err
    assert len(list((tmp_path / "maps").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["terminated", "interrupted"])
def test_a_row_goes_on_where_it_was_stopped(photographs, tmp_path, number):
    options = ("--steps", 60, "--only", "ablation-single", "--no-score")
    run, process = run_folder(tmp_path, "ablation-single", 0), start("components", tmp_path, photographs, *options)
    waiting = time.monotonic()
    while not lines(run, "train") and process.poll() is None and time.monotonic() - waiting < 200:
        time.sleep(0.05)
    process.send_signal(number)
    code, _, err = finish(process)
    assert code == 2 and "the same command goes on there" in err
    stopped = steps_taken(run)
    assert 0 < stopped < 60 and list((run / "checkpoints").glob("step-*")), "the training wrote a checkpoint first"

    code, out, err = finish(start("components", tmp_path, photographs, "--no-train"))
    assert code == 0 and f"ablation-single, seed 0: {stopped} of 60 steps; scored when it is finished." in err
    assert "| single | 31.668 / 0.900 | not run |" in out

    code, out, err = finish(start("components", tmp_path, photographs, *options))
    assert code == 0 and steps_taken(run) == 60, err
    assert [entry["step"] for entry in lines(run, "start")] == [0, stopped]
    assert not (tmp_path / "scores").exists() and "the paper's order" not in out


def test_a_row_that_is_being_trained_is_left_alone(photographs, tmp_path, capsys):
    with folder_lock(run_folder(tmp_path, "ablation-single", 0), wait=False) as held:
        assert held
        ablate("components", benchmark=photographs, out=tmp_path, only="ablation-single", score=False, device="cpu")
    assert "ablation-single, seed 0: another process trains it." in capsys.readouterr().err


def test_a_row_of_other_settings_is_not_taken_for_this_one(photographs, tmp_path):
    """A trial in the same folder must not end up in the table; weights that came alone are taken as they are."""
    run = run_folder(tmp_path, "ablation-single", 0)
    save_checkpoint(run / "weights.safetensors", BurstMamba(preset("tiny").single()), notes={"steps": "10000"})
    options = {"benchmark": photographs, "out": tmp_path, "only": "ablation-single", "score": False, "device": "cpu"}
    ablate("components", **options)
    (run / "recipe.json").write_text(load_recipe("ablation-single").to_json())
    ablate("components", **options)
    for setting, name in (("loss=charbonnier", "loss"), ("phases.batch=2", "phases"), ("phases.steps=20000", "phases")):
        with pytest.raises(
            InputError, match=f"was trained with another {name}; give the same settings or another --out"
        ):
            ablate("components", set_=[setting], **options)


def test_a_row_without_a_checkpoint_begins_again(photographs, tmp_path, monkeypatch):
    """A recipe alone is what a training leaves that ended before its first checkpoint."""
    begun, run = [], run_folder(tmp_path, "ablation-single", 0)
    monkeypatch.setattr(ablating, "run_training", lambda recipe, *_: begun.append(recipe))
    run.mkdir(parents=True)
    (run / "recipe.json").write_text(load_recipe("ablation-single").to_json())
    options = {"benchmark": photographs, "out": tmp_path, "only": "ablation-single", "score": False, "device": "cpu"}
    ablate("components", steps=3, **options)
    assert begun == ["ablation-single"]
    (run / "checkpoints").mkdir()
    (run / "checkpoints/step-00000001.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="was trained with another phases"):
        ablate("components", steps=3, **options)


def test_a_place_that_cannot_be_written_to(photographs, tmp_path):
    (tmp_path / "file").write_text("")
    for options in ({"only": "ablation-single"}, {"train": False}):
        with pytest.raises(InputError, match="cannot write to .*file.*: (it is a file|Not a directory); choose"):
            ablate("components", benchmark=photographs, out=tmp_path / "file", device="cpu", **options)


def test_the_lock_ends_with_its_process(tmp_path):
    code = (
        "import pathlib, sys, time; from burstmamba.evaluation.folder_lock import folder_lock\n"
        "with folder_lock(pathlib.Path(sys.argv[1]), wait=True) as held: print(held, flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "True\n"
    with folder_lock(tmp_path, wait=False) as held:
        assert not held
    holder.kill()
    with folder_lock(tmp_path, wait=True) as held:
        assert held
    holder.communicate()


def test_scores_follow_the_weights(photographs, tmp_path):
    """A run that went on has other weights: its earlier scores are replaced. Equal weights are not scored again."""
    weights = run_folder(tmp_path, "ablation-single", 0) / "weights.safetensors"
    scores, found = tmp_path / "scores/ablation-single-s0/scores.json", []
    for steps in ("5", None, "9"):
        if steps:
            torch.manual_seed(int(steps))
            save_checkpoint(weights, BurstMamba(preset("tiny").single()), notes={"steps": steps})
        ablate("components", benchmark=photographs, out=tmp_path, train=False, device="cpu")
        found.append(json.loads(scores.read_text()))
    assert found[0] == found[1], "not even the date of the scores changes"
    assert found[2]["header"]["weights_steps"] == "9"
    assert [row["psnr"] for row in found[2]["scores"]] != [row["psnr"] for row in found[0]["scores"]]


def test_what_cannot_be_scored_is_said(photographs, tmp_path, capsys, monkeypatch):
    """A row that is missing in the table has a reason."""
    weights = run_folder(tmp_path, "ablation-single", 0) / "weights.safetensors"
    save_checkpoint(weights, BurstMamba(preset("tiny").single()), notes={"steps": "1"})
    monkeypatch.setattr(evaluating, "reconstruct", lambda *_, **__: torch.full((1, 3, 192, 192), torch.nan))
    ablate("components", benchmark=photographs, out=tmp_path, train=False, device="cpu", limit=1)
    said = capsys.readouterr().err
    assert "not scored: ablation-single, seed 0, L=1: still/0001: its picture has NaN or infinite values." in said


def test_maps_are_looked_for_once(photographs, tmp_path, monkeypatch):
    """Rows scored by one process estimate, and even look for, the maps of a burst once."""
    for recipe in ("ablation-gas", "ablation-psi"):
        save_checkpoint(
            run_folder(tmp_path, recipe, 0) / "weights.safetensors", BurstMamba(preset("tiny")), notes={"steps": "1"}
        )
    filled, fill = [], AlignmentCache.fill
    monkeypatch.setattr(
        AlignmentCache, "fill", lambda self, bursts, *rest: (filled.append(len(bursts)), fill(self, bursts, *rest))
    )
    ablate("components", benchmark=photographs, out=tmp_path, train=False, device="cpu")
    assert filled == [2, 0]


def test_a_wrong_benchmark_is_said_before_training(tmp_path):
    with pytest.raises(InputError, match="is not a folder; give OpenBurst's photographs"):
        ablate("split", benchmark=tmp_path / "missing", out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()
