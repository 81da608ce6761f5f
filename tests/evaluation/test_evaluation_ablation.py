"""The paper's tables as data, and what is concluded from scores."""

import json
from dataclasses import replace

import pytest
import torch
from test_evaluation_baselines import SHIFTS, detailed_scene, take_burst

from burstmamba.checkpoint import save_checkpoint
from burstmamba.cli.ablate import ablate, methods_of, steps_taken
from burstmamba.data.folders import write_burst
from burstmamba.data.sample import Sample
from burstmamba.errors import InputError
from burstmamba.evaluation.ablation import TABLES, Order, ablation_table
from burstmamba.evaluation.ablation_report import collect, load_results, markdown, save_results, verdict
from burstmamba.evaluation.alignment_cache import AlignedBurst
from burstmamba.evaluation.bootstrap import Interval
from burstmamba.evaluation.reconstruct import frames_and_maps
from burstmamba.evaluation.scores import Score, ScoreBook
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset
from burstmamba.training.overrides import load_recipe, recipe_names
from burstmamba.training.source import treat_maps


def book(values, method, steps="8000"):
    made = ScoreBook({"weights_steps": steps, "commit": "abc", "hardware": "H200", "date": "monday"})
    for index, value in enumerate(values):
        made.add(Score("still", f"{index:02d}", method, "openburst", value, value / 40))
    return made


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_tables_are_sound(table):
    labels = [row.label for row in table.rows]
    assert len(set(labels)) == len(labels)
    assert set(table.recipes) <= set(recipe_names())
    for order in table.orders:
        low, high = table.row(order.lower), table.row(order.higher)
        if low.paper and high.paper:
            assert low.paper[0] < high.paper[0]


def test_rows_of_one_recipe_share_a_run():
    methods = [method.label for method in methods_of("ablation-psi", list(TABLES.values()))]
    assert {"L=1", "L=2", "L=5", "L=10", "L=14", "L=14 copies", "L=14 exact"} <= set(methods)
    assert len(set(methods)) == len(methods)


@pytest.fixture(scope="module")
def sample():
    """14 frames moved by quarters of a pixel, with maps that are trusted here more, there less."""
    shifts = [*SHIFTS, *((y, -x) for x, y in SHIFTS[1:7])]
    frames, maps, target = take_burst(detailed_scene(4 * 12 + 32), 12, shifts)
    return Sample(frames, target, replace(maps, confidence=torch.rand(1, 14, 1, 12, 12)))


def scored_as(row, sample):
    """What a row's network is given of a burst when it is scored."""
    every = AlignedBurst(list(range(sample.frames.shape[1])), sample.correspondence)
    return frames_and_maps(sample, row.method, lambda name: every)


PAPERS = [(table.name, row) for table in TABLES.values() if table.name != "use" for row in table.rows]


@pytest.mark.parametrize(("table", "row"), PAPERS, ids=[f"{table}: {row.label}" for table, row in PAPERS])
def test_rows_are_scored_as_they_are_trained(sample, table, row):
    """The same treatment of frames and maps; a slice of the frames where fewer are asked for."""
    recipe = load_recipe(row.recipe)
    trained = treat_maps(sample, recipe.data.maps)
    frames, maps = scored_as(row, sample)
    assert torch.equal(frames, trained.frames[:, : row.method.frames])
    assert bool(recipe.model.burst_channels) == (row.label != "single")
    if row.method.frames == 1:
        assert maps is None
        return
    for name in ("to_frame", "to_keyframe", "confidence"):
        wanted = getattr(trained.correspondence, name)[:, : row.method.frames]
        assert torch.equal(getattr(maps, name), wanted), name


