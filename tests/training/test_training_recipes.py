"""Recipes: found by name, changed from the command line, refused with a hint."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import burstmamba.recipes
from burstmamba.errors import InputError
from burstmamba.training.overrides import load_recipe, override, recipe_names
from burstmamba.training.recipe import Phase

FOLDER = Path(burstmamba.recipes.__path__[0])


@pytest.mark.parametrize("name", recipe_names())
def test_recipe_is_short_and_names_its_command(name):
    load_recipe(name)
    text = (FOLDER / f"{name.replace('-', '_')}.py").read_text()
    assert len(text.splitlines()) <= 60
    assert f"burstmamba train {name} " in text


def test_paper_schedule():
    """The numbers of the paper's appendix."""
    for name in ("paper-synburst", "paper-realbsr-rgb", "paper-realbsr-raw"):
        recipe = load_recipe(name)
        keyframe, complete = recipe.phases
        assert (keyframe.steps, keyframe.patch, keyframe.batch, keyframe.frames) == (150_000, 40, 20, ((1, 1.0),))
        assert (complete.steps, complete.patch, complete.batch, complete.frames) == (250_000, 30, 20, ((14, 1.0),))
        assert recipe.loss == "l1" and recipe.betas == (0.9, 0.999) and recipe.weight_decay == 0
        for phase in recipe.phases:
            assert (phase.rate, phase.schedule, phase.warmup, phase.frozen) == (1e-4, "constant", 0, ())
    assert load_recipe("paper-realbsr-rgb").model.in_channels == 3
    assert load_recipe("paper-realbsr-raw").model.in_channels == 1
    assert load_recipe("paper-synburst").model.centres == "corner"


def test_ablation_rows_differ_in_what_they_name():
    rows = {name: load_recipe(f"ablation-{name}") for name in ("psi", "gas", "burst", "single", "integer", "prealign")}
    assert {name: row.model.selectivity for name, row in rows.items() if row.model.burst_channels} == {
        "psi": "wavelet", "gas": "content", "burst": "content", "integer": "content", "prealign": "content",
    }  # fmt: skip
    assert [rows[name].data.maps for name in ("gas", "burst", "integer", "prealign")] == [
        "given", "identity", "rounded", "prealigned",
    ]  # fmt: skip
    assert rows["single"].model.burst_channels == 0
    homography, balanced = load_recipe("ablation-homography"), load_recipe("ablation-balanced")
    seen = homography.data.synthesis
    assert replace(homography, data=rows["gas"].data) == rows["gas"]
    assert (seen.object_missed, seen.local_map_error) == (1.0, 0.0) != (rows["gas"].data.synthesis.object_missed, 0.0)
    assert replace(balanced, model=rows["psi"].model) == rows["psi"]
    assert balanced.model.burst_channels > rows["psi"].model.burst_channels
    assert len({(row.steps, row.seed, row.phases[0].batch, row.phases[0].patch) for row in rows.values()}) == 1


def test_values_of_overrides():
    recipe = override(
        load_recipe("open-paper"),
        ["seed=7", "ema=0", "phases.batch=4", "keyframe.rate=2e-3", "complete.frames=((1, 0.5), (4, 0.5))",
         "model.blocks=[1, 2]", "complete.frozen=('keyframe.',)",
         "model.selectivity=content", "data.synthesis.shot=(1e-4, 1e-3)", "validation.every=10"],
    )  # fmt: skip
    assert recipe.seed == 7 and recipe.ema == 0.0
    assert [phase.batch for phase in recipe.phases] == [4, 4]
    assert [phase.rate for phase in recipe.phases] == [2e-3, 3e-4]
    assert recipe.phases[1].frames == ((1, 0.5), (4, 0.5))
    assert recipe.model.selectivity == "content" and recipe.data.synthesis.shot == (1e-4, 1e-3)
    assert recipe.validation.every == 10
    assert recipe.model.blocks == (1, 2) and recipe.phases[1].frozen == ("keyframe.",)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sed=1", r"unknown setting 'sed'\. Did you mean seed\?"),
        ("phases.bach=1", r"unknown setting 'phases.bach'\. Did you mean phases.batch\?"),
        ("model.selectivty=content", r"Did you mean model.selectivity\?"),
        ("compleet.batch=2", r"Did you mean complete\?"),
        ("model=3", "model is a group of settings; set one of: in_channels"),
        ("complete=3", "complete is a phase; set one of its settings"),
        ("seed.x=3", "seed has no settings of its own"),
        ("seed", "expected key=value, got 'seed'"),
        ("seed=many", "seed expects a value like 0, got 'many'"),
        ("seed=1.5", "seed expects a value like 0, got '1.5'"),
        ("loss=l2", "loss must be l1 or charbonnier, got 'l2'"),
        ("phases.batch=0", "needs steps, batch and patch of at least 1"),
        ("complete.frames=((0, 1.0),)", "pairs with L ≥ 1"),
        ("phases.schedule=linear", "schedule must be cosine or constant"),
        ("complete.frames=(14,)", r"complete.frames expects a value like \(\(1, 0.12\)"),
        ("complete.frames=((14,),)", "complete.frames expects a value like"),
        ("betas=(0.9,)", r"betas expects a value like \(0.9, 0.99\), got '\(0.9,\)'"),
        ("data.synthesis.shot=(1e-4, 'much')", "data.synthesis.shot expects a value like"),
        ("complete.frozen=(1,)", r"complete.frozen expects a value like \(\)"),
        ("phases.rate=-1e-4", "needs rate, final_rate and warmup of at least 0"),
        ("data.maps=flow", "data.maps must be one of given, identity"),
        ("clip=0", "clip must be more than 0, got 0.0; 1e9 clips nothing"),
        ("betas=(0.9, 1)", r"betas must be in \[0, 1\), got"),
        ("weight_decay=-0.1", "weight_decay, save_minutes, seed and threads must be at least 0"),
        ("seed=-1", "seed and threads must be at least 0"),
        ("threads=-1", "seed and threads must be at least 0"),
        ("validation.bursts=0", "validation.bursts, patch, frames and every must be at least 1"),
        ("validation.frames=0", "frames and every must be at least 1"),
        ("keep=0", "log_every, save_steps, keep and bad_steps must be at least 1"),
    ],
)
def test_errors_of_overrides(setting, message):
    with pytest.raises(InputError, match=message):
        override(load_recipe("open-rgb"), [setting])


def test_errors_of_names(tmp_path):
    with pytest.raises(InputError, match=r"no recipe 'open-rbg'; known: .*Did you mean 'open-rgb'\?"):
        load_recipe("open-rbg")
    with pytest.raises(InputError, match="no recipe file"):
        load_recipe(str(tmp_path / "mine.py"))
    (tmp_path / "mine.py").write_text("RECIPE = 3")
    with pytest.raises(InputError, match="must define RECIPE"):
        load_recipe(str(tmp_path / "mine.py"))
    (tmp_path / "mine.py").write_text("from burstmamba.recipes.tiny import RECIPE")
    assert load_recipe(str(tmp_path / "mine.py")) == load_recipe("tiny")


def test_docstrings_do_not_promise_unknown_options():
    known = {"--data", "--val", "--minutes", "--out"}
    for path in FOLDER.glob("*.py"):
        assert set(re.findall(r"--[a-z-]+", path.read_text())) <= known, path.name


def test_errors_of_phases():
    with pytest.raises(InputError, match="probability"):
        Phase("p", 1, 1, 1, frames=())
