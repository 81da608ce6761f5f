"""Compact exports, and starting from them."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_toys import MODEL, PHASE, RECIPE, toy_run, toy_train

from burstmamba.checkpoint import load_checkpoint, save_checkpoint
from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset
from burstmamba.training.export import export_weights, read_weights, warm_start


def test_round_trip_in_shards(tmp_path):
    """Both sets of weights come back to fp16's precision, from any shard, in files below the limit."""
    torch.manual_seed(0)
    config = replace(MODEL, channels=48, head_channels=24)
    model, ema = BurstMamba(config), BurstMamba(config)
    written = export_weights(tmp_path, model, ema, shard_mib=0.2, notes={"steps": "7"})
    assert len(written) > 2 and all(path.stat().st_size <= 0.2 * 2**20 for path in written)
    for place in (tmp_path, written[1]):
        weights = read_weights(place)
        assert weights.config == config and weights.notes["steps"] == "7"
        for state, module in ((weights.model, model), (weights.ema, ema)):
            for name, value in module.state_dict().items():
                torch.testing.assert_close(state[name], value, atol=1e-6, rtol=1e-3)
    again = export_weights(tmp_path, model, ema)
    assert sorted(tmp_path.iterdir()) == again and len(again) == 1


def test_warm_start_begins_where_the_export_ended(tmp_path):
    """The weights are the exported ones, the rate begins low, the schedule where it was asked to."""
    first, _ = toy_train(tmp_path / "first")
    recipe = replace(RECIPE, phases=(replace(PHASE, steps=100, warmup=10),))
    run = toy_run(tmp_path / "second", recipe, warm_start=tmp_path / "first" / "export", start_at=0.5)
    for ours, theirs in ((run.model, first.model), (run.ema, first.ema)):
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], value, atol=1e-6, rtol=1e-3)
    assert (run.place.step, run.place.phase_step, run.place.fresh_at) == (50, 50, 50)


def test_weights_tell_of_the_training_that_was_done(tmp_path):
    """Steps and minutes before a late start were skipped, not taken; resuming does not forget it."""
    toy_train(tmp_path / "first")
    recipe = replace(RECIPE, phases=(replace(PHASE, steps=100, warmup=10),))
    late = {"warm_start": tmp_path / "first" / "weights.safetensors", "start_at": 0.95}
    assert toy_train(tmp_path / "late", recipe, **late)[0].notes()["steps"] == "5"
    for run in (
        toy_run(tmp_path / "late", recipe, resume=True),
        toy_run(tmp_path / "timed", recipe, minutes=600.0, **late),
    ):
        assert run.notes()["minutes"] == "0.0"
    assert toy_run(tmp_path / "late", recipe, resume=True).notes()["steps"] == "5"
    assert read_weights(tmp_path / "late" / "export").notes["steps"] == "5"


def test_warm_start_from_a_checkpoint_of_a_run(tmp_path):
    """A run that was killed has no export: its last checkpoint will do, trained and averaged weights to the bit."""
    first, _ = toy_train(tmp_path / "first")
    run = toy_run(tmp_path / "second", warm_start=tmp_path / "first" / "checkpoints" / "step-00000008.safetensors")
    for ours, theirs in ((run.model, first.model), (run.ema, first.ema)):
        assert all(torch.equal(ours.state_dict()[name], value) for name, value in theirs.state_dict().items())
    assert run.place.step == 0


def test_warm_start_of_a_complete_model_from_a_single_image_one(tmp_path):
    torch.manual_seed(1)
    single = BurstMamba(MODEL.single())
    save_checkpoint(tmp_path / "single.safetensors", single, half=False)
    run = toy_run(tmp_path / "run", warm_start=tmp_path / "single.safetensors")
    state = run.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in single.state_dict().items())
    assert any(name.startswith("burst.") for name in state)


