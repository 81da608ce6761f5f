"""From folders to batches: opening a recipe's data and the bursts that validate it."""

from __future__ import annotations

import glob
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from burstmamba.data.datasets import BurstDataset, open_dataset
from burstmamba.data.openburst_photographs import PHOTOGRAPHS, digest
from burstmamba.data.photographs import Album, PhotographBank, find_photographs
from burstmamba.data.sample import Sample
from burstmamba.device import pick_device
from burstmamba.errors import InputError
from burstmamba.memory import keep_freed_memory
from burstmamba.model.config import ModelConfig
from burstmamba.synthesis import SCALE, synthesize_burst
from burstmamba.training.chance import seed_of
from burstmamba.training.leaves import write_leaves
from burstmamba.training.processes import Processes, join, leave
from burstmamba.training.recipe import BurstFolders, Photographs, Recipe
from burstmamba.training.recorded import RecordedSource, validation_sample
from burstmamba.training.run import Listener, Run, RunOptions
from burstmamba.training.source import PhotographSource, Source, treat_maps
from burstmamba.training.trainer import Summary, train
from burstmamba.training.validation import ValidationSet

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK = 4  # validation bursts synthesised at a time


def find_folders(patterns: list[str], option: str) -> list[Path]:
    """Folders named one by one or by patterns such as `photos/train-*`; `option` is where they were given."""
    found = []
    for pattern in patterns:
        matches = sorted(Path(match) for match in glob.glob(pattern)) or [Path(pattern)]
        missing = [path for path in matches if not path.exists()]
        if missing:
            raise InputError(f"no folder {missing[0]}; {option} expects a folder of photographs.")
        found += matches
    return found


def data_folders(recipe: Recipe, data: list[str], val: str | None, out: Path) -> tuple[list[Path], list[Path]]:
    """Where the photographs are: as asked, or drawn leaves where the recipe allows it.

    Returns:
        Folders of training photographs, folders of validation photographs.
    """
    assert isinstance(recipe.data, Photographs)
    if not data:
        if not recipe.data.leaves:
            raise InputError("this recipe needs photographs: give --data FOLDER.")
        size = recipe.data.synthesis.source_size(max(recipe.validation.patch, *(p.patch for p in recipe.phases)))
        train = write_leaves(out / "leaves" / "train", 12, max(size, 256), recipe.seed)
        least = recipe.data.synthesis.source_size(recipe.validation.patch)  # a run that is resumed may ask for more
        held = write_leaves(out / "leaves" / "val", 4, max(size, 256), recipe.seed + 1, least=least)
        return [train], [held]
    folders = find_folders(data, "--data")
    beside = folders[0].parent / "val"
    if val is not None:
        held = find_folders([val], "--val")
    elif beside.is_dir():
        logger.info("validating on %s", beside)
        held = [beside]
    else:
        logger.warning("no --val folder: validating on photographs that are trained on")
        return folders, folders
    return folders, held


def in_background(make: Callable[[], T]) -> Callable[[], T]:
    """Start making something in a thread; returns a function that waits for it and raises what went wrong."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # raised again by whoever waits
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future.result


def photographs_by_digest(folders: list[Path]) -> dict[str, Path]:
    """What lies in the folders, whatever it is called; what models are scored on is refused, copied there or not."""
    found = {digest(path): path for folder in folders for path in find_photographs(folder)}
    for same in found.keys() & set(PHOTOGRAPHS.values()):
        raise InputError(f"{found[same]} is a photograph of OpenBurst, on which models are scored; leave it out.")
    return found


def check_grid(model: ModelConfig, scale: int, centres: str) -> None:
    """Refuse targets that are not on the grid of the network's output."""
    if model.scale != scale:
        raise InputError(f"this data is for ×{scale}, and model.scale is {model.scale}; --set model.scale={scale}.")
    if model.centres != centres:
        raise InputError(
            f"the pixels of this data's targets lie {centres}, and model.centres is {model.centres}; "
            f"--set model.centres={centres}."
        )


def check_patches(recipe: Recipe) -> None:
    """Refuse sizes that no burst of a photograph has, now and not at the first batch or validation."""
    patches = {f"{phase.name}.patch": phase.patch for phase in recipe.phases}
    for name, patch in (patches | {"validation.patch": recipe.validation.patch}).items():
        if patch < 8 or patch % 2:
            raise InputError(f"bursts of photographs need an even {name} of at least 8 pixels, got {patch}.")


