"""The speed tables of README.md and benchmarks/README.md out of results/*.json: `python benchmarks/table.py [--write]`.

A row whose result file is missing is left out; a bar that is missed stays. Ratios are to a peer of the same run.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
MARKS = ("<!-- speed: python benchmarks/table.py --write -->\n\n", "\n<!-- end of speed -->\n")
PAGES = {FOLDER.parent / "README.md": True, FOLDER / "README.md": False}
"""Where the tables stand, and whether it is the short one."""

Cells = tuple[str, str]
"""What was measured, and how it compares with a peer (or nothing)."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    file: str
    """Name of the result file, without ending."""
    cells: Callable[[dict], Cells | None]
    """Reads the content of the file; None when the row is not in it."""
    bar: str
    """What was to be reached."""
    short: bool = True
    """Whether it is in the short table."""


def scan(case: str) -> Callable[[dict], Cells | None]:
    """A scan on the GPU; peers in order of preference."""

    def cells(content: dict) -> Cells | None:
        rows = {row["backend"]: row for row in reversed(content["rows"]) if row.get("case") == case}
        if (ours := rows.get("triton")) is None:
            return None
        kind = "forward_backward" if "forward_backward" in ours else "forward"
        peers = {"triton, never cut": "the loop as a kernel", "reference": "the loop in PyTorch"}
        found = [
            ratio(rows[name][kind], ours[kind], words) for name, words in peers.items() if kind in rows.get(name, {})
        ]
        if compiled := rows.get("reference, compiled"):
            found.append(ratio(compiled["forward"], ours["forward"], "the loop compiled, in the forward"))
        return milliseconds(ours[kind]), ", ".join(found)

    return cells


def cpu_scan(content: dict) -> Cells | None:
    """The C++ scan against the block around it and against the loop."""
    ratios = {row["what"]: row["ratio"] for row in content["rows"] if "ratio" in row}
    if (share := ratios.pop("scan / rest of the block", None)) is None:
        return None
    words = {"reference loop / scan": "the loop in PyTorch", "one thread / 2 threads": "one thread"}
    return f"{share:.2f} ×", ", ".join(f"{ratios[name]:.1f} × {text}" for name, text in words.items() if name in ratios)


def step(case: str) -> Callable[[dict], Cells | None]:
    """A training step as `train` runs it, beside the same step launched."""

    def cells(content: dict) -> Cells | None:
        row = next((row for row in content["rows"] if row.get("case") == case), None)
        if row is None:
            return None
        peer = ratio(row["launched"], row["captured"], "the same step in eager PyTorch") if "launched" in row else ""
        return f"{milliseconds(row['captured'])}, {row['memory_gib']:.0f} GiB", peer

    return cells


def window(content: dict) -> Cells | None:
    """One window of the paper's network."""
    rows = [row for row in content["rows"] if "window" in row and (row["side"], row["length"]) == (48, 14)]
    return (milliseconds(rows[0]["window"]), "") if rows else None


def straight(content: dict) -> Cells | None:
    """How straight the cost of a window grows."""
    row = next((row for row in content["rows"] if "straight_in_length" in row), None)
    return row and (f"R² {row['straight_in_length']:.3f} and {row['straight_in_area']:.4f}", "")


def restore(content: dict) -> Cells | None:
    """A whole job of one megapixel: the network, and everything from files to the picture."""
    row = next((row for row in content["entries"] if (row["megapixels"], row["frames"]) == (1.0, 14)), None)
    if row is None:
        return None
    network, whole = row["seconds"]["network"], row["total_s"]
    text = f"{network:.1f} s, {row['peak_gpu_mb'] / 1024:.0f} GiB; {whole:.1f} s from files to picture"
    if again := row.get("seconds_again"):
        text = f"{again['network']:.1f} s (the first picture {text})"
    return text, ""


def synthesis(content: dict) -> Cells | None:
    """A batch of training bursts, as a CUDA graph and launched."""
    rows = {row["cuda_graph"]: row for row in content["rows"] if row["preset"] == "handheld-rgb"}
    if True not in rows:
        return None
    return milliseconds(rows[True]), ratio(rows[False], rows[True], "launched") if False in rows else ""


