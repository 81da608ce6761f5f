from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from burstmamba import Correspondence, InputError
from burstmamba.model import gas, padding
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import PRESETS, ModelConfig, preset
from burstmamba.model.gas import GatherAggregateScatter
from burstmamba.model.padding import PaddedConvolution, fill_up, project, widen

TINY = preset("tiny")


def build(config: ModelConfig = TINY) -> BurstMamba:
    """A network whose burst stream speaks: its projections start at zero, which would hide everything."""
    torch.manual_seed(0)
    model = BurstMamba(config).eval()
    if model.burst is not None:
        for projection in model.burst.projections:
            torch.nn.init.normal_(projection.weight, std=0.1)
    return model


def random_maps(b, l, h, w, size=1.5):
    maps = size * (2 * torch.rand(b, l, 2, h, w) - 1)
    maps[:, 0] = 0
    return Correspondence(maps, -maps)


def test_parameter_counts_are_the_papers():
    with torch.device("meta"):
        model = BurstMamba(preset("paper"))
    assert sum(p.numel() for p in model.keyframe.parameters()) == 20_569_575
    assert sum(p.numel() for p in model.burst.parameters()) == 794_040


@pytest.mark.parametrize("name", ["tiny", "tiny-raw", "tiny-single"])
@pytest.mark.parametrize("size", [(6, 8), (5, 7), (1, 1), (2, 9)])
def test_shapes(name, size):
    config = preset(name)
    frames = torch.rand(2, 3, config.in_channels, *size)
    with torch.no_grad():
        assert build(config)(frames, random_maps(2, 3, *size)).shape == (2, 3, 4 * size[0], 4 * size[1])


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("head", [0, 8])
def test_shapes_of_each_scale(scale, head):
    model = build(replace(TINY, scale=scale, head_channels=head))
    with torch.no_grad():
        assert model(torch.rand(1, 1, 3, 5, 6)).shape == (1, 3, 5 * scale, 6 * scale)


def test_one_frame_is_the_keyframe_stream_bit_for_bit():
    model, frames = build(), torch.rand(2, 4, 3, 7, 6)
    single = BurstMamba(TINY.single()).eval()
    single.load_state_dict({k: v for k, v in model.state_dict().items() if k.startswith("keyframe.")})
    with torch.no_grad():
        assert torch.equal(model(frames[:, :1]), single(frames))


def test_further_frames_reach_the_keyframe_stream_only_through_project():
    model, frames, maps = build(), torch.rand(1, 4, 3, 7, 6), random_maps(1, 4, 7, 6)
    with torch.no_grad():
        with_burst = model(frames, maps)
        for projection in model.burst.projections:
            torch.nn.init.zeros_(projection.weight)
        assert not torch.allclose(with_burst, model(frames, maps), atol=1e-4)
        assert torch.equal(model(frames, maps), model(frames[:, :1]))