def open_photographs(
    recipe: Recipe,
    train: list[Path],
    val: list[Path],
    device: torch.device,
    processes: Processes,
    *,
    graphs: bool | None = None,
) -> tuple[Source, ValidationSet | None]:
    """Batches and validation bursts synthesised from photographs.

    On a GPU the photographs are decoded while the step is compiled: the first batch waits for all of them. The
    validation crops and bursts are the same on every device and in every run.
    """
    assert isinstance(recipe.data, Photographs)
    data, synthesis, wanted = recipe.data, recipe.data.synthesis, recipe.validation
    smallest = max(synthesis.source_size(phase.patch) for phase in recipe.phases)
    held_size = synthesis.source_size(wanted.patch)
    # Now, not after the compilation; so are folders without any.
    ours = photographs_by_digest(train)
    if val is not train:  # that was said already
        theirs = photographs_by_digest(val)
        if twice := ours.keys() & theirs.keys():
            logger.warning("%d photograph(s) validate and are trained on, such as %s", len(twice), theirs[min(twice)])

    album = in_background(lambda: Album.read(train, smallest=smallest, skip_bad=True))
    held = in_background(lambda: Album.read(val, smallest=held_size, skip_bad=True) if processes.first else None)

    def bank() -> PhotographBank:
        held()  # what is wrong with the validation photographs is said now, too
        found = PhotographBank(album(), device)
        logger.info("%d photographs, %.0f megapixels", len(found), found.pixels.shape[0] / 1e6)
        return found

    def held_bursts() -> Sample:
        photographs = held()
        assert photographs is not None
        generator = torch.Generator().manual_seed(seed_of("validation"))
        crops = PhotographBank(photographs, device).sample(wanted.bursts, held_size, generator, turn=False)
        longer = replace(synthesis, frames=wanted.frames)
        samples = [synthesize_burst(part, longer, generator) for part in crops.split(CHUNK)]
        return treat_maps(Sample.collate(samples), data.maps)

    source = PhotographSource(bank, data, recipe.seed, processes, device, graphs=graphs)
    if device.type == "cpu":
        _ = album(), held()  # nothing is compiled there: what cannot be read is said before anything is written
    return source, ValidationSet(held_bursts, recipe.model) if processes.first else None


def open_recorded(
    recipe: Recipe, root: Path, val: Path, out: Path, device: torch.device, processes: Processes
) -> tuple[Source, ValidationSet | None]:
    """Batches and validation bursts of a benchmark's own folders."""
    assert isinstance(recipe.data, BurstFolders)
    dataset = open_dataset(recipe.data.layout, root, split="train")
    refuse_test_bursts(dataset, root)
    source = RecordedSource(dataset, recipe.data, recipe.seed, device, cache=out / "maps", processes=processes)
    if not processes.first:
        return source, None
    wanted = recipe.validation
    held = open_dataset(recipe.data.layout, val, split="test")
    if {folder.resolve() for folder in held.folders} & {folder.resolve() for folder in dataset.folders}:
        logger.warning("validating on bursts that are trained on: give --val FOLDER, or --data with train/ and test/")
    sample = validation_sample(held, source, wanted.bursts, wanted.patch, wanted.frames).to(device)
    check_grid(recipe.model, sample.scale, sample.centres)
    return source, ValidationSet(treat_maps(sample, recipe.data.maps), recipe.model)


def refuse_test_bursts(dataset: BurstDataset, root: Path) -> None:
    """A folder without `train` is searched as a whole, and may hold what models are scored on."""
    for folder in dataset.folders:
        if {"test", "testpatch"} & set(folder.relative_to(root).parts):
            raise InputError(
                f"{folder} is of the test split, on which models are scored; --data expects a folder with train/."
            )


def open_data(
    recipe: Recipe,
    data: list[str],
    val: str | None,
    out: Path,
    device: torch.device,
    processes: Processes,
    *,
    graphs: bool | None = None,
) -> tuple[Source, ValidationSet | None]:
    """The recipe's batches, and in the first process the bursts that validate it.

    `graphs` is as in `PhotographSource`.
    """
    for phase in recipe.phases:
        processes.share(phase.batch)
    if isinstance(recipe.data, BurstFolders):
        if len(data) != 1:
            raise InputError(f"this recipe needs --data FOLDER, where {recipe.data.layout} was unpacked.")
        root = Path(data[0])
        return open_recorded(recipe, root, Path(val) if val else root, out, device, processes)
    check_grid(recipe.model, SCALE, recipe.data.synthesis.centres)
    check_patches(recipe)
    return open_photographs(recipe, *data_folders(recipe, data, val, out), device, processes, graphs=graphs)


def run_recipe(
    recipe: Recipe,
    options: RunOptions,
    data: list[str],
    val: str | None = None,
    device: str = "auto",
    *,
    started: float | None = None,
    listener: Listener | None = None,
) -> Summary:
    """Train by a recipe, alone or as one of the processes that torchrun started.

    Args:
        recipe: what to train.
        options: how long, from where, to where.
        data: folders or patterns of training data.
        val: folder of validation photographs; a folder `val` beside the data is found by itself.
        device: auto, cpu, cuda or cuda:N.
        started: `time.monotonic()` of the program's start, so that the budget includes it.
        listener: called at every look and every validation of the first process.
    """
    place = pick_device(device)
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    processes = join(place)
    try:
        if place.type == "cuda":
            place = torch.device("cuda", processes.local if processes.world > 1 else place.index or 0)
            torch.cuda.set_device(place)
            torch.backends.cudnn.benchmark = True
        else:
            keep_freed_memory()
        source, validation = open_data(recipe, data, val, options.out, place, processes, graphs=options.graphs)
        run = Run(recipe, options, validation, place, processes=processes, started=started, listener=listener)
        return train(run, source)
    except torch.OutOfMemoryError as error:  # torch's own words do not say which settings help
        raise InputError(
            f"the GPU's memory is too small for this recipe ({str(error).split('. ')[0]}); go on with --resume --set "
            "checkpoint_stages=True, which recomputes instead of keeping, or start with less: --set phases.batch=N."
        ) from error
    finally:
        leave()
