"""Several processes against one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training_toys import PHASE, RECIPE, ToySource

from burstmamba.errors import InputError
from burstmamba.training.logbook import read_logbook
from burstmamba.training.processes import Processes
from burstmamba.training.run import Run, RunOptions
from burstmamba.training.snapshot import read_snapshot
from burstmamba.training.trainer import train

TOYS = Path(__file__).with_name("training_toys.py")
STEPS = 6


def torchrun(processes: int, *arguments: str, script: Path = TOYS) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, str(script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    """Same whole batch, half in each: the same losses and weights, written once."""
    for count in (1, 2):
        result = torchrun(count, str(tmp_path / str(count)), str(STEPS))
        assert result.returncode == 0, result.stderr
    name = f"checkpoints/step-{STEPS:08d}.safetensors"
    one, two = (read_snapshot(tmp_path / str(count) / name) for count in (1, 2))
    for key, value in one.model.items():
        torch.testing.assert_close(two.model[key], value, atol=1e-5, rtol=1e-4, msg=key)
    curves = [
        [line["loss"] for line in read_logbook(tmp_path / str(count)) if line["kind"] == "train"] for count in (1, 2)
    ]
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)
    assert len([line for line in read_logbook(tmp_path / "2") if line["kind"] == "start"]) == 1


@pytest.mark.slow
def test_a_process_that_dies_stops_the_others(tmp_path):
    """The survivor says what happened; what was saved can be resumed by both."""
    result = torchrun(2, str(tmp_path), "12", "1")
    assert result.returncode != 0
    assert "another process of this run stopped" in result.stderr and "--resume" in result.stderr
    result = torchrun(2, str(tmp_path), "12")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "checkpoints" / "step-00000012.safetensors").exists()


LEAVING = """
import os
import torch
from burstmamba.training.processes import join, leave
torch.set_num_threads(1)
before = os.listdir("/proc/self/task")
processes = join(torch.device("cpu"))
import torch._dynamo
processes.any(False)
leave()
left = sorted(set(os.listdir("/proc/self/task")) - set(before))
os.write(1, f"left over: {left}\\n".encode())  # one write: the other process's line does not come in between
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_no_thread_outlives_the_group(tmp_path):
    """One that still let go of its last message when Python ended was aborted, now and then."""
    (tmp_path / "leaving.py").write_text(LEAVING)
    result = torchrun(2, script=tmp_path / "leaving.py")
    assert result.stdout.count("left over: []") == 2, result.stdout + result.stderr


class Alone(Processes):
    """One of two processes, the other one played: it is at `step`, and agrees to everything else."""

    step: float | None = None

    def agree(self, values):
        return values if self.step is None else [self.step]

    def average(self, tensors):
        """The other one's are the same."""

    def any(self, flag):
        asked.append(flag)
        return flag


asked: list[bool] = []


def alone(out, step=None, **options):
    processes = Alone(0, 2)
    object.__setattr__(processes, "step", step)
    settings = RunOptions(out=out, tensorboard=False, **options)
    return Run(RECIPE, settings, None, torch.device("cpu"), processes=processes)


def test_processes_pause_together(tmp_path):
    """What a process keeps back for validating is its own affair, so the others are asked before it pauses."""
    asked.clear()
    run = alone(tmp_path, pause_after=0.01)
    assert not train(run, ToySource(0, run.processes)).finished and asked == [True]


def test_processes_begin_at_the_same_step(tmp_path):
    with pytest.raises(
        InputError, match=r"would begin at step 0 and the first one at 300: .* differs between machines"
    ):
        alone(tmp_path, step=300.0)


def test_shares_cover_the_batch_without_overlap():
    rows = list(range(12))
    shares = [rows[Processes(rank, 3).share(12)] for rank in range(3)]
    assert [row for share in shares for row in share] == rows and all(len(share) == 4 for share in shares)
    with pytest.raises(InputError, match="a batch of 2 cannot be split evenly over 3 processes"):
        Processes(0, 3).share(PHASE.batch)
