"""Kernels compiled in other processes."""

from burstmamba.model.config import preset
from burstmamba.training import precompile


def test_each_part_runs_in_a_process_of_its_own():
    processes = precompile.start(preset("tiny"), batch=1, patch=4, length=2)
    assert [process.wait(120) for process in processes] == [0, 0]


def test_one_frame_needs_the_keyframe_stream_alone():
    (process,) = precompile.start(preset("tiny"), batch=1, patch=4, length=1)
    assert process.wait(120) == 0
