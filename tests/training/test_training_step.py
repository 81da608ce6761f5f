"""One optimiser step against its definition."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from training_toys import MODEL, PHASE, RECIPE, ToySource, toy_run, toy_sample

from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.training.loss import charbonnier, loss_of
from burstmamba.training.processes import Processes
from burstmamba.training.source import inputs_of
from burstmamba.training.step import TrainStep, decays

STILL = replace(RECIPE, model=replace(MODEL, drop_path=0.0), weight_decay=0.1)


def make_step(recipe=STILL, phase=PHASE):
    torch.manual_seed(0)
    model = BurstMamba(recipe.model)
    shadow = copy.deepcopy(model).requires_grad_(False)
    return TrainStep(model, shadow, recipe, phase, Processes()), model, shadow


def take(step, number=0, frames=3, rate=1e-2, ema_weight=0.25, broken=()):
    inputs = inputs_of(ToySource(broken=broken).batch(number, PHASE, frames))
    step.run(inputs, number=number, rate=rate, ema_weight=ema_weight)
    return inputs


def test_values_against_plain_adamw():
    """Clipping, AdamW with two groups and the average are what their formulas say."""
    step, model, shadow = make_step()
    twin, average = copy.deepcopy(model), copy.deepcopy(shadow)
    named = list(twin.named_parameters())
    groups = [
        {"params": [p for n, p in named if decays(n, p)], "weight_decay": 0.1},
        {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW(groups, lr=1e-2, betas=STILL.betas, foreach=False, fused=False)
    for number in range(3):
        inputs = take(step, number)
        plain.zero_grad()
        (twin(inputs.frames, inputs.correspondence) - inputs.target).abs().mean().backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), STILL.clip)
        plain.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), twin.parameters(), strict=True):
                kept.lerp_(new, 0.25)
    for (name, ours), expected in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-4, msg=name)
    for ours, expected in zip(shadow.parameters(), average.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-4)


def test_gradients_are_clipped():
    step, model, _ = make_step(replace(STILL, clip=1e-3))
    take(step)
    total = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None))
    assert total == pytest.approx(1e-3, rel=1e-3)


def test_no_decay_on_state_space_and_vectors():
    _, model, _ = make_step()
    spared = {name for name, parameter in model.named_parameters() if not decays(name, parameter)}
    assert any(name.endswith("A_log") for name in spared)
    assert any(name.endswith(".D") for name in spared)
    assert all("bias" in name or "A_log" in name or parameter.ndim < 2 or name.endswith(".D")
               for name, parameter in model.named_parameters() if name in spared)  # fmt: skip
    assert any(name.endswith("in_proj.weight") for name, _ in model.named_parameters() if name not in spared)


def test_bad_gradient_leaves_everything_alone():
    """A step with NaN changes neither weights nor moments nor counts, and is reported with its number."""
    step, model, _ = make_step()
    take(step, 0)
    before = copy.deepcopy((model.state_dict(), step.state()))
    take(step, 1, broken=(1,))
    for ours, expected in zip((model.state_dict(), step.state()), before, strict=True):
        for name, value in expected.items():
            assert torch.equal(ours[name], value), name
    take(step, 2)
    progress = step.progress()
    assert (progress.steps, progress.skipped, progress.last_skipped) == (3, 1, 1)
    assert math.isfinite(progress.loss) and math.isfinite(progress.gradient)
    assert step.progress().steps == 0
    assert not torch.equal(model.state_dict()["keyframe.convolution.weight"], before[0]["keyframe.convolution.weight"])


def test_progress_is_the_mean_loss():
    step, model, _ = make_step()
    inputs = inputs_of(ToySource().batch(0, PHASE, 3))
    with torch.no_grad():
        expected = (model(inputs.frames, inputs.correspondence) - inputs.target).abs().mean().item()
    take(step, 0)
    assert step.progress().loss == pytest.approx(expected, rel=1e-5)


def test_frozen_keys_stay_frozen():
    step, model, shadow = make_step(phase=replace(PHASE, frozen=("keyframe.",)))
    before = copy.deepcopy(model.state_dict())
    for number in range(2):
        take(step, number)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved and all(name.startswith("burst.") for name in moved)
    assert all(torch.equal(shadow.state_dict()[n], v) for n, v in before.items() if n.startswith("keyframe."))
    assert not any("keyframe." in name for name in step.state())


def test_a_frozen_keyframe_stream_learns_nothing_from_one_frame(tmp_path):
    """Said before the first step, also of a later phase; without L = 1 the phase is fine."""
    frozen = replace(PHASE, name="later", frozen=("keyframe.",))
    with pytest.raises(InputError, match="'later' freezes the whole keyframe stream.*leave L = 1 out of later.frames"):
        toy_run(tmp_path, replace(RECIPE, phases=(PHASE, frozen)))
    assert not (tmp_path / "recipe.json").exists()
    toy_run(tmp_path, replace(RECIPE, phases=(PHASE, replace(frozen, frames=((3, 1.0),)))))


def test_single_frame_leaves_burst_stream_alone():
    step, model, _ = make_step()
    before = copy.deepcopy(model.state_dict())
    take(step, frames=1)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved and all(name.startswith("keyframe.") for name in moved)


def test_recomputed_stages_give_the_same_step():
    """Less memory, the same weights, with DropPath drawing in both passes."""
    results = []
    for recompute in (False, True):
        step, model, _ = make_step(replace(RECIPE, model=replace(MODEL, drop_path=0.5, blocks=(2,))))
        model.recompute_stages = recompute
        model.train()
        torch.manual_seed(3)
        take(step)
        results.append(copy.deepcopy(model.state_dict()))
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, atol=1e-6, rtol=1e-5, msg=name)


def test_errors_of_frozen_prefixes():
    with pytest.raises(InputError, match=r"no parameter begins with 'keyframes.'"):
        make_step(phase=replace(PHASE, frozen=("keyframes.",)))
    with pytest.raises(InputError, match="nothing is left to train"):
        make_step(phase=replace(PHASE, frozen=("keyframe.", "burst.")))


def test_charbonnier_values():
    zero = torch.zeros(1, 3, 2, 2)
    assert charbonnier(zero, zero).item() == pytest.approx(1e-3)
    assert charbonnier(zero + 0.3, zero).item() == pytest.approx(math.sqrt(0.09 + 1e-6))


@pytest.mark.parametrize(("channels", "space", "expected"), [
    (3, "given", 0.1), (3, "srgb", 0.1), (1, "given", 0.1), (1, "linear", 0.1),
    (3, "linear", 0.318547 - 0.214041), (1, "srgb", 0.797738 - 0.735357),
])  # fmt: skip
def test_values_of_the_losses_space(channels, space, expected):
    """0.6 against 0.5, as the network writes them, in sRGB or in linear light."""
    model = replace(MODEL, in_channels=channels, masked_mosaic=channels == 1)
    loss = loss_of(replace(RECIPE, model=model, loss_space=space))
    image = torch.full((1, 3, 2, 2), 0.6)
    assert loss(image, image - 0.1).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("channels", "space"), [(3, "linear"), (1, "srgb")])
def test_gradients_of_outputs_below_zero(channels, space):
    loss = loss_of(replace(RECIPE, model=replace(MODEL, in_channels=channels), loss_space=space))
    output = torch.tensor([-0.2, -1e-3, 0.0, 1e-3, 1.2]).view(1, 1, 1, 5).requires_grad_()
    loss(output, torch.full_like(output, 0.5)).backward()
    assert torch.isfinite(output.grad).all() and (output.grad.flatten()[[0, 1, 3]] < 0).all()
    assert output.grad.flatten()[4] > 0


def test_overfits_one_burst():
    """A network that cannot learn one burst by heart cannot learn."""
    recipe = replace(RECIPE, model=replace(MODEL, channels=12, head_channels=12, burst_channels=8, drop_path=0.0))
    step, model, _ = make_step(recipe)
    sample = toy_sample(1, 3, 6, seed=5)
    inputs = inputs_of(sample)
    for number in range(150):
        step.run(inputs, number=number, rate=1e-2 * (1 - number / 150), ema_weight=1.0)
    with torch.no_grad():
        error = (model(sample.frames, sample.correspondence) - sample.target).square().mean()
    assert -10 * math.log10(error.item()) > 35