def test_average_of_a_warm_start_goes_on(tmp_path):
    """The averaged weights are not thrown away for the first steps' ones; a new run's are."""
    torch.manual_seed(1)
    first = BurstMamba(MODEL)
    save_checkpoint(tmp_path / "first.safetensors", first, half=False)
    recipe = replace(RECIPE, ema=0.999, phases=(replace(PHASE, steps=5, rate=0.1, warmup=0),))
    warm, _ = toy_train(tmp_path / "warm", recipe, warm_start=tmp_path / "first.safetensors")
    name = "keyframe.convolution.weight"
    moved = (warm.model.state_dict()[name] - first.state_dict()[name]).abs().max()
    assert (warm.ema.state_dict()[name] - first.state_dict()[name]).abs().max() < 0.01 * moved
    fresh, _ = toy_train(tmp_path / "fresh", recipe)
    begin = toy_run(tmp_path / "begin", recipe).model.state_dict()[name]
    moved = (fresh.model.state_dict()[name] - begin).abs().max()
    assert (fresh.ema.state_dict()[name] - begin).abs().max() > 0.5 * moved
    save_checkpoint(tmp_path / "single.safetensors", BurstMamba(MODEL.single()))
    assert toy_run(tmp_path / "half", warm_start=tmp_path / "single.safetensors").place.averaged == 0


def test_warm_start_from_a_shipped_model(tmp_path):
    weights = read_weights(Path("light"))
    assert (
        replace(weights.config, reach=0) == replace(preset("light"), reach=0)
        and weights.model.keys() == weights.ema.keys()
    )


def test_final_weights_are_the_average(tmp_path):
    run, _ = toy_train(tmp_path)
    model = load_checkpoint(tmp_path / "weights.safetensors")
    for name, value in run.ema.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, atol=1e-6, rtol=1e-3)


def test_errors(tmp_path):
    model = BurstMamba(MODEL)
    with pytest.raises(InputError, match=r"a folder of exported shards or a shipped model \(.*light"):
        read_weights(tmp_path)
    export_weights(tmp_path, model, model, shard_mib=0.1)
    with pytest.raises(InputError, match="another network than the recipe's"):
        recipe = replace(RECIPE, model=replace(MODEL, channels=4))
        toy_run(tmp_path / "run", recipe, warm_start=tmp_path)
    with pytest.raises(InputError, match="alone needs .* MiB; choose larger shards"):
        export_weights(tmp_path, model, model, shard_mib=0.01)
    with torch.no_grad():
        next(model.parameters()).fill_(math.inf)
    with pytest.raises(InputError, match="does not fit"):
        export_weights(tmp_path, model, model)
    wide = BurstMamba(replace(MODEL, channels=48))
    shards = export_weights(tmp_path / "wide", wide, wide, shard_mib=0.2)
    shards[0].unlink()
    with pytest.raises(InputError, match=rf"holds {len(shards) - 1} of {len(shards)} shards"):
        read_weights(tmp_path / "wide")


def test_warm_start_of_a_raw_model_from_an_rgb_one(tmp_path):
    """Wider projections take the given weights for their first inputs and keep their own for the rest."""
    torch.manual_seed(0)
    rgb, raw = (BurstMamba(replace(preset(name), use_phase=True)) for name in ("tiny", "tiny-raw"))
    shadow = copy.deepcopy(raw)
    name = "burst.stages.0.gas.s6.in_proj.weight"
    given, fresh = rgb.state_dict()[name], raw.state_dict()[name].clone()
    assert given.shape[1] < fresh.shape[1]
    save_checkpoint(tmp_path / "rgb.safetensors", rgb, half=False)
    warm_start(raw, shadow, tmp_path / "rgb.safetensors")
    for module in (raw, shadow):
        ours = module.state_dict()
        assert torch.equal(ours[name], torch.cat((given, fresh[:, given.shape[1] :]), dim=1))
        assert torch.equal(ours["keyframe.norm.weight"], rgb.state_dict()["keyframe.norm.weight"])
    with pytest.raises(InputError, match="in_proj.weight does not fit"):
        save_checkpoint(tmp_path / "raw.safetensors", raw)
        warm_start(rgb, copy.deepcopy(rgb), tmp_path / "raw.safetensors")


def test_a_new_average_is_short_wherever_the_schedule_is_entered(tmp_path):
    run = toy_run(tmp_path / "late", start_at=0.5)
    assert run.place.step == 4 and run.place.averaged + run.place.step == 0
