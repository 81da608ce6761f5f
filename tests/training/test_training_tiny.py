"""The recipe that newcomers run first learns what it promises, in a quarter of its steps."""

from __future__ import annotations

import pytest

from burstmamba.training.logbook import read_logbook
from burstmamba.training.overrides import load_recipe, override
from burstmamba.training.preparation import run_recipe
from burstmamba.training.run import RunOptions, Validated
from burstmamba.training.validation import Scores


@pytest.mark.slow
def test_tiny_beats_interpolation_and_its_own_single_frame(tmp_path):
    heard: list[Scores] = []
    recipe = override(load_recipe("tiny"), ["phases.steps=150", "validation.every=1000"])
    options = RunOptions(out=tmp_path, tensorboard=False)
    summary = run_recipe(
        recipe,
        options,
        [],
        device="cpu",
        listener=lambda event: heard.append(event.scores) if isinstance(event, Validated) else None,
    )
    assert summary.finished
    first, last = heard
    assert first.base == last.base and first.burst < last.burst
    assert last.burst > last.base + 1.0
    assert last.burst > last.single and last.burst > last.copies
    losses = [line["loss"] for line in read_logbook(tmp_path) if line["kind"] == "train"]
    assert losses[-1] < losses[0]
    assert len(list((tmp_path / "pictures").iterdir())) == 2
