"""Parts of the step compiled in other processes."""

from dataclasses import replace

import pytest
import torch
from training_toys import MODEL, PHASE, RECIPE, ToySource

from burstmamba.model.burstmamba import BurstMamba
from burstmamba.training import precompile
from burstmamba.training.overrides import load_recipe, override
from burstmamba.training.preparation import run_recipe
from burstmamba.training.run import RunOptions
from burstmamba.training.source import inputs_of


def examples(*lengths: int):
    return [inputs_of(ToySource().batch(0, PHASE, length)) for length in lengths]


def test_parts():
    found = precompile.parts_of(MODEL, examples(3, 2, 1))
    assert [(part, example.frames.shape[1]) for example, part in found] == [("keyframe", 3), ("burst", 3), ("burst", 2)]


def test_a_single_image_network_has_one_part():
    assert [part for _, part in precompile.parts_of(MODEL.single(), examples(3))] == ["keyframe"]


def test_each_part_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # compiling takes minutes on a CPU, and is PyTorch's affair
    recipe = replace(RECIPE, model=replace(MODEL, channels=8, burst_channels=4))
    found = [
        precompile.start(recipe, example, part, torch.device("cpu"))
        for example, part in precompile.parts_of(recipe.model, examples(2))
    ]
    assert [process.wait(300) for process in found] == [0, 0]


class Compiler:
    """Stands for a process that compiles."""

    def __init__(self, *wanted):
        self.wanted, self.done = wanted, []

    def wait(self, seconds):
        self.done.append("waited for")

    def kill(self):
        self.done.append("ended")


@pytest.mark.parametrize("cores, threads", [(12, 4), (2, 1)])
def test_the_waiting_process_runs_what_is_not_compiled(monkeypatch, cores, threads):
    """Parts share the cores; while they compile, the network runs once at every length; nobody is left behind."""
    started, run = [], []
    monkeypatch.setattr(precompile, "own_cores", lambda: cores)
    monkeypatch.setattr(precompile, "FEWEST_CORES", 2)
    monkeypatch.setattr(precompile, "start", lambda *wanted: started.append(Compiler(*wanted)) or started[-1])
    monkeypatch.setattr(precompile, "compile_part", lambda *wanted: run.append((wanted[2], wanted[4][0][0][1])))
    precompile.precompile(RECIPE, examples(3, 2, 1), torch.device("cpu"))
    assert [compiler.wanted[4] for compiler in started] == [threads] * 3
    assert [compiler.done for compiler in started] == [["waited for", "ended"]] * 3
    assert run == [("nothing", 3), ("nothing", 2), ("nothing", 1)]


def test_nothing_compiled_still_runs(monkeypatch):
    recipe = replace(RECIPE, model=replace(MODEL, channels=8, burst_channels=4))
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **__: pytest.fail("asked to compile"))
    layouts = precompile.layouts_of(examples(2)[0])
    precompile.compile_part(recipe.model, recipe.precision, "nothing", torch.device("cpu"), layouts)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="compiled for a GPU only")
def test_what_was_compiled_is_found(tmp_path, monkeypatch):
    """A process of its own compiles a stage; the same stage here is then taken from the cache."""
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    cuda = torch.device("cuda")
    batch = ToySource().batch(0, PHASE, 3).to("cuda")
    example = inputs_of(batch)
    for part, kind in (("keyframe", precompile.Block), ("burst", precompile.BurstStage)):
        assert precompile.start(RECIPE, example, part, cuda).wait(300) == 0
        model = BurstMamba(RECIPE.model).to(cuda).to(memory_format=torch.channels_last)
        precompile.compile_blocks(model, (kind,))
        torch._dynamo.reset()  # another test's code in memory would serve as well
        torch._dynamo.utils.counters.clear()
        with precompile.autocast_of(RECIPE.precision, cuda):
            output = model(example.frames, example.correspondence)
        output.float().sum().backward()
        counters = torch._dynamo.utils.counters["inductor"]
        assert counters["fxgraph_cache_hit"] > 0 and counters["fxgraph_cache_miss"] == 0, (part, dict(counters))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="compiled for a GPU only")
def test_a_training_finds_everything_that_was_compiled(tmp_path, monkeypatch):
    """Whatever a training sets before it compiles, its helpers must have set too."""
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setattr(precompile, "FEWEST_CORES", 1)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    recipe = override(load_recipe("tiny"), ["phases.steps=2"])
    run_recipe(recipe, RunOptions(tmp_path / "run"), [], device="cuda")
    counters = torch._dynamo.utils.counters["inductor"]
    assert counters["fxgraph_cache_hit"] > 0 and counters["fxgraph_cache_miss"] == 0
