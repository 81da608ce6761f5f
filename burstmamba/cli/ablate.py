"""`burstmamba ablate`: train and score the rows of the paper's tables under one budget."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from burstmamba.cli.evaluate import names, progress_display, say

if TYPE_CHECKING:
    from burstmamba.evaluation.ablation import AblationTable
    from burstmamba.evaluation.alignment_cache import AlignmentCache
    from burstmamba.evaluation.benchmark import Benchmark
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
    score: Annotated[bool, typer.Option(help="Score the finished rows and write the tables.")] = True,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting for every row: key=value.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Train what is missing with equal steps and seeds, score it on OpenBurst, and print the paper's tables.

    Weights in OUT/runs and scores in OUT/scores are used again, so a table can be made in several sittings, and by
    several processes at once: started with the same command, each takes the next row that nobody trains.
    """
    from burstmamba.device import pick_device
    from burstmamba.errors import InputError
    from burstmamba.evaluation.ablation import TABLES, ablation_table
    from burstmamba.evaluation.catalogue import open_benchmark
    from burstmamba.evaluation.folder_lock import folder_lock

    tables = list(TABLES.values()) if table == "all" else [ablation_table(table)]
    every = list(dict.fromkeys(recipe for chosen in tables for recipe in chosen.recipes))
    wanted = names(only) or every
    known = {recipe for chosen in TABLES.values() for recipe in chosen.recipes}
    if unknown := [recipe for recipe in wanted if recipe not in known]:
        raise InputError(f"no table uses the recipe {unknown[0]!r}; --only knows {', '.join(sorted(known))}.")
    every_seed = seed_list(seeds)
    device = str(pick_device(device))
    bursts = open_benchmark(benchmark).select(names(subset), limit)  # a mistake is said before hours of training
    settings = [*(set_ or []), *([f"phases.steps={steps}"] if steps else [])]
    check_exact_maps(tables, bursts)
    runs = [(seed, recipe) for seed in every_seed for recipe in wanted]
    for seed, recipe in runs if train else []:
        train_row(recipe, run_folder(out, recipe, seed), data or [], val, settings, seed, device)
    if score:
        # One process at a time: the next one finds maps and scores, and tables are never replaced by older ones.
        with folder_lock(out, wait=True):
            score_tables(tables, every, every_seed, bursts, out, device)


def seed_list(text: str) -> list[int]:
    """The numbers of `--seeds`."""
    from burstmamba.errors import InputError

    if not names(text) or not all(part.isdecimal() for part in names(text)):
        raise InputError(f"--seeds expects numbers such as 0,1, got {text!r}.")
    return [int(part) for part in names(text)]


def check_exact_maps(tables: list[AblationTable], bursts: Benchmark) -> None:
    """Refuse a benchmark without exact maps where a row needs them."""
    from burstmamba.errors import InputError

    asking = [chosen.name for chosen in tables if any(row.method.correspondence == "exact" for row in chosen.rows)]
    if asking and bursts.items[0].load().exact is None:
        raise InputError(
            f"the table {asking[0]!r} needs exact maps, and the benchmark has none; "
            "write it with burstmamba openburst --maps, or give its photographs."
        )


def run_folder(out: Path, recipe: str, seed: int) -> Path:
    """Where a row is trained."""
    return out / "runs" / f"{recipe}-s{seed}"


def train_row(
    recipe: str, folder: Path, data: list[str], val: str | None, settings: list[str], seed: int, device: str
) -> None:
    """Train a row to its end, unless it is, or another process is at it."""
    from burstmamba.errors import InputError
    from burstmamba.evaluation.folder_lock import folder_lock
    from burstmamba.training.overrides import load_recipe, override

    settings = [*settings, f"seed={seed}"]
    wanted, made = override(load_recipe(recipe), settings), folder / "recipe.json"
    with folder_lock(folder, wait=False) as mine:
        if not mine:
            say(f"{recipe}, seed {seed}: another process trains it.")
            return
        taken = steps_taken(folder)
        begun = made.is_file() and (taken or any((folder / "checkpoints").glob("step-*.safetensors")))
        if begun and (setting := wanted.difference(made.read_text())):
            raise InputError(f"{folder} was trained with another {setting}; give the same settings or another --out.")
        if taken < wanted.steps:
            run_training(recipe, folder, data, val, settings, device)


