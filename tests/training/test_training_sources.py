"""Where batches come from: photographs, recorded bursts, leaves; and what is said when there are none."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from training_toys import PHASE, RECIPE, toy_sample

from burstmamba.correspondence.field import Correspondence
from burstmamba.data.datasets import BurstDataset
from burstmamba.data.photographs import PhotographBank
from burstmamba.errors import InputError
from burstmamba.training import preparation
from burstmamba.training.chance import burst_length
from burstmamba.training.leaves import draw_leaves, write_leaves
from burstmamba.training.overrides import load_recipe, override, recipe_names
from burstmamba.training.preparation import data_folders, in_background, open_data
from burstmamba.training.processes import Processes
from burstmamba.training.recipe import BurstFolders, Photographs
from burstmamba.training.recorded import RecordedSource, validation_sample
from burstmamba.training.source import PhotographSource, inputs_of, shuffle_frames, treat_maps

CPU = torch.device("cpu")
PLAIN = replace(RECIPE, data=Photographs(RECIPE.data.synthesis), phases=(replace(PHASE, patch=8),))
"""A recipe that needs photographs."""


@pytest.fixture(scope="module")
def leaves(tmp_path_factory):
    return write_leaves(tmp_path_factory.mktemp("leaves"), 2, 160, 0)


def test_leaves_are_reproducible_and_detailed(tmp_path):
    first, again = (draw_leaves(64, np.random.default_rng((3, 1))) for _ in range(2))
    assert np.array_equal(first, again) and first.shape == (64, 64, 3)
    assert not np.array_equal(first, draw_leaves(64, np.random.default_rng((3, 2))))
    assert np.abs(np.diff(first.astype(float), axis=0)).mean() > 2
    folder = write_leaves(tmp_path, 2, 64, 5)
    assert sorted(path.name for path in folder.iterdir()) == ["leaves-00.png", "leaves-01.png"]


def test_batches_depend_on_the_step_alone(leaves):
    """Asked again, in any order, by a new source: the same batch; another step or seed: another one."""
    bank, phase = PhotographBank(leaves), replace(PHASE, patch=8)
    source, other = (PhotographSource(bank, RECIPE.data, seed, Processes()) for seed in (0, 1))
    first = source.batch(3, phase, 3)
    source.batch(9, phase, 3)
    again = PhotographSource(bank, RECIPE.data, 0, Processes()).batch(3, phase, 3)
    assert torch.equal(first.frames, again.frames) and torch.equal(first.target, again.target)
    assert first.frames.shape == (2, 3, 3, 8, 8) and first.target.shape == (2, 3, 32, 32)
    assert not torch.equal(first.target, source.batch(4, phase, 3).target)
    assert not torch.equal(first.target, other.batch(3, phase, 3).target)


def test_batches_do_not_depend_on_when_photographs_are_decoded(leaves):
    """An example needs none of them, and the first batch waits for all of them."""
    phase, ready = replace(PHASE, patch=8), threading.Event()
    bank = in_background(lambda: (ready.wait(10), PhotographBank(leaves))[1])
    slow = PhotographSource(bank, RECIPE.data, 0, Processes(), CPU)
    example = slow.example(0, phase, 3)  # would wait for ever if it asked for the bank
    quick = PhotographSource(PhotographBank(leaves), RECIPE.data, 0, Processes())
    threading.Timer(0.2, ready.set).start()
    late, batch = slow.batch(5, phase, 3), quick.batch(5, phase, 3)
    assert torch.equal(late.frames, batch.frames) and torch.equal(late.target, batch.target)
    assert example.frames.shape == batch.frames.shape and example.target.shape == batch.target.shape
    assert [t.shape for t in inputs_of(example).tensors()] == [t.shape for t in inputs_of(batch).tensors()]
    shared = PhotographSource(bank, RECIPE.data, 0, Processes(1, 2), CPU).example(0, phase, 3)
    assert len(shared.frames) == 1 and torch.isfinite(shared.frames).all()


class CpuReplay:
    """What `Replay` does on a GPU: records with draws of its own, then overwrites the same memory at every call."""

    recorded = 0

    def __init__(self, make, generators, device, *, like):
        assert (like is None) == (CpuReplay.recorded == 0)  # memory is shared with those recorded before
        CpuReplay.recorded += 1
        self.make, self.values = make, make()

    def __call__(self):
        for kept, new in zip(inputs_of(self.values).tensors(), inputs_of(self.make()).tensors(), strict=True):
            kept.copy_(new)
        return self.values


def test_replayed_batches_are_the_launched_ones(leaves, monkeypatch):
    """One recording for each length; recording draws nothing that a batch needs; a batch keeps its values."""
    monkeypatch.setattr("burstmamba.training.source.Replay", CpuReplay)
    monkeypatch.setattr(CpuReplay, "recorded", 0)
    phase, bank = replace(PHASE, patch=8), PhotographBank(leaves)
    replayed, launched = (PhotographSource(bank, RECIPE.data, 0, Processes()) for _ in range(2))
    assert not replayed.graphs
    replayed.graphs = True
    batches = {(step, length): replayed.batch(step, phase, length) for step, length in ((0, 3), (1, 1), (2, 3), (9, 3))}
    assert CpuReplay.recorded == 2
    for (step, length), batch in batches.items():
        expected = inputs_of(launched.batch(step, phase, length))
        for ours, theirs in zip(inputs_of(batch).tensors(), expected.tensors(), strict=True):
            assert torch.equal(ours, theirs)


def test_errors_in_the_background_are_raised_by_who_waits(tmp_path):
    waiting = in_background(lambda: PhotographBank(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="is not a folder of photographs"):
        waiting()


def test_processes_share_the_crops_of_one_batch(leaves, monkeypatch):
    """Together they see the crops that one process alone would see, each crop once."""
    seen = []

    def note(photographs, config, generator):
        seen.append(photographs)
        return toy_sample(len(photographs), config.frames, 6, 0)

    monkeypatch.setattr("burstmamba.training.source.synthesize_burst", note)
    bank, phase = PhotographBank(leaves), replace(PHASE, batch=6)
    for processes in (Processes(), Processes(0, 2), Processes(1, 2)):
        PhotographSource(bank, RECIPE.data, 0, processes).batch(5, phase, 3)
    assert torch.equal(seen[0], torch.cat(seen[1:]))


def test_shuffling_keeps_the_keyframe_and_its_maps():
    sample = toy_sample(2, 6, 4, seed=1)
    mixed = shuffle_frames(sample, torch.Generator().manual_seed(3))
    assert torch.equal(mixed.frames[:, 0], sample.frames[:, 0])
    moved = False
    for place in range(1, 6):
        (origin,) = [i for i in range(6) if torch.equal(sample.frames[:, i], mixed.frames[:, place])]
        assert torch.equal(sample.correspondence.to_frame[:, origin], mixed.correspondence.to_frame[:, place])
        moved |= origin != place
    assert moved


def test_treatments_of_maps():
    sample = toy_sample(1, 3, 8, seed=2)
    assert treat_maps(sample, "given") is sample
    assert not treat_maps(sample, "identity").correspondence.to_frame.any()
    rounded = treat_maps(sample, "rounded").correspondence.to_frame
    assert torch.equal(rounded, sample.correspondence.to_frame.round())
    aligned = treat_maps(sample, "prealigned")
    assert not aligned.correspondence.to_frame.any()
    inside = (slice(None), slice(1, None), slice(None), slice(3, 5), slice(3, 5))
    before = (sample.frames - sample.frames[:, :1])[inside].abs().mean()
    assert (aligned.frames - aligned.frames[:, :1])[inside].abs().mean() < 0.5 * before


def test_ablation_rows_train_on_the_same_batches(leaves):
    """The same keyframes, frames and targets in every step; only what is made of the maps differs."""
    rows = [load_recipe(name) for name in recipe_names() if name.startswith("ablation-")]
    assert len(rows) == 8 and len({(row.phases, row.seed, row.loss, row.ema) for row in rows}) == 1
    bank, phase, warped = PhotographBank(leaves), replace(rows[0].phases[0], batch=2, patch=8), 0
    for step in range(4):
        length = burst_length(phase, 0, step)
        first, *others = (PhotographSource(bank, row.data, 0, Processes()).batch(step, phase, length) for row in rows)
        for row, other in zip(rows[1:], others, strict=True):
            assert torch.equal(other.target, first.target)
            assert torch.allclose(other.frames[:, 0], first.frames[:, 0], atol=1e-6)
            same = torch.allclose(other.frames, first.frames, atol=1e-6)
            assert same or row.data.maps == "prealigned"
            warped += not same
    assert warped, "a step with several frames was among them"


class ToyDataset(BurstDataset):
    """Bursts that come from their folder's number; folder 2 cannot be read."""

    def load(self, folder):
        number = int(folder.name)
        if number == 2:
            raise InputError("2 is broken.")
        return replace(toy_sample(1, 4, 10, seed=number), correspondence=None, names=(folder.name,))


