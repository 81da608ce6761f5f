"""Many bursts: one job each, here, in several processes, or on several machines through Ray, by the same function."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

from burstmamba.checkpoint import shipped_models
from burstmamba.device import pick_device
from burstmamba.errors import InputError
from burstmamba.files.grouping import group_bursts
from burstmamba.files.saving import FORMATS, check_bits
from burstmamba.restoration.job import AUTO, JobReport, JobSettings, open_model, run_job
from burstmamba.restoration.restore import Progress
from burstmamba.workers import deaf_to_interrupts

log = logging.getLogger(__name__)

_stop: Event | None = None
"""In a worker: set when the batch is stopped."""


@dataclass(frozen=True)
class BatchItem:
    """One burst of a batch."""

    name: str
    shots: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class BatchResult:
    """How one burst ended: done, done before, or why not."""

    item: BatchItem
    report: JobReport | None = None
    error: str | None = None
    skipped: bool = False


def plan_batch(folder: str | Path, output: str | Path | None, ending: str = ".png") -> list[BatchItem]:
    """The bursts of a folder and where their pictures go: OUTPUT/NAME.png, subfolders kept; nowhere without OUTPUT.

    OUTPUT may lie inside the folder: what is there is no burst.
    """
    if ending.lower() not in FORMATS:
        raise InputError(f"the format must be one of {', '.join(name[1:] for name in FORMATS)}, got {ending[1:]!r}.")
    if output is None:
        return [BatchItem(group.name, tuple(map(str, group.paths)), "") for group in group_bursts(folder)]
    output = Path(output)
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; with --each the output is a folder.")
    if output.resolve() == Path(folder).resolve():
        raise InputError(f"the pictures would lie among the frames of {output}; name another folder with -o.")
    return [
        BatchItem(group.name, tuple(str(path) for path in group.paths), str(output / f"{group.name}{ending}"))
        for group in group_bursts(folder, without=output)
    ]


def check_settings(items: list[BatchItem], settings: JobSettings) -> None:
    """Refuse once, before any burst is read, what none of them could be restored with."""
    for item in items[:1]:
        check_bits(item.output, settings.bits)
    device = pick_device(settings.device)
    names = [settings.model]
    if settings.model == "auto":
        names = [name for name in AUTO.values() if name in shipped_models()]
    for name in names:
        open_model(name, device, settings.scale)


def run_item(
    item: BatchItem, settings: JobSettings, threads: int | None = None, progress: Progress | None = None
) -> BatchResult:
    """Restore one burst; a bad one becomes a sentence and does not stop the others."""
    if Path(item.output).exists() and not settings.force:  # files appear whole, so it is from a finished job
        return BatchResult(item, skipped=True)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    try:
        Path(item.output).parent.mkdir(parents=True, exist_ok=True)
        return BatchResult(item, run_job(item.shots, item.output, settings, progress=progress))
    except (InputError, OSError) as error:  # one bad burst does not stop the others
        return BatchResult(item, error=str(error))
    except Exception as error:  # one broken burst must not cost the night's other results
        log.exception("burst %s failed", item.name)
        return BatchResult(item, error=f"{type(error).__name__}: {error}")


def run_batch(
    items: list[BatchItem], settings: JobSettings, *, workers: int = 1, ray_address: str | None = None
) -> Iterator[BatchResult]:
    """Yield results as they are done.

    Args:
        workers: processes on this machine.
        ray_address: run on a Ray cluster instead (`auto`, `local` or an address); files must be reachable from there.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}.")
    if ray_address is not None:
        yield from _run_on_ray(items, settings, ray_address)
        return
    check_settings(items, settings)
    if workers == 1:
        for item in items:
            yield run_item(item, settings)
    else:
        threads = max(1, (os.cpu_count() or 1) // workers)
        context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA or torch's threads
        stop = context.Event()
        with ProcessPoolExecutor(workers, context, _begin_worker, (stop,)) as pool:
            try:
                with deaf_to_interrupts():  # what counts in a worker is whether the batch was stopped
                    jobs = {pool.submit(_run_in_worker, item, settings, threads): item for item in items}
                for future in as_completed(jobs):
                    try:
                        yield future.result()
                    except BrokenProcessPool:  # the system ends the largest process when memory runs out
                        reason = "a worker was ended, perhaps for want of memory; run it again with fewer --workers"
                        yield BatchResult(jobs[future], error=reason)
            finally:
                stop.set()  # bursts that were handed to the workers already cannot be cancelled
                pool.shutdown(wait=False, cancel_futures=True)


def _begin_worker(stop: Event) -> None:
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # not inherited on Windows


def _run_in_worker(item: BatchItem, settings: JobSettings, threads: int) -> BatchResult:
    def check(stage: str, done: int, total: int) -> None:
        if _stop is not None and _stop.is_set():
            raise KeyboardInterrupt

    return run_item(item, settings, threads, check)


def _run_on_ray(items: list[BatchItem], settings: JobSettings, address: str) -> Iterator[BatchResult]:
    try:
        import ray  # pyright: ignore[reportMissingImports] (an extra)
    except ImportError:
        raise InputError("running on Ray needs ray; install it with: pip install 'burstmamba[batch]'.") from None
    started = not ray.is_initialized()
    if started:
        ray.init(address=None if address == "local" else address, include_dashboard=False, log_to_driver=False)
    try:
        remote = ray.remote(num_cpus=1)(run_item)
        waiting = [remote.remote(item, settings, 1) for item in items]
        while waiting:
            done, waiting = ray.wait(waiting)
            yield ray.get(done[0])
    finally:
        if started:
            ray.shutdown()