def test_burst_features_do_not_see_the_keyframe_stream():
    model, frames, maps = build(), torch.rand(1, 3, 3, 6, 5), random_maps(1, 3, 6, 5)
    seen = []
    model.burst.stages[-1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        model(frames, maps)
        for parameter in model.keyframe.parameters():
            parameter.add_(torch.randn_like(parameter))
        model(frames, maps)
    assert torch.equal(seen[0], seen[1])


def test_identity_maps_make_gas_plain_message_passing():
    torch.manual_seed(0)
    config = replace(TINY, use_phase=False)
    gas, features = GatherAggregateScatter(config).eval(), torch.randn(1, 3, 6, 5, 8)
    with torch.no_grad():
        psi = gas.psi(features.flatten(0, 1)).unflatten(0, (1, 3))
        expected = gas.s6(gas.norm(features), psi, None)
        maps = Correspondence.identity(features.movedim(-1, 2))
        assert torch.allclose(gas(features, maps), expected, atol=1e-5)


@pytest.mark.parametrize("selectivity", ["wavelet", "content"])
def test_zero_confidence_equals_leaving_the_frame_out(selectivity):
    model = build(replace(TINY, selectivity=selectivity))
    frames, maps = torch.rand(1, 4, 3, 7, 6), random_maps(1, 4, 7, 6)
    confidence = torch.ones(1, 4, 1, 7, 6)
    confidence[:, 2] = 0
    distrusted = Correspondence(maps.to_frame, maps.to_keyframe, confidence)
    keep = [0, 1, 3]
    with torch.no_grad():
        expected = model(frames[:, keep], maps.select(keep))
        assert torch.allclose(model(frames, distrusted), expected, atol=1e-5)
        assert not torch.allclose(model(frames, maps), expected, atol=1e-4)


def test_confidence_is_ignored_in_the_papers_configuration():
    model = build(replace(TINY, use_confidence=False))
    frames, maps = torch.rand(1, 3, 3, 5, 5), random_maps(1, 3, 5, 5)
    distrusted = Correspondence(maps.to_frame, maps.to_keyframe, torch.zeros(1, 3, 1, 5, 5))
    with torch.no_grad():
        assert torch.equal(model(frames, maps), model(frames, distrusted))


def test_whole_pixel_motion_does_not_change_the_phase():
    """The sub-pixel phase that tokens carry is periodic: a whole-pixel displacement looks like none."""
    from burstmamba.model.gas import sampling_phase

    still, moved = torch.zeros(1, 2, 2, 4, 5), torch.full((1, 2, 2, 4, 5), 3.0)
    assert torch.allclose(sampling_phase(still, (1,)), sampling_phase(moved, (1,)), atol=1e-5)
    assert not torch.allclose(sampling_phase(still, (2,)), sampling_phase(moved, (2,)), atol=1e-2)


def test_batch_equals_one_by_one():
    model, frames, maps = build(), torch.rand(3, 3, 3, 6, 7), random_maps(3, 3, 6, 7)
    with torch.no_grad():
        together = model(frames, maps)
        alone = [model(frames[i : i + 1], maps.apply(lambda t, i=i: t[i : i + 1])) for i in range(3)]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


@pytest.mark.parametrize("reach", [0.0, 8.0])
def test_gradients_reach_every_parameter_and_survive_recomputation(reach):
    model, frames, maps = build(replace(TINY, reach=reach)).train(), torch.rand(1, 3, 3, 6, 6), random_maps(1, 3, 6, 6)
    model(frames, maps).square().mean().backward()
    plain = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    assert all(gradient.abs().max() > 0 for gradient in plain.values())
    model.zero_grad()
    model.recompute_stages = True
    model(frames, maps).square().mean().backward()
    assert all(torch.allclose(plain[n], p.grad, rtol=1e-4, atol=1e-7) for n, p in model.named_parameters())


def test_drop_path_acts_in_training_only():
    model = build(replace(TINY, drop_path=0.9))
    frames = torch.rand(1, 1, 3, 6, 6)
    with torch.no_grad():
        assert torch.equal(model(frames), model(frames))
        assert len({model.train()(frames).sum().item() for _ in range(8)}) > 1


@pytest.mark.parametrize("reach", [0.0, 8.0])
def test_a_block_is_one_graph_for_a_compiler(reach):
    block = build(replace(TINY, reach=reach)).keyframe.stages[0].blocks[0]
    tokens = torch.randn(1, 6, 8, TINY.channels)
    expected = block(tokens)
    compiled = torch.compile(block, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(tokens), expected, atol=1e-6)


class Passing(torch.nn.Module):
    """In the place of channel attention: its input, all gates open."""

    width = TINY.channels

    def forward(self, tokens):
        return tokens, torch.ones(tokens.shape[0], tokens.shape[-1])


def test_drop_path_keeps_the_mean():
    """A rate of its own for every block, from 0 up; what is kept is divided by its share."""
    blocks = [block for stage in build(replace(TINY, drop_path=0.5)).keyframe.stages for block in stage.blocks]
    assert [round(1 - block.keep_path.item(), 4) for block in blocks] == [0, 0.5]
    block, tokens = blocks[-1].train(), torch.randn(512, 2, 2, TINY.channels)
    block.attention = Passing()
    block.attention_norm = torch.nn.Identity()
    dropped = (block(tokens) - 2 * tokens).abs().sum(dim=(1, 2, 3)) == 0
    mean = (block(tokens) - 2 * tokens).mean()
    expected = (block.eval()(tokens) - 2 * tokens).mean()
    assert 0.4 < dropped.float().mean() < 0.6
    assert torch.isclose(mean, expected, atol=5 * expected.abs().item() / 512**0.5 + 1e-3)


@pytest.mark.parametrize("inputs, outputs", [(12, 5), (8, 5), (5, 16)])
def test_filling_up_channels_changes_nothing(inputs, outputs):
    """Wider weights, and tokens that have the width already or not: the same results, then zeros."""
    torch.manual_seed(0)
    convolution, wide = PaddedConvolution(inputs, outputs), PaddedConvolution(inputs, outputs)
    parameters = [parameter.detach().requires_grad_() for parameter in convolution.parameters()]
    wide.weight, wide.bias = (torch.nn.Parameter(fill_up(parameter)) for parameter in parameters)
    image, matrix = torch.randn(2, inputs, 4, 5), torch.randn(outputs, inputs)
    assert wide.weight.shape[0] % 8 == wide.weight.shape[1] % 8 == wide.bias.shape[0] % 8 == 0
    for x in (image, widen(image.permute(0, 2, 3, 1), wide.weight.shape[1]).permute(0, 3, 1, 2)):
        found = wide(x)
        assert torch.allclose(found[:, :outputs], convolution(image), atol=1e-6) and not found[:, outputs:].any()
        tokens = x.permute(0, 2, 3, 1)
        found, expected = project(tokens, fill_up(matrix), outputs), image.permute(0, 2, 3, 1) @ matrix.T
        assert found.shape[-1] == outputs and torch.allclose(found, expected, atol=1e-5)
    filled = F.conv2d(F.pad(image, (0, 0, 0, 0, 0, -inputs % 8)), *(fill_up(parameter) for parameter in parameters))
    gradients = torch.autograd.grad(filled.square().sum(), parameters)
    expected = torch.autograd.grad(F.conv2d(image, *parameters).square().sum(), parameters)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(gradients, expected, strict=True))