def test_what_the_rows_see(sample):
    """Nothing aligned; warped frames; whole pixels; sub-pixel maps; a homography's: each in the row that says so."""
    table = ablation_table("alignment")
    seen = {row.label: scored_as(row, sample) for row in table.rows}
    given = sample.correspondence
    assert given.to_frame.any() and not torch.equal(given.to_frame, given.to_frame.round())
    for label in ("none", "pre-align"):
        assert not seen[label][1].to_frame.any() and not seen[label][1].to_keyframe.any()
    assert torch.equal(seen["none"][0], sample.frames)
    assert torch.equal(seen["pre-align"][0], given.gather(sample.frames))
    assert torch.equal(seen["integer GAS"][1].to_keyframe, given.to_keyframe.round())
    assert torch.equal(seen["GAS"][1].to_frame, given.to_frame)
    estimators = {row.label: row.method.correspondence for row in table.rows}
    assert estimators.pop("homography GAS") == "homography" and set(estimators.values()) == {"auto"}
    lengths = [row.method.frames for row in ablation_table("length").rows]
    assert lengths == [1, 2, 5, 10, 14] and len(ablation_table("length").recipes) == 1
    assert ablation_table("components").row("single").method.frames == 1


def test_the_papers_orders_are_all_asked_for():
    """single < burst without GAS < GAS ≤ ψS6; pre-align, integer < GAS; L; the split: each a line with its verdict."""
    wanted = {
        "components": ["single < burst, no GAS", "burst, no GAS < burst + GAS", "burst + GAS ≤ burst + GAS + ψS6"],
        "alignment": ["integer GAS < GAS", "pre-align < GAS"],
        "length": ["L=1 < L=2", "L=2 < L=5", "L=5 < L=10", "L=10 < L=14"],
        "split": ["50/50 < keyframe-centric"],
    }
    for name, orders in wanted.items():
        table = ablation_table(name)
        books = {recipe: ScoreBook({"weights_steps": "8000"}) for recipe in table.recipes}
        for rank, row in enumerate(sorted(table.rows, key=lambda row: row.paper)):
            for image in range(3):
                books[row.recipe].add(Score("still", str(image), row.method.label, "openburst", 30.0 + rank, 0.9))
        text = markdown(table, [collect(table, books, "still", 0)])
        for order in orders:
            line = next(line for line in text.splitlines() if line.startswith(f"| {order} |"))
            assert line.endswith("] | yes |"), line


def test_the_benchmark_is_named(tmp_path):
    table = ablation_table("components")
    own = book([30.0, 31.0], "L=1")
    own.header["benchmark"] = "openburst-like"
    result = collect(table, {"ablation-single": own}, "still", 0)
    save_results(tmp_path / "components.json", [result])
    assert load_results(tmp_path / "components.json", table) == [result]
    assert "openburst-like `still`, seed 0" in markdown(table, [result])


def test_unequal_steps_are_said():
    table = ablation_table("components")
    books = {"ablation-single": book([30.0, 31.0], "L=1"), "ablation-gas": book([30.0, 31.0], "L=14", steps="9000")}
    assert "not under one budget" in markdown(table, [collect(table, books, "still", 0)])
    books["ablation-gas"] = book([30.0, 31.0], "L=14")
    assert "not under one budget" not in markdown(table, [collect(table, books, "still", 0)])


def test_conclusions():
    table = ablation_table("components")
    books = {
        "ablation-single": book([30.0, 32.0, 28.0], "L=1"),
        "ablation-burst": book([30.5, 32.4, 28.6], "L=14 unaligned"),
        "ablation-gas": book([30.4, 32.3, 28.5], "L=14"),
    }
    result = collect(table, books, "still", 0)
    text = markdown(table, [result])
    assert "| single | 31.668 / 0.900 | 30.00 [28.00, 32.00] |" in text
    assert "| burst + GAS + ψS6 | 33.287 / 0.929 | not run |" in text
    assert "| single < burst, no GAS | +1.213 dB | +0.500 [+0.400, +0.600] | yes |" in text
    assert "| burst, no GAS < burst + GAS | +0.199 dB | -0.100 [-0.100, -0.100] | no, reversed |" in text
    assert "| burst + GAS ≤ burst + GAS + ψS6 | +0.207 dB | not run |" in text


def test_verdicts():
    unclear = Interval(0.01, -0.02, 0.04, 40)
    assert verdict(Order("a", "b"), unclear) == "undecided"
    assert verdict(Order("a", "b", strict=False), unclear) == "yes (no difference)"
    assert verdict(Order("a", "b"), Interval(0.1, 0.05, 0.2, 40)) == "yes"
    assert verdict(Order("a", "b", strict=False), Interval(-0.1, -0.2, -0.05, 40)) == "no, reversed"