def steps_taken(folder: Path) -> int:
    """Steps that a run's weights had; an interrupted run has weights, too. 0 without any."""
    from burstmamba.checkpoint import read_checkpoint

    weights = folder / "weights.safetensors"
    return int(read_checkpoint(weights).notes.get("steps", 0)) if weights.is_file() else 0


def steps_planned(folder: Path) -> int:
    """Steps that a run was started with; 0 where only its weights were kept."""
    recipe = folder / "recipe.json"
    return sum(phase["steps"] for phase in json.loads(recipe.read_text())["phases"]) if recipe.is_file() else 0


def run_training(recipe: str, folder: Path, data: list[str], val: str | None, settings: list[str], device: str) -> None:
    """Train one row in a process of its own, so that its memory and graphs are gone afterwards."""
    from burstmamba.errors import InputError

    command = [sys.executable, "-m", "burstmamba", "train", recipe, "--out", str(folder), "--resume"]
    command += ["--device", device]
    for pattern in data:
        command += ["--data", pattern]
    if val:
        command += ["--val", val]
    for setting in settings:
        command += ["--set", setting]
    say(" ".join(command[2:]))
    if (code := run_to_the_end(command)) != 0:
        raise InputError(f"training {recipe} stopped with code {code} in {folder}; the same command goes on there.")


def run_to_the_end(command: list[str]) -> int:
    """Run a training; who asks this process to stop asks that one, and it is waited for: it writes a checkpoint."""
    process = subprocess.Popen(command)
    # SIGTERM for both: a terminal has sent the training its Ctrl-C already, and a second one would cut it off.
    before = {
        number: signal.signal(number, lambda *_: process.terminate()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def score_tables(
    tables: list[AblationTable], recipes: list[str], seeds: list[int], bursts: Benchmark, out: Path, device: str
) -> None:
    """Score every finished run that the tables use; print and write the tables."""
    from burstmamba.checkpoint import write_atomically
    from burstmamba.evaluation.ablation_report import collect, markdown, save_results
    from burstmamba.evaluation.alignment_cache import AlignmentCache

    maps, books = AlignmentCache(out / "maps"), {}
    for seed, recipe in ((seed, recipe) for seed in seeds for recipe in recipes):
        taken, planned = (steps(run_folder(out, recipe, seed)) for steps in (steps_taken, steps_planned))
        if 0 < taken < planned:
            say(f"{recipe}, seed {seed}: {taken} of {planned} steps; scored when it is finished.")
        elif taken:
            books[seed, recipe] = score_run(recipe, seed, methods_of(recipe, tables), bursts, out, maps, device)
    for chosen in tables:
        results = []
        for seed in seeds:
            own = {recipe: books[seed, recipe] for recipe in recipes if (seed, recipe) in books}
            results += [collect(chosen, own, subset, seed) for subset in bursts.subsets]
        text = markdown(chosen, results)
        save_results(out / f"{chosen.name}.json", results)
        write_atomically(out / f"{chosen.name}.md", text.encode())
        Console(soft_wrap=True).print(text, markup=False, highlight=False)


def methods_of(recipe: str, tables: list[AblationTable]) -> list[Method]:
    """Every way in which some table scores this recipe's weights, once."""
    methods = {row.method.label: row.method for chosen in tables for row in chosen.rows if row.recipe == recipe}
    return list(methods.values())


def score_run(
    recipe: str, seed: int, methods: list[Method], bursts: Benchmark, out: Path, maps: AlignmentCache, device: str
) -> ScoreBook:
    """Score a run's weights; what is scored already stays, scores of the run's earlier weights do not."""
    from burstmamba.checkpoint import load_model
    from burstmamba.evaluation.evaluate import Evaluation
    from burstmamba.evaluation.provenance import provenance
    from burstmamba.evaluation.scores import ScoreBook

    weights, folder = run_folder(out, recipe, seed) / "weights.safetensors", out / "scores" / f"{recipe}-s{seed}"
    header = {"benchmark": bursts.name, "recipe": recipe, **provenance(device, weights)}
    old = folder / "scores.json"
    if old.is_file() and ScoreBook.load(old).header.get("weights_sha256") != header["weights_sha256"]:
        old.unlink()
    with progress_display() as progress:
        evaluation = Evaluation(
            bursts, methods, folder, model=load_model(weights, device), device=device, cache=maps, progress=progress
        )
        book = evaluation.run(header)
    for name, reason in book.problems.items():
        say(f"not scored: {recipe}, seed {seed}, {name}: {reason}")
    return book
