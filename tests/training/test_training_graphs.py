"""The captured step and the captured synthesis against the launched ones."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from training_toys import MODEL, PHASE, RECIPE, ToySource

from burstmamba.data.photographs import PhotographBank
from burstmamba.data.replay import Replay
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.graph_step import GraphStep
from burstmamba.training.leaves import write_leaves
from burstmamba.training.processes import Processes
from burstmamba.training.recipe import Photographs
from burstmamba.training.source import PhotographSource, Prefetcher, inputs_of
from burstmamba.training.step import TrainStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU"),
]


class CudaSource(ToySource):
    def batch(self, step, phase, frames):
        return super().batch(step, phase, frames).to("cuda")


def trained(kind: type[TrainStep], recipe) -> tuple[BurstMamba, BurstMamba, TrainStep]:
    torch.manual_seed(0)
    model = BurstMamba(recipe.model).cuda().to(memory_format=torch.channels_last)
    shadow = copy.deepcopy(model).requires_grad_(False)
    step = kind(model, shadow, recipe, PHASE, Processes())
    source = CudaSource(broken=(3,))
    step.prepare(lambda: [inputs_of(source.batch(0, PHASE, length)) for length in (1, 3)])
    prefetcher = Prefetcher(source, torch.device("cuda"))
    for number in range(8):
        torch.manual_seed(number)
        step.run(prefetcher.take(number, PHASE, 1 + 2 * (number % 2)), number=number, rate=1e-3, ema_weight=0.1)
        prefetcher.prepare(number + 1, PHASE, 1 + 2 * ((number + 1) % 2))
    return model, shadow, step


def test_graphs_take_the_same_steps():
    """Eight steps of two lengths, one of them with NaN: the same weights, averages and report."""
    recipe = replace(RECIPE, precision="fp32", model=replace(MODEL, drop_path=0.0), weight_decay=0.01)
    eager, graph = trained(TrainStep, recipe), trained(GraphStep, recipe)
    for ours, expected in zip(graph[:2], eager[:2], strict=True):
        for name, value in expected.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], value, atol=2e-4, rtol=1e-3, msg=name)
    seen, expected = graph[2].progress(), eager[2].progress()
    assert (
        (seen.steps, seen.skipped, seen.last_skipped)
        == (8, 1, 3)
        == (
            expected.steps,
            expected.skipped,
            expected.last_skipped,
        )
    )
    assert seen.loss == pytest.approx(expected.loss, rel=1e-3)


def test_capture_changes_nothing():
    recipe = replace(RECIPE, model=replace(MODEL, drop_path=0.0))
    torch.manual_seed(0)
    model = BurstMamba(recipe.model).cuda()
    before = copy.deepcopy(model.state_dict())
    step = GraphStep(model, copy.deepcopy(model).requires_grad_(False), recipe, PHASE, Processes())
    source = CudaSource()
    step.prepare(lambda: [inputs_of(source.batch(0, PHASE, length)) for length in (1, 3)])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(not value.any() for value in step.state().values())
    assert step.progress().steps == 0


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    return PhotographBank(write_leaves(tmp_path_factory.mktemp("leaves"), 3, 320, 0), "cuda")


def assert_same_batch(left, right):
    for ours, expected in zip(inputs_of(left).tensors(), inputs_of(right).tensors(), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("maps", ["given", "prealigned"])
@pytest.mark.parametrize("pipeline", ["handheld-rgb", "handheld-raw", "synburst"])
def test_replayed_synthesis_makes_the_launched_batches(bank, pipeline, maps):
    """Two burst lengths and two shares of a batch, in any order of steps: the same draws, whichever way."""
    if maps == "prealigned" and pipeline != "handheld-rgb":
        pytest.skip("warping would mix the colours of a mosaic")
    data, phase = Photographs(synthesis_preset(pipeline), maps), replace(PHASE, batch=4, patch=16)
    for processes in (Processes(), Processes(1, 2)):
        replayed, launched = (
            PhotographSource(bank, data, 0, processes, "cuda", graphs=graphs) for graphs in (True, False)
        )
        for step in (0, 1, 2, 7, 1):
            length = 1 + 4 * (step % 2)
            assert_same_batch(replayed.batch(step, phase, length), launched.batch(step, phase, length))
        assert_same_batch(replayed.example(0, phase, 5), launched.example(0, phase, 5))


def test_prefetched_batch_is_not_overwritten(bank):
    """The next batch is replayed while this one may still be read."""
    data, phase, device = Photographs(synthesis_preset("handheld-rgb")), replace(PHASE, patch=16), torch.device("cuda")
    source = PhotographSource(bank, data, 0, Processes(), device)
    launched = PhotographSource(bank, data, 0, Processes(), device, graphs=False)
    prefetcher = Prefetcher(source, device)
    for step in range(4):
        inputs = prefetcher.take(step, phase, 5)
        prefetcher.prepare(step + 1, phase, 5)
        torch.cuda.synchronize()
        for ours, expected in zip(inputs.tensors(), inputs_of(launched.batch(step, phase, 5)).tensors(), strict=True):
            torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_graphs_that_run_at_once_keep_their_sums():
    """Products cut along their sum keep parts in scratch memory: each graph needs its own, as batch and step do."""

    def products(seed: int) -> Replay:
        tall = torch.randn(64, 2**17, device="cuda", generator=torch.Generator("cuda").manual_seed(seed)).bfloat16()
        return Replay(lambda: torch.stack([tall @ tall.mT for _ in range(20)]), [], torch.device("cuda"))

    replays = [products(seed) for seed in (0, 1)]
    streams = [torch.cuda.Stream() for _ in replays]
    expected = [replay().clone() for replay in replays]
    torch.cuda.synchronize()
    for _ in range(30):
        for replay, stream in zip(replays, streams, strict=True):
            with torch.cuda.stream(stream):
                replay()
        torch.cuda.synchronize()
        for replay, values in zip(replays, expected, strict=True):
            assert torch.equal(replay.values, values)


def test_a_step_records_on_a_stream_of_its_own(bank):
    """Batches are made while a step runs; PyTorch's common recording stream would give both one scratch memory."""
    source = PhotographSource(bank, Photographs(synthesis_preset("handheld-rgb")), 0, Processes(), "cuda")
    for length in (1, 3):
        source.batch(0, replace(PHASE, patch=16), length)
    _, _, step = trained(GraphStep, replace(RECIPE, model=replace(MODEL, drop_path=0.0)))
    assert isinstance(step, GraphStep)
    recorded = {replay.stream for replay in source._replays.values()}
    assert len(recorded) == 1 and step.stream not in recorded
    assert torch.cuda.graph.default_capture_stream not in {step.stream, *recorded}