def test_one_image_decides_nothing():
    """Its interval would have no width."""
    assert verdict(Order("a", "b"), Interval(0.001, 0.001, 0.001, 1)) == "too few images"
    table = ablation_table("components")
    books = {"ablation-single": book([30.0], "L=1"), "ablation-burst": book([30.001], "L=14 unaligned")}
    text = markdown(table, [collect(table, books, "still", 0)])
    assert "| single | 31.668 / 0.900 | 30.00 |" in text
    assert "| single < burst, no GAS | +1.213 dB | +0.001 | too few images |" in text


def test_results_survive_a_file(tmp_path):
    table = ablation_table("components")
    results = [collect(table, {"ablation-single": book([30.0, 31.0], "L=1")}, "still", 1)]
    save_results(tmp_path / "t.json", results)
    assert markdown(table, load_results(tmp_path / "t.json", table)) == markdown(table, results)
    with pytest.raises(InputError, match="is not a file of ablation results"):
        load_results(tmp_path / "missing.json", table)


def test_command_scores_what_is_trained(photographs, tmp_path):
    torch.manual_seed(0)
    weights = tmp_path / "runs/ablation-single-s0/weights.safetensors"
    save_checkpoint(weights, BurstMamba(preset("tiny").single()), notes={"steps": "7", "minutes": "0.1"})
    assert steps_taken(weights.parent) == 7 and steps_taken(tmp_path) == 0
    ablate("components", benchmark=photographs, out=tmp_path, train=False, device="cpu")
    text = (tmp_path / "components.md").read_text()
    assert "| burst, no GAS | 32.881 / 0.924 | not run |" in text and "| 2 | 7 | 0.1 |" in text
    stored = json.loads((tmp_path / "components.json").read_text())["ablation"]
    assert stored[0]["rows"][0]["label"] == "single" and len(stored[0]["rows"][0]["psnr"]) == 2


def test_rows_of_equal_weights_differ_by_their_maps(photographs, tmp_path):
    """The command gives every row of the alignment table its own maps."""
    torch.manual_seed(0)
    network, table = BurstMamba(preset("tiny")), ablation_table("alignment")
    for projection in network.burst.projections:
        torch.nn.init.normal_(projection.weight, std=0.05)
    for recipe in table.recipes:
        save_checkpoint(tmp_path / f"runs/{recipe}-s0/weights.safetensors", network, notes={"steps": "1"})
    ablate("alignment", benchmark=photographs, out=tmp_path, train=False, device="cpu")
    (result,) = load_results(tmp_path / "alignment.json", table)
    scores = {label: tuple(row.psnr.values()) for label, row in result.rows.items()}
    assert list(scores) == [row.label for row in table.rows]
    assert len({scores[label] for label in ("none", "pre-align", "integer GAS", "GAS")}) == 4
    assert {path.name.split("-")[0] for path in (tmp_path / "maps").iterdir()} == {"auto", "homography"}


def test_mistakes(photographs, tmp_path):
    with pytest.raises(InputError, match="unknown table 'speed'; the known ones are components, alignment, length"):
        ablate("speed", benchmark=photographs, out=tmp_path)
    with pytest.raises(InputError, match="no table uses the recipe 'open-rgb'"):
        ablate("split", benchmark=photographs, out=tmp_path, only="open-rgb")
    for seeds in ("one", ""):
        with pytest.raises(InputError, match=f"--seeds expects numbers such as 0,1, got '{seeds}'"):
            ablate("split", benchmark=photographs, out=tmp_path, seeds=seeds)


def test_exact_maps_are_missed_before_training(sample, tmp_path):
    write_burst(tmp_path / "still", "0001", replace(sample, correspondence=None))
    (tmp_path / "openburst.json").write_text('{"benchmark": "openburst"}')
    with pytest.raises(InputError, match="'use' needs exact maps, and the benchmark has none; write it with .* --maps"):
        ablate("all", benchmark=tmp_path, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()