def evaluation(content: dict) -> Cells | None:
    """Bursts scored a second."""
    row = next((row for row in content["rows"] if (row["preset"], row["size"]) == ("light", 48)), None)
    return row and (f"{row['bursts_per_second']:.0f} a second, metrics {100 * row['metrics_share']:.0f} %", "")


def milliseconds(times: dict) -> str:
    """A median for the table, to three digits."""
    value = times["median_ms"]
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} ms"


def ratio(peer: dict, ours: dict, words: str) -> str:
    """How many times faster than the peer."""
    value = peer["median_ms"] / ours["median_ms"]
    return f"{value:.{1 if value < 10 else 0}f} × {words}"


ROWS = (
    Row("scan with backward, `paper`, 20×40×40", "scan_cuda", scan("paper training, 20×40×40"), "2.2 ms"),
    Row("scan, `paper`, 256×256", "scan_cuda", scan("paper tile, 256×256, forward"), "2.0 ms"),
    Row("scan with backward, `light`, 24×32×32", "scan_cuda", scan("light training, 24×32×32"), "0.4 ms", short=False),
    Row("burst scan with backward, 18,000 pixels × 14 frames", "scan_cuda", scan("burst, 18,000 pixels × 14 frames"),
        "2.5 ms"),
    Row("training step, `paper`, 20×40×40, one frame", "train_step", step("paper keyframe"), "130 ms, 1.5 × eager"),
    Row("training step, `paper`, 20×30×30, 14 frames", "train_step", step("paper complete"), "130 ms, 40 GB"),
    Row("training step, `light`, 24×32×32, 14 frames", "train_step_light_complete", step("light complete"), "30 ms"),
    Row("one 48×48 window, `paper`, 14 frames", "train_step", window, "12 ms"),
    Row("cost of a window against L and against area", "train_step", straight, "R² 0.99", short=False),
    Row("restore 1 MP × 14 frames, `paper`", "restore_paper_cuda", restore, "2.5 s, 16 GB"),
    Row("make 20 training bursts, 14 × 30×30", "synthesis_cuda", synthesis, "4 ms"),
    Row("score bursts, `light`, 14 × 48×48", "evaluation", evaluation, "20 a second", short=False),
    Row("C++ scan on a CPU, as a share of the rest of its block", "scan_cpu_block", cpu_scan,
        "0.5 ×, 7 × the loop, 1.7 × one thread"),
)  # fmt: skip


def table(folder: Path, *, short: bool) -> str:
    """The table as Markdown, with hardware and commit of every file below; empty without any result."""
    lines, origins = [], {}
    for row in ROWS:
        path = folder / f"{row.file}.json"
        if not path.is_file() or (short and not row.short):
            continue
        content = json.loads(path.read_text())
        if cells := row.cells(content):
            lines.append(f"| {row.what} | {cells[0]} | {row.bar} | {cells[1]} |")
            origins.setdefault(origin(content), []).append(f"`{path.name}`")
    if not lines:
        return ""
    head = ["| what | measured | to reach | as fast as, in the same run |", "|---|---|---|---|"]
    below = [f"- {where}: {', '.join(dict.fromkeys(files))}" for where, files in origins.items()]
    return "\n".join([*head, *lines, "", "Medians (restore: one job); measured on", *below, ""])


def origin(content: dict) -> str:
    """Hardware, torch and commit of a result file."""
    facts = content.get("provenance", content)
    return f"{facts.get('device', facts.get('hardware'))}, torch {facts['torch']}, commit {facts['commit']}"


def block(short: bool) -> str:
    """A table between the marks that it is found by."""
    return MARKS[0] + table(FOLDER / "results", short=short) + MARKS[1]


def main() -> None:
    """Print the short table, or put both where they belong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="replace the tables in both README.md")
    if not parser.parse_args().write:
        print(table(FOLDER / "results", short=True), end="")
        return
    for page, short in PAGES.items():
        between = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
        page.write_text(re.sub(between, lambda _, short=short: block(short), page.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
