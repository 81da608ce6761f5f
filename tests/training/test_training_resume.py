"""Never losing work: resuming, killing, full disks, broken files, bad batches, budgets."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from training_toys import MODEL, PHASE, RECIPE, ToySource, toy_run, toy_train, toy_validation

from burstmamba.errors import InputError
from burstmamba.training import snapshot, trainer
from burstmamba.training.logbook import read_logbook
from burstmamba.training.run import Run, RunOptions
from burstmamba.training.snapshot import read_snapshot
from burstmamba.training.trainer import build_step, train

TOYS = Path(__file__).with_name("training_toys.py")


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


class Interrupting(ToySource):
    """Sends this process a signal while a batch is made."""

    def __init__(self, at: int, number: int) -> None:
        super().__init__()
        self.at, self.number = at, number

    def batch(self, step, phase, frames):
        if step == self.at:
            os.kill(os.getpid(), self.number)
        return super().batch(step, phase, frames)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_equals_uninterrupted(tmp_path, number):
    """A signal writes a checkpoint; the resumed run ends with the same bits, in two phases and with DropPath."""
    phases = (replace(PHASE, name="keyframe", steps=3, frames=((1, 1.0),)), replace(PHASE, steps=5))
    recipe = replace(RECIPE, phases=phases, model=replace(MODEL, blocks=(2,), drop_path=0.5))
    whole, summary = toy_train(tmp_path / "whole", recipe)
    assert summary.finished
    run = toy_run(tmp_path / "cut", recipe)
    summary = train(run, Interrupting(4, number))
    assert not summary.finished and summary.signal == number
    assert run.place.step == 5 and (run.place.phase, run.place.phase_step) == (1, 2)
    resumed, summary = toy_train(tmp_path / "cut", recipe, resume=True)
    assert summary.finished and resumed.place.step == 8
    assert same(resumed.model.state_dict(), whole.model.state_dict())
    assert same(resumed.ema.state_dict(), whole.ema.state_dict())
    last = [read_snapshot(tmp_path / name / "checkpoints" / "step-00000008.safetensors") for name in ("whole", "cut")]
    assert same(last[0].optimizer, last[1].optimizer)


@pytest.mark.parametrize("finding", [None, RuntimeError("the compiler's helpers are gone")])
def test_a_signal_while_a_phase_is_prepared_stops_at_once(tmp_path, monkeypatch, finding):
    """Compiling may take minutes, and for ever where the signal ended its helpers; nothing would be lost."""
    phases = (replace(PHASE, name="keyframe", steps=2, frames=((1, 1.0),)), replace(PHASE, steps=3))
    recipe = replace(RECIPE, phases=phases)
    whole, _ = toy_train(tmp_path / "whole", recipe)

    def preparing(run, phase, source):
        if phase is not run.recipe.phases[1]:
            return build_step(run, phase, source)
        with torch.no_grad():
            next(run.model.parameters()).zero_()  # as a rehearsal of the step changes them
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            if finding:
                raise finding

    with monkeypatch.context() as patched:
        patched.setattr(trainer, "build_step", preparing)
        begun = time.monotonic()
        _, summary = toy_train(tmp_path / "cut", recipe)
    assert time.monotonic() - begun < 30
    assert not summary.finished and summary.signal == signal.SIGTERM
    assert not (tmp_path / "cut" / "weights.safetensors").exists()
    assert read_logbook(tmp_path / "cut")[-1]["kind"] == "end"
    resumed, summary = toy_train(tmp_path / "cut", recipe, resume=True)
    assert summary.finished and same(resumed.model.state_dict(), whole.model.state_dict())


def start(out: Path, steps: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(TOYS), str(out), str(steps)], env=environment)


@pytest.mark.slow
def test_killed_at_a_random_moment(tmp_path):
    """kill -9, twice, then resume: the weights of the run that was never killed."""
    steps, moment = 100, random.Random()
    assert start(tmp_path / "whole", steps).wait(timeout=120) == 0

    def latest() -> str:
        return max((path.name for path in (tmp_path / "cut" / "checkpoints").glob("step-*")), default="")

    for _ in range(2):
        before, process = latest(), start(tmp_path / "cut", steps)
        deadline = time.monotonic() + 60
        while latest() <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(moment.uniform(0, 0.3))
        process.kill()
        assert process.wait() == -signal.SIGKILL, "it had ended before"
    assert start(tmp_path / "cut", steps).wait(timeout=120) == 0
    name = f"checkpoints/step-{steps:08d}.safetensors"
    whole, cut = (read_snapshot(tmp_path / run / name) for run in ("whole", "cut"))
    assert same(whole.model, cut.model) and same(whole.ema, cut.ema) and same(whole.optimizer, cut.optimizer)


def test_keeps_the_last_and_the_best(tmp_path):
    run, _ = toy_train(tmp_path, replace(RECIPE, keep=2, save_steps=2))
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["best.safetensors", "step-00000006.safetensors", "step-00000008.safetensors"]
    scored = [line["burst"] for line in read_logbook(tmp_path) if line["kind"] == "validation"]
    assert run.place.best == pytest.approx(max(scored))
    best = read_snapshot(tmp_path / "checkpoints" / "best.safetensors").place
    assert best.best == run.place.best and best.step == (4, 8)[scored.index(max(scored))]


def test_checkpoints_by_wall_time(tmp_path):
    """At every look that comes late enough, whatever the step."""
    toy_train(tmp_path, replace(RECIPE, save_steps=1000, save_minutes=0.0, keep=10))
    names = sorted(path.stem for path in (tmp_path / "checkpoints").glob("step-*"))
    assert names == [f"step-{step:08d}" for step in (1, 2, 3, 4, 6, 8)]


def test_full_disk_keeps_the_last_good_file(tmp_path, monkeypatch):
    """No room in the middle: training goes on; no room at the end: one sentence. The old file is untouched."""
    run = toy_run(tmp_path, validate=False)
    write, full = snapshot.write_atomically, []

    def no_room(path, content):
        if path.name > "step-00000003.safetensors":
            full.append(path.name)
            try:
                raise OSError(28, "No space left on device")
            except OSError as error:
                raise InputError(f"cannot write {path}: {error.strerror}.") from error
        write(path, content)

    monkeypatch.setattr(snapshot, "write_atomically", no_room)
    with pytest.raises(InputError, match=r"no checkpoint at step 8: .*No space left.*step-00000003.*--resume"):
        train(run, ToySource())
    assert full == ["step-00000006.safetensors", "step-00000008.safetensors"]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000003.safetensors"]
    assert [line["step"] for line in read_logbook(tmp_path) if line["kind"] == "full"] == [6]
    monkeypatch.undo()
    resumed, summary = toy_train(tmp_path, validate=False, resume=True)
    whole, _ = toy_train(tmp_path / "whole", validate=False)
    assert summary.finished and same(resumed.model.state_dict(), whole.model.state_dict())


def test_file_too_large_for_the_disk(tmp_path):
    """A real failure of the operating system while writing: one sentence, no partial file."""
    program = (
        "import resource, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from training_toys import toy_run, ToySource; from burstmamba.training.trainer import train\n"
        "run = toy_run(Path(sys.argv[2]), validate=False)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "train(run, ToySource())"
    )
    command = [sys.executable, "-c", program, str(TOYS.parent), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "InputError: no checkpoint at step 8" in result.stderr and "File too large" in result.stderr
    assert not any((tmp_path / "checkpoints").iterdir())


def test_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    toy_train(tmp_path)
    last = tmp_path / "checkpoints" / "step-00000008.safetensors"
    last.write_bytes(last.read_bytes()[:1000])
    assert toy_run(tmp_path, resume=True).place.step == 6


def test_bad_batches_stop_the_run_and_are_kept(tmp_path):
    run = toy_run(tmp_path, replace(RECIPE, bad_steps=3))
    with pytest.raises(InputError, match=r"steps up to step [56] had no finite gradient.*bad-batch-0000000[56]"):
        train(run, ToySource(broken=(3, 4, 5, 6, 7)))
    (kept,) = tmp_path.glob("bad-batch-*.safetensors")
    with safe_open(kept, framework="pt") as file:
        assert torch.isnan(file.get_tensor("target")).all() and torch.isfinite(file.get_tensor("frames")).all()
    assert all(torch.isfinite(value).all() for value in run.model.state_dict().values())


def test_single_bad_batch_is_skipped(tmp_path):
    run = toy_run(tmp_path)
    assert train(run, ToySource(broken=(4,))).finished
    assert sum(line["skipped"] for line in read_logbook(tmp_path) if line["kind"] == "train") == 1


def test_minutes_end_inside_the_budget(tmp_path):
    """The rate reaches the end of its cosine, and everything is written before the time is over."""
    begun = time.monotonic()
    recipe = replace(RECIPE, phases=(replace(PHASE, steps=10**6, rate=1e-3, final_rate=1e-6),))
    run, summary = toy_train(tmp_path, recipe, minutes=0.2)
    assert summary.finished and time.monotonic() - begun < 12
    lines = read_logbook(tmp_path)
    rates = [line["rate"] for line in lines if line["kind"] == "train"]
    assert max(rates) > 8e-4 and rates[-1] < 2e-4
    validated = [line["step"] for line in lines if line["kind"] == "validation"]
    assert lines[-1]["kind"] == "end" and validated[-1] == run.place.step
    assert (tmp_path / "weights.safetensors").exists() and run.place.step > 10


def test_pause_and_resume_share_one_schedule(tmp_path):
    recipe = replace(RECIPE, phases=(replace(PHASE, steps=10**6),))
    _, summary = toy_train(tmp_path, recipe, minutes=0.25, pause_after=0.12)
    assert not summary.finished and summary.signal is None
    run, summary = toy_train(tmp_path, recipe, minutes=0.25, resume=True)
    assert summary.finished and 7 < run.place.seconds < 15


def test_other_minutes_than_before(tmp_path, caplog):
    """A schedule that is laid over minutes is not taken for one of steps, and not ended by too few of them."""
    recipe = replace(RECIPE, phases=(replace(PHASE, steps=10**6),))
    toy_train(tmp_path, recipe, minutes=10.0, pause_after=0.08)
    before = sorted((tmp_path / "checkpoints").iterdir())
    with pytest.raises(InputError, match=r"is laid over 10 minutes; resume it with --minutes 10\."):
        toy_run(tmp_path, recipe, resume=True)
    with pytest.raises(InputError, match=r"0\.\d minutes of the run .* are over, and --minutes 0\.01 counts all"):
        toy_run(tmp_path, recipe, resume=True, minutes=0.01)
    assert sorted((tmp_path / "checkpoints").iterdir()) == before and not caplog.text
    toy_run(tmp_path, recipe, resume=True, minutes=10.0)
    assert not caplog.text
    run, _ = toy_train(tmp_path, recipe, resume=True, minutes=20.0, pause_after=0.08)
    assert "laid over 20 minutes instead of 10" in caplog.text and run.place.minutes == 20


def test_a_pause_does_not_wait_for_the_next_look(tmp_path):
    phase = replace(PHASE, steps=10**6)
    recipe = replace(RECIPE, phases=(phase,), log_every=10**6, save_steps=10**6, save_minutes=1e3)
    recipe = replace(recipe, validation=replace(recipe.validation, every=10**6))
    run, summary = toy_train(tmp_path, recipe, pause_after=0.08)
    assert not summary.finished and run.place.step > 25 and run.place.seconds < 8


def test_a_budget_too_short_for_a_step_is_said(tmp_path, caplog):
    run, summary = toy_train(tmp_path, started=time.monotonic() - 60, minutes=0.5)
    assert summary.finished and run.place.step == 0
    assert "--minutes 0.5 left no time for a step of phase complete" in caplog.text


def test_a_finished_run_is_validated_at_its_step(tmp_path):
    """A kill between the last checkpoint and the last validation: the resumed run tells where it stands."""
    toy_train(tmp_path)
    run, told = toy_run(tmp_path, resume=True), []
    run.listener = told.append
    assert train(run, ToySource()).finished
    assert [event.step for event in told] == [8] and told[0].scores == run.scores


def validated(folder):
    return [line["step"] for line in read_logbook(folder) if line["kind"] == "validation"]


def test_first_step_does_not_wait_for_a_validation(tmp_path):
    """It comes soon after the start, once; then as often as asked; a short run has the last one alone."""
    seldom = replace(RECIPE, validation=replace(RECIPE.validation, every=1000), log_every=1000, save_steps=1000)
    toy_train(tmp_path / "long", replace(seldom, phases=(replace(PHASE, steps=40),)))
    assert validated(tmp_path / "long") == [25, 40]
    best = read_snapshot(tmp_path / "long" / "checkpoints" / "best.safetensors")
    assert best.place.step == 40  # the early one is only to know what it costs
    toy_train(tmp_path / "short", seldom)
    assert validated(tmp_path / "short") == [8]
    toy_train(tmp_path / "often")
    assert validated(tmp_path / "often") == [4, 8]


def test_slow_validations_end_inside_the_budget(tmp_path):
    """Few steps fit: what a validation costs is known before the budget is spent."""
    seldom = replace(RECIPE.validation, every=1000)
    run = toy_run(tmp_path, replace(RECIPE, phases=(replace(PHASE, steps=10**6),), validation=seldom), minutes=0.35)
    score, slow = run.validation.score, ToySource()
    run.validation.score = lambda model: (time.sleep(2.5), score(model))[1]
    batch = slow.batch
    slow.batch = lambda *arguments: (time.sleep(0.5), batch(*arguments))[1]
    begun = time.monotonic()
    assert train(run, slow).finished
    first, last = validated(tmp_path)
    assert time.monotonic() - begun < 21 and 1 < first <= 6 and last == run.place.step > 8


def test_settings_that_came_later_do_not_stop_a_resume():
    stored = json.loads(RECIPE.to_json())
    del stored["loss_space"]
    assert RECIPE.difference(json.dumps(stored)) is None
    assert replace(RECIPE, loss_space="linear").difference(json.dumps(stored)) == "loss_space"
    del stored["model"]["reach"], stored["phases"][0]["rate"]
    assert RECIPE.difference(json.dumps(stored)) == "phases"  # its rate is not the default
    stored = json.loads(RECIPE.to_json())
    del stored["model"]["reach"], stored["phases"][0]["final_rate"]
    assert RECIPE.difference(json.dumps(stored)) is None
    assert replace(RECIPE, model=replace(RECIPE.model, reach=8.0)).difference(json.dumps(stored)) == "model"


def test_a_start_at_the_end_leaves_a_step(tmp_path):
    """0.99 of 8 steps would be all of them."""
    run = toy_run(tmp_path, start_at=0.99)
    assert (run.place.step, run.place.phase, run.finished) == (7, 0, False)


def test_errors_of_resuming(tmp_path):
    toy_train(tmp_path)
    with pytest.raises(InputError, match=r"already holds a run \(step-00000008\); go on with --resume"):
        toy_run(tmp_path)
    with pytest.raises(InputError, match="was started with another setting of seed; resume it with the same recipe"):
        toy_run(tmp_path, replace(RECIPE, seed=5), resume=True)
    assert toy_run(tmp_path, replace(RECIPE, keep=1, log_every=7, checkpoint_stages=True), resume=True).finished
    for path in (tmp_path / "checkpoints").glob("step-*"):
        path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"none of the 3 checkpoints in .* can be read"):
        toy_run(tmp_path, resume=True)


def test_tensorboard_gets_numbers_and_pictures(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is an extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = Run(RECIPE, RunOptions(out=tmp_path, tensorboard=True), toy_validation(RECIPE), torch.device("cpu"))
    train(run, ToySource())
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    scored = [line["burst"] for line in read_logbook(tmp_path) if line["kind"] == "validation"]
    assert [event.value for event in events.Scalars("validation/burst")] == pytest.approx(scored, rel=1e-5)
    assert len(events.Images("validation")) == len(scored)


def test_logbook_survives_a_cut_line(tmp_path):
    toy_train(tmp_path)
    path = tmp_path / "log.jsonl"
    count = len(read_logbook(path))
    path.write_text(path.read_text() + '{"kind": "tr')
    assert len(read_logbook(tmp_path)) == count
    assert json.loads((tmp_path / "recipe.json").read_text())["loss"] == "l1"
    with pytest.raises(InputError, match="no logbook at"):
        read_logbook(tmp_path / "checkpoints")


def test_a_damaged_later_checkpoint_does_not_cost_the_new_one(tmp_path):
    recipe = replace(RECIPE, keep=1, save_steps=2)
    toy_train(tmp_path, recipe)
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "step-00000099.safetensors").write_bytes(b"cut off")
    run = toy_run(tmp_path, recipe, resume=True)
    written = run.snapshots.write(replace(run.place, step=50), recipe.to_json(), {}, {}, {})
    assert written.exists()