def test_recorded_bursts_are_each_used_once_an_epoch(tmp_path, caplog):
    dataset = ToyDataset([tmp_path / str(number) for number in range(7)])
    data = BurstFolders("realbsr-rgb", correspondence="identity")
    source = RecordedSource(dataset, data, 0, CPU, cache=tmp_path / "maps")
    drawn = [index for step in range(7) for index in source.order(step, 2)]
    assert sorted(drawn[:7]) == list(range(7)) == sorted(drawn[7:]) and drawn[:7] != drawn[7:]
    batches = [source.batch(step, PHASE, 3) for step in range(4)]
    assert all(batch.frames.shape == (2, 3, 3, 6, 6) and batch.target.shape == (2, 3, 24, 24) for batch in batches)
    assert "left out: 2 is broken." in caplog.text
    assert len(list((tmp_path / "maps" / "identity").iterdir())) == 6
    again = RecordedSource(dataset, data, 0, CPU, cache=tmp_path / "maps").batch(2, PHASE, 3)
    assert torch.equal(again.frames, batches[2].frames)
    parts = [
        RecordedSource(dataset, data, 0, CPU, cache=tmp_path / "maps", processes=Processes(rank, 2)).batch(2, PHASE, 3)
        for rank in (0, 1)
    ]
    assert torch.equal(torch.cat([part.frames for part in parts]), batches[2].frames)
    single = source.batch(0, replace(PHASE, frames=((1, 1.0),)), 1)
    assert single.frames.shape[1] == 1
    checked = validation_sample(ToyDataset([tmp_path / "0", tmp_path / "1"]), source, 2, 8, 3)
    assert checked.frames.shape == (2, 3, 3, 8, 8) and isinstance(checked.correspondence, Correspondence)


