"""Bursts with exact maps, made by the benchmark's renderer from procedural photographs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from correspondence_scenes import Motion, Scene, procedural_photo, render


@pytest.fixture(scope="session")
def still_scene() -> Scene:
    """Five frames, camera motion with a tilt, low noise."""
    return render(procedural_photo(560, 0), seed=3, frames=5, size=112, motion=Motion(shift=5, perspective=0.5))


@pytest.fixture(scope="session")
def moving_scene() -> Scene:
    """Four frames, camera motion and an object of its own."""
    return render(procedural_photo(760, 1), seed=5, frames=4, size=144, motion=Motion(shift=5, object_shift=6))
