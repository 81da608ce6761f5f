"""The paper's tables as data, and what is concluded from scores."""

import json

import pytest
import torch
from test_evaluation_command import photographs  # noqa: F401 (a fixture)

from burstmamba.checkpoint import save_checkpoint
from burstmamba.cli.ablate import ablate, methods_of, steps_taken
from burstmamba.errors import InputError
from burstmamba.evaluation.ablation import TABLES, Order, ablation_table
from burstmamba.evaluation.ablation_report import collect, load_results, markdown, save_results, verdict
from burstmamba.evaluation.bootstrap import Interval
from burstmamba.evaluation.scores import Score, ScoreBook
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset


def book(values, method, steps="8000"):
    made = ScoreBook({"weights_steps": steps, "commit": "abc", "hardware": "H200"})
    for index, value in enumerate(values):
        made.add(Score("still", f"{index:02d}", method, "openburst", value, value / 40))
    return made


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_tables_are_sound(table):
    from burstmamba.training.overrides import recipe_names

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


def test_results_survive_a_file(tmp_path):
    table = ablation_table("components")
    results = [collect(table, {"ablation-single": book([30.0, 31.0], "L=1")}, "still", 1)]
    save_results(tmp_path / "t.json", results)
    assert markdown(table, load_results(tmp_path / "t.json", table)) == markdown(table, results)
    with pytest.raises(InputError, match="is not a file of ablation results"):
        load_results(tmp_path / "missing.json", table)


def test_command_scores_what_is_trained(photographs, tmp_path):  # noqa: F811 (the fixture)
    torch.manual_seed(0)
    weights = tmp_path / "runs/ablation-single-s0/weights.safetensors"
    save_checkpoint(weights, BurstMamba(preset("tiny").single()), notes={"steps": "7"})
    assert steps_taken(weights.parent) == 7 and steps_taken(tmp_path) == 0
    ablate("components", benchmark=photographs, out=tmp_path, train=False, device="cpu")
    text = (tmp_path / "components.md").read_text()
    assert "| burst, no GAS | 32.881 / 0.924 | not run |" in text and "| 2 | 7 |" in text
    stored = json.loads((tmp_path / "components.json").read_text())["ablation"]
    assert stored[0]["rows"][0]["label"] == "single" and len(stored[0]["rows"][0]["psnr"]) == 2


def test_mistakes(photographs, tmp_path):  # noqa: F811 (the fixture)
    with pytest.raises(InputError, match="unknown table 'speed'; the known ones are components, alignment, length"):
        ablate("speed", benchmark=photographs, out=tmp_path)
    with pytest.raises(InputError, match="no table uses the recipe 'open-rgb'"):
        ablate("split", benchmark=photographs, out=tmp_path, only="open-rgb")