def test_a_new_phase_gets_batches_of_its_own_size(tmp_path):
    """Batches are read ahead; those of another size are not taken over."""
    dataset = ToyDataset([tmp_path / str(number) for number in range(7)])
    data = BurstFolders("realbsr-rgb", correspondence="identity")
    source, smaller = RecordedSource(dataset, data, 0, CPU, cache=tmp_path / "maps"), replace(PHASE, batch=1)
    source.batch(0, PHASE, 3)
    assert [len(source.batch(step, smaller, 3).frames) for step in (1, 2, 3, 4)] == [1, 1, 1, 1]


def test_errors_of_recorded_bursts(tmp_path):
    data = BurstFolders("realbsr-rgb", correspondence="identity")
    source = RecordedSource(ToyDataset([tmp_path / "0"]), data, 0, CPU, cache=tmp_path)
    with pytest.raises(InputError, match="a batch of 2 needs as many bursts, and there are 1"):
        source.batch(0, PHASE, 3)
    source = RecordedSource(ToyDataset([tmp_path / "2", tmp_path / "2"]), data, 0, CPU, cache=tmp_path)
    with pytest.raises(InputError, match="not one burst of the data set can be read"):
        source.batch(0, PHASE, 3)
    source = RecordedSource(ToyDataset([tmp_path / "0", tmp_path / "1"]), data, 0, CPU, cache=tmp_path)
    with pytest.raises(InputError, match="0|1 is 10 pixels small, patches of 40 do not fit"):
        source.batch(0, replace(PHASE, patch=40), 3)


