"""`burstmamba restore`: somebody's burst in, one sharp picture out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from burstmamba.errors import InputError

if TYPE_CHECKING:
    from burstmamba.restoration.job import JobReport, JobSettings


def restore(
    shots: Annotated[list[Path] | None, typer.Argument(help="A folder, a video clip, or the frames.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; a folder with --each.")] = None,
    model: Annotated[str, typer.Option(help="Shipped name, checkpoint file or Hugging Face repository.")] = "auto",
    burst_length: Annotated[int, typer.Option(min=1, help="Use at most this many frames, the best.")] = 30,
    keyframe: Annotated[str, typer.Option(help="first, sharpest, a position from 0 or a file name.")] = "first",
    correspondence: Annotated[
        str, typer.Option(help="auto, homography, dense, raft-small, raft-large, identity or a file of maps.")
    ] = "auto",
    scale: Annotated[int, typer.Option(help="1 to 4; less than the model's is averaged down.")] = 4,
    crop: Annotated[str | None, typer.Option(metavar="X,Y,W,H", help="Restore this part, in frame pixels.")] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Also write this picture: before and after, with details.")
    ] = None,
    bits: Annotated[int | None, typer.Option(help="8 or 16 bits a sample.")] = None,
    linear: Annotated[bool, typer.Option("--linear", help="RAW: keep light linear, no tone curve.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    tile: Annotated[int | None, typer.Option(help="Side of a window in frame pixels; by default what fits.")] = None,
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Average 8 flips and turns: 8 times slower.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and stop.")] = False,
    each: Annotated[Path | None, typer.Option(metavar="DIR", help="Restore every burst of a folder.")] = None,
    ending: Annotated[
        str | None, typer.Option("--format", help="With --each: ending of the pictures; png by default.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="With --each: bursts at the same time; 1 by default.")] = None,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="With --each: run on a Ray cluster.")] = None,
) -> None:
    """Restore a burst of frames into one sharp picture of up to four times the size."""
    from burstmamba.restoration.job import JobSettings

    settings = JobSettings(
        model=model,
        device=device,
        burst_length=burst_length,
        keyframe=keyframe,
        correspondence=correspondence,
        scale=scale,
        crop=parse_crop(crop),
        tile=tile,
        ensemble=ensemble,
        linear=linear,
        bits=bits,
        compare=None if compare is None else str(compare),
        force=force,
    )
    if (each is None) == (not shots):
        raise InputError("name the frames, their folder or a clip, or a folder of bursts with --each, and not both.")
    if each is not None and (compare is not None or crop is not None):
        raise InputError("--compare and --crop belong to one burst; leave them out with --each.")
    if each is None and (ending, workers, ray) != (None, None, None):
        raise InputError("--format, --workers and --ray belong to --each DIR; leave them out with one burst.")
    if output is None and not dry_run:
        raise InputError("name the picture to write with -o, such as -o photo.png.")
    if each is not None:
        suffix, at_once = f".{(ending or 'png').lstrip('.')}", 1 if workers is None else workers
        restore_each(each, output, settings, suffix, at_once, ray, as_json=as_json, dry_run=dry_run)
    else:
        restore_one(shots or [], output, settings, as_json=as_json, dry_run=dry_run)


class Teller(Console):
    """Says what goes on; once nobody can hear it, the work goes on without a word."""

    def __init__(self, *, stderr: bool) -> None:
        super().__init__(stderr=stderr, soft_wrap=True, highlight=False, emoji=False)

    def say(self, sentence: str) -> None:
        """One line."""
        try:
            self.print(sentence, markup=False)
        except OSError:  # such as a log on a disk that is full
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """The reader has gone, as `head` does."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


def parse_crop(text: str | None) -> tuple[int, int, int, int] | None:
    """ "X,Y,W,H" as four numbers."""
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 4 or not all(part.strip().isdecimal() for part in parts) or 0 in map(int, parts[2:]):
        raise InputError(f"crop must be X,Y,W,H in frame pixels, such as 100,80,64,48, got {text!r}.")
    x, y, width, height = map(int, parts)
    return x, y, width, height


def restore_one(shots: list[Path], output: Path | None, settings: JobSettings, *, as_json: bool, dry_run: bool) -> None:
    """One burst, with what was decided on the way."""
    from burstmamba.restoration.job import run_job

    screen = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)
    out = Teller(stderr=as_json)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=None)
            bars.update(tasks[stage], completed=done, total=total or None)

        report = run_job(
            shots,
            output,
            settings,
            dry_run=dry_run,
            say=out.say,
            progress=progress,
        )
    for sentence in summary(report):
        out.say(sentence)
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False, indent=2))


def summary(report: JobReport) -> list[str]:
    """How it ended."""
    spent = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items())
    lines = [f"time: {spent}; peak memory {report.peak_memory_mb} MB"]
    if report.clipped > 0.001:
        lines.append(f"{report.clipped:.1%} of the values lay outside the range and were clipped")
    if report.output:
        lines.append(f"wrote {report.output}" + (f" and {report.compare}" if report.compare else ""))
    return lines


def restore_each(
    folder: Path,
    output: Path | None,
    settings: JobSettings,
    ending: str,
    workers: int,
    ray: str | None,
    *,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Every burst of a folder; exit code 1 when some could not be restored."""
    from burstmamba.restoration.batch import plan_batch, run_batch

    out = Teller(stderr=as_json)
    items = plan_batch(folder, output, ending)
    if dry_run:
        for item in items:
            goes_to = f" → {item.output}" if item.output else ""
            out.say(f"{item.name}: {len(item.shots)} file(s){goes_to}")
        if as_json:
            print(json.dumps([vars(item) for item in items], ensure_ascii=False, indent=2))
        return
    results = []
    for number, result in enumerate(run_batch(items, settings, workers=workers, ray_address=ray), start=1):
        results.append(result)
        what = "already there" if result.skipped else result.error or f"wrote {result.item.output}"
        out.say(f"[{number}/{len(items)}] {result.item.name}: {what}")
    failed = [result for result in results if result.error]
    skipped = sum(result.skipped for result in results)
    done = len(results) - len(failed) - skipped
    out.say(f"{done} restored, {skipped} already there, {len(failed)} failed")
    if as_json:
        entries = [
            {"name": r.item.name, "output": r.item.output, "skipped": r.skipped, "error": r.error}
            | {"report": r.report.to_dict() if r.report else None}
            for r in results
        ]
        print(json.dumps(entries, ensure_ascii=False, indent=2))
    if failed:
        raise typer.Exit(1)
