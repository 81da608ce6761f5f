"""Fixtures of the command's tests."""

from pathlib import Path

import pytest
from restore_runs import tiny_checkpoint, write_burst


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small RGB checkpoint."""
    return tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny.safetensors")


@pytest.fixture(scope="session")
def burst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three shifted frames of 48×40 pixels; its name holds a space and an umlaut."""
    return write_burst(tmp_path_factory.mktemp("bursts") / "mein Strauß")