def test_errors_of_folders(tmp_path):
    bare = PLAIN
    with pytest.raises(InputError, match="this recipe needs photographs: give --data FOLDER"):
        data_folders(bare, [], None, tmp_path)
    with pytest.raises(InputError, match="no folder .*nowhere; --data expects a folder of photographs"):
        data_folders(bare, [str(tmp_path / "nowhere")], None, tmp_path)
    with pytest.raises(InputError, match="no folder .*nowhere; --val expects a folder of photographs"):
        data_folders(bare, [str(tmp_path)], str(tmp_path / "nowhere"), tmp_path)
    with pytest.raises(InputError, match="no photographs"):
        open_data(bare, [str(tmp_path)], None, tmp_path, CPU, Processes())
    (tmp_path / "bad.jpg").write_bytes(b"not a photograph")
    with pytest.raises(InputError, match="no usable photograph"):
        open_data(bare, [str(tmp_path)], None, tmp_path, CPU, Processes())
    Image.new("RGB", (40, 40)).save(tmp_path / "small.png")
    with pytest.raises(InputError, match="no usable photograph of at least 1"):
        open_data(bare, [str(tmp_path)], None, tmp_path, CPU, Processes())
    with pytest.raises(InputError, match="batch of 2 cannot be split evenly over 3"):
        open_data(bare, [str(tmp_path)], None, tmp_path, CPU, Processes(0, 3))
    recorded = replace(RECIPE, data=BurstFolders("realbsr-rgb"))
    with pytest.raises(InputError, match="where realbsr-rgb was unpacked"):
        open_data(recorded, [], None, tmp_path, CPU, Processes())


def test_the_benchmark_s_photographs_are_refused(tmp_path, monkeypatch):
    Image.new("RGB", (200, 200)).save(tmp_path / "renamed.png")
    digest = hashlib.sha256((tmp_path / "renamed.png").read_bytes()).hexdigest()
    monkeypatch.setitem(preparation.PHOTOGRAPHS, "0004.avif", digest)
    with pytest.raises(InputError, match="renamed.png is a photograph of OpenBurst, on which models are scored"):
        open_data(PLAIN, [str(tmp_path)], None, tmp_path, CPU, Processes())


def test_folders_by_pattern_and_validation_beside_them(tmp_path, caplog):
    for name in ("train-0", "train-1", "val", "other/train-2"):
        (tmp_path / name).mkdir(parents=True)
    train, val = data_folders(RECIPE, [str(tmp_path / "train-*")], None, tmp_path)
    assert [path.name for path in train] == ["train-0", "train-1"] and [path.name for path in val] == ["val"]
    train, val = data_folders(RECIPE, [str(tmp_path / "other" / "train-2")], None, tmp_path)
    assert val == train and "validating on photographs that are trained on" in caplog.text


@pytest.mark.parametrize(
    ("data", "val", "warned"),
    [("train-*", None, False), ("*", None, True), ("val", None, True), ("train-0", "copies", True),
     ("train-0", "train-0/kept", True), (".", "val", True), ("train-0", "train-1", False)],
)  # fmt: skip
def test_validation_photographs_among_the_training_ones(tmp_path, caplog, data, val, warned):
    """Known by what they show, wherever they lie."""
    for place, seed in (
        ("train-0/a", 0),
        ("train-1/b", 1),
        ("val/c", 2),
        ("copies/renamed", 0),
        ("train-0/kept/d", 3),
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (256, 256, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{place}.png")
    open_data(PLAIN, [str(tmp_path / data)], val and str(tmp_path / val), tmp_path, CPU, Processes())
    assert ("photograph(s) validate and are trained on, such as" in caplog.text) == warned


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.synthesis.pipeline=synburst", "targets lie corner, and model.centres is half-pixel; --set model.cent"),
        ("model.centres=corner", "targets lie half-pixel, and model.centres is corner; --set model.centres=half-pixel"),
        ("model.scale=2", "this data is for ×4, and model.scale is 2; --set model.scale=4"),
        ("phases.patch=17", "need an even complete.patch of at least 8 pixels, got 17"),
        ("validation.patch=3", "need an even validation.patch of at least 8 pixels, got 3"),
    ],
)
def test_data_that_does_not_fit_is_refused_at_the_start(tmp_path, setting, message):
    with pytest.raises(InputError, match=message):
        open_data(override(load_recipe("tiny"), [setting]), [], None, tmp_path, CPU, Processes())
    assert not list(tmp_path.iterdir())


