"""`burstmamba ablate`: train and score the rows of the paper's tables under one budget."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from burstmamba.evaluation.ablation import AblationTable
    from burstmamba.evaluation.reconstruct import Method
    from burstmamba.evaluation.scores import ScoreBook


def ablate(
    table: Annotated[str, typer.Argument(help="components, alignment, length, split, use, or all.")],
    benchmark: Annotated[Path, typer.Option(help="OpenBurst's photographs, or OpenBurst as written.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs, scores and tables.")] = Path("ablation"),
    data: Annotated[list[str] | None, typer.Option(help="Training photographs; may be repeated.")] = None,
    val: Annotated[str | None, typer.Option(help="Validation photographs.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of every row, instead of the recipe's.")] = None,
    seeds: Annotated[str, typer.Option(help="Comma-separated; every row is trained with each.")] = "0",
    only: Annotated[str, typer.Option(help="Train only these recipes now, comma-separated.")] = "",
    subset: Annotated[str, typer.Option(help="OpenBurst's subsets to score, comma-separated.")] = "still",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N bursts of each subset.")] = None,
    train: Annotated[bool, typer.Option(help="Train rows that have no weights yet.")] = True,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting for every row: key=value.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda; by default the best there is.")] = "",
) -> None:
    """Train what is missing with equal steps and seeds, score it on OpenBurst, and print the paper's tables.

    Weights in OUT/runs and scores in OUT/scores are used again, so a table can be made in several sittings.
    """
    from burstmamba.checkpoint import write_atomically
    from burstmamba.cli.evaluate import default_device, names
    from burstmamba.errors import InputError
    from burstmamba.evaluation.ablation import TABLES, ablation_table
    from burstmamba.evaluation.ablation_report import collect, markdown, save_results

    tables = list(TABLES.values()) if table == "all" else [ablation_table(table)]
    wanted = names(only) or list(dict.fromkeys(recipe for chosen in tables for recipe in chosen.recipes))
    known = {recipe for chosen in TABLES.values() for recipe in chosen.recipes}
    if unknown := [recipe for recipe in wanted if recipe not in known]:
        raise InputError(f"no table uses the recipe {unknown[0]!r}; --only knows {', '.join(sorted(known))}.")
    device = device or default_device()
    settings = [*(set_ or []), *([f"phases.steps={steps}"] if steps else [])]
    books: dict[int, dict[str, ScoreBook]] = {}
    for seed in map(int, names(seeds)):
        for recipe in wanted:
            folder = out / "runs" / f"{recipe}-s{seed}"
            if train and not is_trained(recipe, folder, settings):
                run_training(recipe, folder, data or [], val, [*settings, f"seed={seed}"], device)
        every = dict.fromkeys(recipe for chosen in tables for recipe in chosen.recipes)
        books[seed] = {
            recipe: score_recipe(recipe, seed, tables, benchmark, out, names(subset), limit, device)
            for recipe in every
            if (out / "runs" / f"{recipe}-s{seed}" / "weights.safetensors").is_file()
        }
    for chosen in tables:
        results = [collect(chosen, books[seed], name, seed) for seed in books for name in names(subset)]
        text = markdown(chosen, results)
        save_results(out / f"{chosen.name}.json", results)
        write_atomically(out / f"{chosen.name}.md", text.encode())
        Console(soft_wrap=True).print(text, markup=False, highlight=False)


def is_trained(recipe: str, folder: Path, settings: list[str]) -> bool:
    """Whether the row's weights exist and had all their steps; an interrupted run has weights, too."""
    from burstmamba.checkpoint import read_checkpoint
    from burstmamba.training.overrides import load_recipe, override

    weights = folder / "weights.safetensors"
    steps = override(load_recipe(recipe), settings).steps
    return weights.is_file() and int(read_checkpoint(weights).notes.get("steps", 0)) >= steps


def run_training(recipe: str, folder: Path, data: list[str], val: str | None, settings: list[str], device: str) -> None:
    """Train one row in a process of its own, so that its memory and graphs are gone afterwards."""
    from burstmamba.errors import InputError

    command = [
        sys.executable,
        "-m",
        "burstmamba",
        "train",
        recipe,
        "--out",
        str(folder),
        "--resume",
        "--device",
        device,
    ]
    for pattern in data:
        command += ["--data", pattern]
    if val:
        command += ["--val", val]
    for setting in settings:
        command += ["--set", setting]
    Console(stderr=True, soft_wrap=True).print(" ".join(command[2:]), markup=False, highlight=False)
    if subprocess.run(command).returncode != 0:
        raise InputError(f"training {recipe} did not finish; its messages are above, and --resume goes on in {folder}.")


def methods_of(recipe: str, tables: list[AblationTable]) -> list[Method]:
    """Every way in which some table scores this recipe's weights, once."""
    methods = {row.method.label: row.method for chosen in tables for row in chosen.rows if row.recipe == recipe}
    return list(methods.values())


def score_recipe(
    recipe: str,
    seed: int,
    tables: list[AblationTable],
    benchmark: Path,
    out: Path,
    subsets: list[str],
    limit: int | None,
    device: str,
) -> ScoreBook:
    """Score one row's weights on OpenBurst; what is scored already stays."""
    from burstmamba.checkpoint import load_model
    from burstmamba.cli.evaluate import progress_display
    from burstmamba.evaluation.catalogue import open_benchmark
    from burstmamba.evaluation.evaluate import Evaluation
    from burstmamba.evaluation.provenance import provenance

    weights = out / "runs" / f"{recipe}-s{seed}" / "weights.safetensors"
    chosen = open_benchmark(benchmark).select(subsets, limit)
    with progress_display() as progress:
        evaluation = Evaluation(
            chosen,
            methods_of(recipe, tables),
            out / "scores" / f"{recipe}-s{seed}",
            model=load_model(weights, device),
            device=device,
            cache=out / "maps",
            progress=progress,
        )
        return evaluation.run({"benchmark": chosen.name, "recipe": recipe, **provenance(device, weights)})
