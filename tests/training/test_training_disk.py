"""Disks that are full, cannot be written to, have no links or hold what a killed process left."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_toys import MODEL, PHASE, RECIPE, ToySource, toy_run, toy_sample, toy_train

from burstmamba.checkpoint import read_checkpoint
from burstmamba.correspondence.field import Correspondence
from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.training.curves import draw_curves
from burstmamba.training.leaves import write_leaves
from burstmamba.training.logbook import Logbook, read_logbook
from burstmamba.training.recipe import BurstFolders
from burstmamba.training.recorded import RecordedSource
from burstmamba.training.snapshot import Place, Snapshots, read_snapshot
from burstmamba.training.trainer import train


def test_full_disk_costs_pictures_but_not_the_run(tmp_path, caplog):
    """Validation pictures that cannot be written are warned about; training ends with its weights."""
    (tmp_path / "pictures").write_text("in the way")
    _, summary = toy_train(tmp_path)
    assert summary.finished and (tmp_path / "weights.safetensors").exists()
    assert [line["step"] for line in read_logbook(tmp_path) if line["kind"] == "validation"] == [4, 8]
    assert "cannot write" in caplog.text and "Training goes on without the picture" in caplog.text


class FullBoard:
    """TensorBoard's writer once its thread has met a full disk."""

    def add_scalar(self, *arguments):
        raise OSError(28, "No space left on device")

    add_image = close = add_scalar


def test_full_disk_costs_tensorboard_but_not_the_run(tmp_path, caplog):
    run = toy_run(tmp_path)
    run.logbook.board = FullBoard()
    assert train(run, ToySource()).finished and run.logbook.board is None
    assert caplog.text.count("TensorBoard gets nothing from now on: [Errno 28] No space left on device") == 1


def test_logbook_is_json_when_every_step_was_skipped(tmp_path):
    """NaN is no JSON; curves leave out what is not a number, also NaN of logbooks written before."""
    logbook = Logbook(tmp_path, tensorboard=False)
    logbook.write("train", 1, {"loss": 0.5, "seconds": 1.0})
    logbook.write("train", 2, {"loss": math.nan, "seconds": 2.0})
    text = (tmp_path / "log.jsonl").read_text()
    assert "NaN" not in text and json.loads(text.splitlines()[1])["loss"] is None
    (tmp_path / "log.jsonl").write_text(text + '{"kind": "train", "step": 3, "loss": NaN, "seconds": 3.0}\n')
    draw_curves([tmp_path], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_errors_of_curves(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"kind": "start", "step": 0}\n')
    with pytest.raises(InputError, match="has trained nothing yet"):
        draw_curves([tmp_path], tmp_path / "curves.png")
    Logbook(tmp_path, tensorboard=False).write("train", 1, {"loss": 0.5, "seconds": 1.0})
    with pytest.raises(InputError, match=r"cannot write .*log.jsonl/curves.png"):
        draw_curves([tmp_path], tmp_path / "log.jsonl" / "curves.png")


def test_what_is_no_logbook_is_said_in_one_sentence(tmp_path, caplog):
    (tmp_path / "picture.jpg").write_bytes(b"\xff\xd8\n17\n{}\n")
    with pytest.raises(InputError, match="picture.jpg has trained nothing yet"):
        draw_curves([tmp_path / "picture.jpg"], tmp_path / "curves.png")
    assert caplog.text.count("skipped 3 damaged lines") == 1


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot write .*recipe.json"):
        toy_run(tmp_path / "file" / "run")
    with pytest.raises(InputError, match=r"cannot write .*leaves-00.png"):
        write_leaves(tmp_path / "file" / "leaves", 1, 32, 0)


def test_processes_draw_the_same_leaves_at_once(tmp_path):
    """Those of one run begin at the same time, in one folder."""
    program = "import sys; from pathlib import Path; from burstmamba.training.leaves import write_leaves\n"
    program += "sys.stdin.readline(); write_leaves(Path(sys.argv[1]), 6, 32, 0)"
    command = [sys.executable, "-c", program, str(tmp_path / "leaves")]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    for process in started:
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert [process.wait(60) for process in started] == [0, 0]
    assert len(list((tmp_path / "leaves").iterdir())) == 6


def write(snapshots: Snapshots, step: int, *, best: bool = False) -> Path:
    return snapshots.write(Place(step), RECIPE.to_json(), BurstMamba(MODEL).state_dict(), {}, {}, best=best)


def test_best_is_copied_where_there_are_no_links(tmp_path, monkeypatch):
    def no_links(*arguments):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    path = write(Snapshots(tmp_path, 3), 7, best=True)
    assert (tmp_path / "best.safetensors").read_bytes() == path.read_bytes()
    monkeypatch.setattr("shutil.copyfile", no_links)
    with pytest.raises(InputError, match=r"cannot mark .*step-00000008.* as the best: Operation not permitted"):
        write(Snapshots(tmp_path, 3), 8, best=True)
    assert read_snapshot(tmp_path / "best.safetensors").place.step == 7


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".step-00000003.safetensors.99.part").write_bytes(b"half")
    write(Snapshots(tmp_path, 3), 4)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000004.safetensors"]


def test_best_is_that_of_all_scores_that_were_saved(tmp_path):
    """The last validation counts too, and an early one that is only timed does not hide it."""
    recipe = replace(RECIPE, phases=(replace(PHASE, steps=30),), validation=replace(RECIPE.validation, every=1000))
    run = toy_run(tmp_path, recipe)
    score, given = run.validation.score, iter((40.0, 30.0))

    def scored(model):
        scores, picture = score(model)
        return replace(scores, burst=next(given)), picture

    run.validation.score = scored
    train(run, ToySource())
    assert [line["burst"] for line in read_logbook(tmp_path) if line["kind"] == "validation"] == [40.0, 30.0]
    best = read_snapshot(tmp_path / "checkpoints" / "best.safetensors")
    assert best.place.step == 30 and best.place.best == 30.0
    best, last = (read_checkpoint(tmp_path / f"{name}.safetensors") for name in ("best", "weights"))
    assert all(torch.equal(value, last.weights[name]) for name, value in best.weights.items())


def test_maps_that_cannot_be_kept_are_used_all_the_same(tmp_path, caplog):
    (tmp_path / "maps").write_text("in the way")
    data = BurstFolders("realbsr-rgb", correspondence="identity")
    source = RecordedSource([], data, 0, torch.device("cpu"), cache=tmp_path / "maps")  # type: ignore[arg-type] (a stand-in)
    sample = source.align(replace(toy_sample(1, 3, 10, seed=1), correspondence=None), "000")
    assert isinstance(sample.correspondence, Correspondence) and "maps are not kept" in caplog.text