def test_leaves_grow_with_the_validation_of_a_resumed_run(tmp_path):
    """Those that are trained on stay as they are: validation does not decide the weights."""
    recipes = [override(load_recipe("tiny"), [f"validation.patch={patch}"]) for patch in (32, 64)]
    (small, *_), (large, *_) = (data_folders(recipe, [], None, tmp_path) for recipe in recipes)
    assert small == large
    sizes = {name: Image.open(tmp_path / "leaves" / name / "leaves-00.png").width for name in ("train", "val")}
    assert sizes == {"train": 256, "val": recipes[1].data.synthesis.source_size(64)}


REALBSR = override(
    load_recipe("paper-realbsr-rgb"),
    ["phases.batch=2", "phases.patch=8", "data.correspondence=identity", "validation.patch=12"],
)


def write_realbsr(root, **splits):
    """A few bursts in the benchmark's own layout: how many for each split."""
    rng = np.random.default_rng(0)
    for split, count in splits.items():
        for number in range(count):
            folder = root / split / f"{number:03d}_0001"
            folder.mkdir(parents=True)
            for frame in range(14):
                pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number:03d}_MFSR_Sony_0001_x1_{frame:02d}.png")
            truth = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(truth).save(folder / f"{number:03d}_MFSR_Sony_0001_x4.png")


def test_splits_of_realbsr_are_kept_apart(tmp_path, caplog):
    write_realbsr(tmp_path / "whole", train=2, test=1)
    write_realbsr(tmp_path / "scored", test=2)
    open_data(REALBSR, [str(tmp_path / "whole")], None, tmp_path, CPU, Processes())
    assert "trained on" not in caplog.text
    open_data(REALBSR, [str(tmp_path / "whole" / "train")], None, tmp_path, CPU, Processes())
    assert "validating on bursts that are trained on: give --val FOLDER" in caplog.text
    with pytest.raises(InputError, match="is of the test split, on which models are scored; --data expects a folder"):
        open_data(REALBSR, [str(tmp_path / "scored")], None, tmp_path, CPU, Processes())
    for setting, message in (("model.scale=2", "data is for ×4"), ("model.centres=corner", "targets lie half-pixel")):
        with pytest.raises(InputError, match=message):
            open_data(override(REALBSR, [setting]), [str(tmp_path / "whole")], None, tmp_path, CPU, Processes())


def test_realbsr_folders_end_to_end(tmp_path):
    """The paper's recipe on a few bursts in the benchmark's own layout: batches, maps, validation bursts."""
    write_realbsr(tmp_path / "data", train=3, test=2)
    recipe = REALBSR
    source, validation = open_data(recipe, [str(tmp_path / "data")], None, tmp_path, CPU, Processes())
    single, burst = source.batch(0, recipe.phases[0], 1), source.batch(1, recipe.phases[1], 14)
    assert single.frames.shape == (2, 1, 3, 8, 8) and burst.frames.shape == (2, 14, 3, 8, 8)
    assert burst.target.shape == (2, 3, 32, 32) and burst.correspondence.to_frame.shape == (2, 14, 2, 8, 8)
    assert validation.sample.frames.shape == (2, 14, 3, 12, 12)
