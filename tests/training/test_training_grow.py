"""Larger networks that begin as smaller ones."""

from dataclasses import replace

import pytest
import torch
from training_toys import MODEL, RECIPE, toy_run, toy_sample

from burstmamba.checkpoint import save_checkpoint
from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset
from burstmamba.training.grow import grow, larger

FEW = replace(
    MODEL, channels=8, blocks=(2, 1), state=3, head_channels=0, drop_path=0.0, burst_channels=6, burst_state=3,
    psi_channels=5, use_phase=True, use_confidence=True,
)  # fmt: skip


def trained(config, seed=0):
    """A network whose every weight matters, and whose burst stream is heard."""
    torch.manual_seed(seed)
    model = BurstMamba(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for parameter in model.keyframe.upsampler.parameters():
            parameter.mul_(0.2)
    return model


def grown_from(model, config):
    torch.manual_seed(1)
    network = BurstMamba(config).eval()
    network.load_state_dict(grow(model.state_dict(), model.config, network))
    return network


def pictures(model, frames=3):
    sample = toy_sample(2, frames, 12, seed=3)
    with torch.no_grad():
        return model(sample.frames, sample.correspondence)


@pytest.mark.parametrize(
    "sizes",
    [
        {"channels": 24},
        {"state": 7},
        {"burst_channels": 12},
        {"burst_state": 4},
        {"psi_channels": 8},
        {"blocks": (3, 1)},
        {"blocks": (2, 1, 2)},
        {"blocks": (2, 2, 2, 1, 4)},
        {"head_channels": 50},
        {"channels": 64, "state": 5, "burst_channels": 18, "psi_channels": 9, "blocks": (2, 4, 2), "head_channels": 64},
    ],
    ids=str,
)
def test_a_grown_network_makes_the_same_picture(sizes):
    small, config = trained(FEW), replace(FEW, **sizes)
    assert larger(FEW, config)
    large = grown_from(small, config)
    for frames in (1, 3):
        torch.testing.assert_close(pictures(large, frames), pictures(small, frames), atol=2e-5, rtol=1e-5)
    assert (pictures(small, 3)[:, :, 8:-8] - pictures(small, 1)[:, :, 8:-8]).abs().max() > 1e-3


def test_an_upsampler_in_steps_grows():
    small = trained(replace(FEW, head_channels=5))
    large = grown_from(small, replace(FEW, head_channels=15))
    torch.testing.assert_close(pictures(large), pictures(small), atol=2e-5, rtol=1e-5)


def test_a_lost_block_is_the_one_before_the_last():
    small = trained(replace(FEW, blocks=(4, 1)))
    large = grown_from(small, replace(FEW, blocks=(3, 1), state=4))
    del small.keyframe.stages[0].blocks[2]
    torch.testing.assert_close(pictures(large), pictures(small), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("unlike", [0.0, 1.0])
def test_copies_learn_different_things(unlike, monkeypatch):
    """With equal shares the gradients of two copies point the same way, and an optimiser keeps them together."""
    monkeypatch.setattr("burstmamba.training.grow.UNLIKE", unlike)
    large = grown_from(trained(FEW), replace(FEW, channels=24, burst_channels=12)).train()
    sample = toy_sample(2, 3, 12, seed=3)
    (large(sample.frames, sample.correspondence) - sample.target).abs().mean().backward()
    for weight, copy in (
        (large.keyframe.stages[0].blocks[0].scan.out_proj.weight, 8),
        (large.burst.stages[0].gas.s6.out_proj.weight, 6),
    ):
        alike = torch.cosine_similarity(weight.grad[0], weight.grad[copy], dim=0)
        assert alike < 0.99 if unlike else alike > 0.9999


def test_everything_new_learns():
    """After three steps no weight of the larger network is where it began; gates of one channel may be off for all."""
    config = replace(FEW, channels=16, state=5, blocks=(2, 2, 2), head_channels=50, psi_channels=8)
    large = grown_from(trained(FEW), config)
    before = {name: tensor.clone() for name, tensor in large.state_dict().items()}
    optimizer, sample = torch.optim.Adam(large.parameters(), 1e-3), toy_sample(2, 3, 12, seed=3)
    for _ in range(3):
        optimizer.zero_grad()
        (large(sample.frames, sample.correspondence) - sample.target).abs().mean().backward()
        optimizer.step()
    same = [name for name, tensor in large.state_dict().items() if torch.equal(tensor, before[name])]
    assert not [name for name in same if ".attention.attention." not in name]


def test_light_can_grow_into_the_papers_network():
    config = replace(preset("light"), drop_path=0.1, **{name: getattr(preset("paper"), name) for name in (
        "channels", "blocks", "state", "head_channels", "burst_channels", "burst_state", "psi_channels"
    )})  # fmt: skip
    assert larger(preset("light"), config)
    assert not larger(config, preset("light"))
    assert not larger(preset("light"), preset("light"))
    assert not larger(preset("light"), preset("paper"))  # which has no bicubic skip: another network, not a larger one
    assert not larger(preset("light"), replace(config, head_channels=40))  # too few for the pixels of a token
    assert not larger(preset("light-single"), preset("light"))  # nothing grows: the burst stream is fresh


def test_a_run_begins_with_a_smaller_network(tmp_path):
    few = replace(MODEL, channels=3, burst_channels=2, state=1)
    small = trained(few)
    save_checkpoint(tmp_path / "small.safetensors", small, half=False)
    recipe = replace(RECIPE, model=replace(MODEL, blocks=(1, 1)))
    run = toy_run(tmp_path / "run", recipe, warm_start=tmp_path / "small.safetensors")
    for model in (run.model, run.ema):
        torch.testing.assert_close(pictures(model.eval()), pictures(small), atol=2e-5, rtol=1e-5)
    with pytest.raises(InputError, match="holds another network than the recipe's"):
        recipe = replace(RECIPE, model=replace(MODEL, burst_channels=1))
        toy_run(tmp_path / "other", recipe, warm_start=tmp_path / "small.safetensors")