@pytest.mark.parametrize("channels, burst_channels", [(6, 5), (20, 12), (48, 24)])
def test_networks_of_any_width_are_filled_up(monkeypatch, channels, burst_channels):
    """As a compiler sees them on a GPU."""
    model = build(replace(TINY, channels=channels, burst_channels=burst_channels))
    frames, maps = torch.rand(2, 3, 3, 12, 14), random_maps(2, 3, 12, 14)
    with torch.no_grad():
        expected = model(frames, maps)
        monkeypatch.setattr(padding, "filled_up", lambda tensor: True)
        assert torch.allclose(model(frames, maps), expected, atol=1e-5)


@pytest.mark.parametrize("selectivity", ["wavelet", "content"])
def test_rows_by_rows_changes_nothing(monkeypatch, selectivity):
    """A CPU takes a few rows, or frames, at a time: same results, same gradients."""
    model = build(replace(TINY, selectivity=selectivity))
    frames, maps = torch.rand(2, 3, 3, 11, 14), random_maps(2, 3, 11, 14)
    maps = replace(maps, confidence=torch.rand(2, 3, 1, 11, 14))
    found = []
    for tokens in (10**6, 3 * 14 * 4, 1):  # all at once, four rows, one row
        monkeypatch.setattr(gas, "CACHED", tokens)
        output = model(frames, maps)
        found.append((output, *torch.autograd.grad(output.square().mean(), list(model.burst.parameters()))))
    assert gas.at_a_time(frames, 3 * 14) == 1
    for other in found[1:]:
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(other, found[0], strict=True))


def test_freeze():
    model = build()
    assert model.freeze("keyframe.") == len(list(model.keyframe.parameters()))
    assert not any(p.requires_grad for p in model.keyframe.parameters())
    assert all(p.requires_grad for p in model.burst.parameters())


@pytest.mark.parametrize("name", PRESETS)
def test_presets_build(name):
    with torch.device("meta"):
        model = BurstMamba(preset(name))
        assert model.burst is not None and BurstMamba(preset(f"{name}-single")).burst is None
    if name.startswith("light"):
        assert preset(name).channels % 8 == preset(name).burst_channels % 8 == 0


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (torch.rand(2, 3, 8, 8), r"5 dimensions \(b, l, c, h, w\), got shape \(2, 3, 8, 8\)"),
        (torch.zeros(1, 0, 3, 8, 8), "at least one frame"),
        (torch.zeros(1, 2, 3, 8, 8, dtype=torch.uint8), "floating point in .0, 1., got torch.uint8"),
        (torch.full((1, 2, 3, 8, 8), float("nan")), "NaN"),
        (torch.rand(1, 2, 1, 8, 8), "takes RGB frames"),
        ([[1.0]], "must be a tensor"),
    ],
)
def test_errors_of_frames(frames, message):
    with pytest.raises(InputError, match=message):
        build()(frames)


def test_errors_of_maps_and_presets():
    with pytest.raises(InputError, match=r"maps must be \(1, 2, 2, 8, 8\).*got \(1, 2, 2, 8, 9\)"):
        build()(torch.rand(1, 2, 3, 8, 8), random_maps(1, 2, 8, 9))
    with pytest.raises(InputError, match="unknown preset 'ligth'.*Did you mean 'light'"):
        preset("ligth")
    with pytest.raises(InputError, match="scale must be one of 2, 3, 4, got 5"):
        ModelConfig(scale=5)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"out_channels": 1}, "out_channels must be 3, for red, green and blue, got 1"),
        ({"burst_channels": -4}, "head_channels and burst_channels must be at least 0"),
        ({"head_channels": -1}, "head_channels and burst_channels must be at least 0"),
        ({"drop_path": 2.0}, r"drop_path must be in \[0, 1\), got 2.0"),
        ({"drop_path": -0.1}, r"drop_path must be in \[0, 1\)"),
    ],
)
def test_errors_of_configurations(setting, message):
    with pytest.raises(InputError, match=message):
        ModelConfig(**setting)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU")
@pytest.mark.parametrize("reach", [0.0, 8.0])
def test_fused_kernels_of_a_gpu_change_nothing(reach):
    """Without gradients norms, gates and sums are kernels of their own."""
    torch.manual_seed(0)
    model = build(replace(TINY, channels=12, burst_channels=6, reach=reach)).cuda().eval()
    frames = torch.rand(1, 3, 3, 12, 14, device="cuda")
    with torch.no_grad():
        found = model(frames)
    assert torch.allclose(found, model(frames), atol=1e-4)


def test_a_mosaic_s_colours_are_not_rounded_by_autocast():
    model = BurstMamba(preset("tiny-raw")).eval()
    for parameter in model.keyframe.upsampler.parameters():
        torch.nn.init.zeros_(parameter)  # what is left is the interpolated keyframe
    frames = torch.rand(1, 1, 1, 16, 16)
    with torch.no_grad():
        expected = model(frames)
        with torch.autocast("cpu", torch.bfloat16):
            assert (model(frames) - expected).abs().max() < 1e-6
