"""`burstmamba evaluate`: score a network and its baselines on a benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from burstmamba.memory import keep_freed_memory

if TYPE_CHECKING:
    from burstmamba.evaluation.reconstruct import Method
    from burstmamba.evaluation.scores import ScoreBook


def evaluate(
    weights: Annotated[str, typer.Argument(help="A shipped model, a .safetensors file, or `none`: baselines alone.")],
    dataset: Annotated[str, typer.Argument(help="Folder of a benchmark, or `charts` for MTF50 and the Siemens star.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for scores; a second run goes on there.")] = Path(
        "scores"
    ),
    burst_length: Annotated[str, typer.Option(help="Frames given to the network, comma-separated.")] = "1,2,5,10,14",
    correspondence: Annotated[
        str,
        typer.Option(help="auto, homography, dense, raft-small, raft-large, identity, exact, given; comma-separated."),
    ] = "auto",
    treatment: Annotated[
        str,
        typer.Option(help="none, unaligned, rounded, prealigned, copies, others, shuffle, reverse; comma-separated."),
    ] = "none",
    baselines: Annotated[str, typer.Option(help="bicubic, nearest, classical; comma-separated, or none.")] = "bicubic",
    outputs: Annotated[
        list[Path] | None, typer.Option(help="Folder of another method's pictures, NAME.png; may be repeated.")
    ] = None,
    swapped_outputs: Annotated[
        bool,
        typer.Option("--swapped-outputs", help="Their files have red and blue exchanged, as DBSR's scripts write."),
    ] = False,
    subset: Annotated[str, typer.Option(help="Only these subsets, comma-separated.")] = "",
    layout: Annotated[
        str,
        typer.Option(
            help="Where it cannot be told: photographs, openburst, bursts, synburst, realbsr-rgb, …-raw, burstsr."
        ),
    ] = "",
    protocol: Annotated[str, typer.Option(help="Other protocols than the benchmark's own, comma-separated.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N bursts of each subset.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out bursts that cannot be read.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that estimate maps.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder for estimated maps, shared by several runs.")] = None,
    images: Annotated[Path | None, typer.Option(help="Also write every picture below this folder.")] = None,
    lpips: Annotated[bool | None, typer.Option(help="Also LPIPS; by default if its files are there.")] = None,
    lpips_backbone: Annotated[Path | None, typer.Option(help="AlexNet's weights.")] = None,
    lpips_heads: Annotated[Path | None, typer.Option(help="LPIPS's linear heads, alex.pth.")] = None,
) -> None:
    """Score a network on a benchmark under its own protocol, with baselines in the same run."""
    from burstmamba.device import pick_device
    from burstmamba.errors import InputError
    from burstmamba.evaluation.alignment_cache import AlignmentCache, default_workers
    from burstmamba.evaluation.catalogue import RAW_SUBSETS, RGB_SUBSETS, open_benchmark
    from burstmamba.evaluation.evaluate import Evaluation
    from burstmamba.evaluation.folder_lock import folder_lock
    from burstmamba.evaluation.provenance import provenance
    from burstmamba.folders import make_folder

    device = str(pick_device(device))
    if device == "cpu":
        keep_freed_memory()
    model, file = open_weights(weights, device)
    if model is not None and not model.config.burst_channels:
        say("a network without a burst stream: only L=1 is scored, further frames would change nothing.")
        burst_length = "1"
    methods = list_methods(model is not None, burst_length, correspondence, treatment, baselines, outputs or [])
    if dataset == "charts":
        check_charts(model, outputs or [])
        print_charts(methods, model, device, out, provenance(device, file))
        return
    mosaics = None if model is None else model.config.in_channels == 1
    longest = max((method.frames for method in methods), default=1)
    foreign = () if mosaics is None else RGB_SUBSETS if mosaics else RAW_SUBSETS
    for name in names(subset):
        if name in foreign:
            takes, holds = ("RAW mosaics", "RGB frames") if mosaics else ("RGB frames", "RAW mosaics")
            raise InputError(f"{weights} takes {takes} and the subset {name} holds {holds}; leave it out.")
    benchmark = open_benchmark(Path(dataset), layout, mosaics=mosaics, frames=longest)
    benchmark = benchmark.select(names(subset) or None, limit)
    workers = workers or default_workers()
    if skip_bad:
        benchmark = benchmark.readable(lambda reason: say(f"left out: {reason}"), workers)
    for name in [] if model is None else benchmark.moved(model.config.centres):
        say(f"{name}: the network's pixel centres are not the targets'; its pictures are moved by 1.5 pixels.")
    if protocol:
        benchmark = benchmark.with_protocols(names(protocol))
    if images is not None:
        make_folder(images)
    metric = open_lpips(lpips, lpips_backbone, lpips_heads, device)
    with folder_lock(out, wait=False) as mine, progress_display() as progress:
        if not mine:
            raise InputError(f"another process is scoring in {out}; wait for it, or choose another folder with --out.")
        evaluation = Evaluation(
            benchmark, methods, out, model=model, lpips=metric, device=device, workers=workers,
            cache=AlignmentCache(cache) if cache else None, images=images, progress=progress,
            swapped_outputs=swapped_outputs,
        )  # fmt: skip
        book = evaluation.run({"benchmark": benchmark.name, **provenance(device, file)})
    print_book(book)
    Console(soft_wrap=True).print(f"scores: {out / 'scores.json'}, {out / 'scores.csv'}", highlight=False)
    if book.problems:
        for name, reason in book.problems.items():
            say(f"not scored: {name}: {reason}")
        raise typer.Exit(1)


def say(text: str) -> None:
    """A line beside the results."""
    Console(stderr=True, soft_wrap=True).print(text, markup=False, highlight=False)


def names(text: str) -> list[str]:
    """The parts of a comma-separated list; `none` and nothing are the empty list."""
    return [part.strip() for part in text.split(",") if part.strip() not in ("", "none")]


def list_methods(
    has_model: bool, lengths: str, correspondence: str, treatment: str, baselines: str, outputs: list[Path]
) -> list[Method]:
    """The rows of the table, baselines first."""
    from burstmamba.errors import InputError
    from burstmamba.evaluation.reconstruct import Method

    try:
        frames = [int(part) for part in names(lengths)]
    except ValueError:
        raise InputError(f"--burst-length expects numbers such as 1,2,5,10,14, got {lengths!r}.") from None
    longest, estimators = max(frames, default=1), names(correspondence) or ["auto"]
    methods = []
    for name in names(baselines):
        if name not in ("bicubic", "nearest", "classical"):
            raise InputError(f"--baselines knows bicubic, nearest and classical, got {name!r}.")
        methods.append(Method(name, longest, estimators[0]) if name == "classical" else Method(name))
    for folder in outputs:
        if not folder.is_dir():
            raise InputError(f"--outputs expects a folder of pictures, {folder} is none.")
        methods.append(Method("outputs", folder=folder))
    if has_model:
        treatments = [part.strip() for part in treatment.split(",")]
        rows = [Method("network", n, c, t) for c in estimators for t in treatments for n in frames]
        methods += {method.label: method for method in rows}.values()
    labels = [method.label for method in methods]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise InputError(f"two rows would be called {twice[0]!r}; rename the folder of --outputs.")
    if not methods:
        raise InputError("nothing to score: give weights, --baselines or --outputs.")
    return methods


def open_weights(name: str, device: str):
    """The model and its file; (None, None) for `none`."""
    if name == "none":
        return None, None
    from burstmamba.checkpoint import find_weights, load_checkpoint

    file = find_weights(name)
    return load_checkpoint(file, device), file


def open_lpips(wanted: bool | None, backbone: Path | None, heads: Path | None, device: str):
    """The LPIPS network, or None with a line that says why."""
    from burstmamba.evaluation.lpips import load_lpips, lpips_available

    asked = wanted or (wanted is None and (backbone is not None or heads is not None))
    if asked or (wanted is None and lpips_available()):
        return load_lpips(backbone, heads, device)
    if wanted is None:
        say("LPIPS left out: its weights are not installed (--lpips says what is missing).")
    return None


def progress_display():
    """A progress bar on stderr for (stage, done, total) reports."""
    from contextlib import contextmanager

    from rich.progress import MofNCompleteColumn, Progress, TaskID, TimeRemainingColumn

    @contextmanager
    def display():
        with Progress(*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn(),
                      console=Console(stderr=True), transient=True) as bar:  # fmt: skip
            tasks: dict[str, TaskID] = {}

            def show(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bar.add_task(stage, total=total)
                bar.update(tasks[stage], completed=done)

            yield show

    return display()


def print_book(book: ScoreBook) -> None:
    """A table of means with their 95 % intervals."""
    from burstmamba.evaluation.scores import summaries

    table = Table("subset", "protocol", "method", "images", "PSNR (dB)", "SSIM", "LPIPS", "s / burst", "frames")
    for row in summaries(book):
        table.add_row(*row.cells())
    Console(width=None if Console().is_terminal else 140).print(table)


def check_charts(model, outputs: list[Path]) -> None:
    """Refuse what charts cannot measure."""
    from burstmamba.errors import InputError

    if outputs:
        raise InputError("charts are rendered here, so --outputs has no pictures of them; leave it out.")
    if model is not None and model.config.in_channels != 3:
        raise InputError("charts are taken as RGB bursts, and this network takes mosaics; give an RGB network.")


def print_charts(methods: list[Method], model, device: str, out: Path, header: dict[str, str]) -> None:
    """Resolution of each method on rendered charts, as a table and as charts.json."""
    from dataclasses import asdict

    from burstmamba.checkpoint import write_atomically
    from burstmamba.evaluation.charts import ideal_charts, measure_charts
    from burstmamba.folders import make_folder

    make_folder(out)
    with progress_display() as progress:
        results = measure_charts(methods, cache=out / "maps", model=model, device=device, progress=progress)
    results.append(ideal_charts())
    table = Table("method", "MTF50 (cycles / HR pixel)", "Siemens star, 10 % (cycles / HR pixel)")
    for result in results:
        table.add_row(result.method, f"{result.mtf50:.3f}", f"{result.star_limit:.3f}")
    Console().print(table)
    content = {"header": {"benchmark": "charts", **header}, "charts": [asdict(result) for result in results]}
    write_atomically(out / "charts.json", (json.dumps(content, indent=1) + "\n").encode())
    Console(soft_wrap=True).print(f"charts: {out / 'charts.json'}", highlight=False)
