"""Curves: quality against burst length, and against cost (the paper's teaser)."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from burstmamba.errors import InputError
from burstmamba.evaluation.ablation import LENGTHS
from burstmamba.evaluation.scores import ScoreBook

PEERS = {
    "DBSR": 30.72,
    "MFIR": 30.90,
    "BIPNet": 30.66,
    "BSRT-L": 30.78,
    "FBANet": 31.01,
    "SBFBurst": 31.07,
    "Burstormer": 31.20,
    "QMambaBSR": 31.40,
}
"""PSNR on RealBSR-RGB in the paper's Table 1; their cost is only drawn there, not written."""
PAPER_COST = (63.0, 1.3)
"""GFLOPs of the keyframe and of each further frame at 48×48."""


def length_scores(book: ScoreBook, subset: str, rules: str) -> dict[int, str]:
    """The network's rows that differ only in their number of frames: L → the row's name."""
    found = {}
    for method in book.distinct("method"):
        match = re.fullmatch(r"L=(\d+)( [a-z-]+)?", method)
        if match and book.values(subset, method, rules):
            found.setdefault(int(match.group(1)), method)
    if not found:
        raise InputError(f"the scores of {subset} hold no rows such as L=1 and L=14; evaluate with --burst-length.")
    return dict(sorted(found.items()))


def plot_length(book: ScoreBook, path: Path) -> None:
    """What further frames bring over the shortest burst, image by image with 95 % intervals, as a PNG.

    Differences rather than scores: images differ by far more than methods do.
    """
    figure, axes = _figure()
    for row in {(score.subset, score.protocol): None for score in book.scores.values()}:
        subset, rules = row
        rows = length_scores(book, subset, rules)
        shortest = next(iter(rows))
        start = book.mean(subset, rows[shortest], rules)
        gains = [book.difference(subset, method, rows[shortest], rules) for method in rows.values()]
        bars = ([gain.mean - gain.low for gain in gains], [gain.high - gain.mean for gain in gains])
        label = f"{subset} ({rules}): {start:.2f} dB at L={shortest}"
        axes.errorbar(list(rows), [gain.mean for gain in gains], yerr=bars, marker="o", capsize=3, label=label)
    axes.set_xlabel("frames L")
    axes.set_ylabel("PSNR gain over the shortest burst (dB)")
    axes.set_xticks((1, 2, 5, 10, 14))
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def plot_tradeoff(path: Path, peers: Path | None = None, book: ScoreBook | None = None, preset: str = "light") -> None:
    """PSNR against GFLOPs at 48×48 as a PNG: the paper's curve, its peers, and our own scores on OpenBurst.

    Args:
        path: where to draw it.
        peers: CSV with name, gflops, psnr for peers whose cost is known; the others are drawn at the edge.
        book: scores on OpenBurst; drawn on an axis of their own, since they are not RealBSR's.
        preset: the network that was scored, for its cost.
    """
    figure, axes = _figure()
    costs = [PAPER_COST[0] + PAPER_COST[1] * (row.method.frames - 1) for row in LENGTHS.rows]
    quality = [row.paper[0] for row in LENGTHS.rows if row.paper]
    axes.plot(costs, quality, marker="o", color="tab:purple", label="BurstMamba, as published")
    for row, x, y in zip(LENGTHS.rows, costs, quality, strict=True):
        axes.annotate(row.label, (x, y), textcoords="offset points", xytext=(-6, 6), ha="right", fontsize=8)
    known = read_peers(peers) if peers else {}
    for name, (x, y) in known.items():
        axes.plot(x, y, marker="s", color="tab:gray")
        axes.annotate(name, (x, y), textcoords="offset points", xytext=(6, -3), fontsize=8)
    unknown = {name: y for name, y in PEERS.items() if name not in known}
    for index, (name, y) in enumerate(sorted(unknown.items(), key=lambda entry: entry[1])):
        axes.axhline(y, color="tab:gray", linewidth=0.6, linestyle=":")
        axes.annotate(f"{name} {y:.2f}", (0.01 + 0.16 * (index % 6), y), xycoords=("axes fraction", "data"), fontsize=7)
    axes.set_xlabel("GFLOPs at 48×48, correspondence not counted")
    axes.set_ylabel("PSNR on RealBSR-RGB (dB)")
    axes.set_xlim(left=min(55.0, *(x for x, _ in known.values())) if known else 55.0)
    if book is not None:
        _own_scores(axes, book, preset)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    _save(figure, path)


def read_peers(path: Path) -> dict[str, tuple[float, float]]:
    """Peers' points from a CSV with the columns name, gflops, psnr."""
    try:
        with open(path, newline="") as file:
            return {row["name"]: (float(row["gflops"]), float(row["psnr"])) for row in csv.DictReader(file)}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} must be a CSV with the columns name, gflops, psnr ({error}).") from None


def _own_scores(axes, book: ScoreBook, preset: str) -> None:
    from burstmamba.evaluation.complexity import measure_complexity
    from burstmamba.model.config import preset as find_preset

    twin = axes.twinx()
    subset, rules = book.distinct("subset")[0], book.distinct("protocol")[0]
    rows = length_scores(book, subset, rules)
    costs = [measure_complexity(find_preset(preset), 48, 48, length).total("paper") / 1e9 for length in rows]
    twin.plot(costs, [book.mean(subset, m, rules) for m in rows.values()], marker="^", color="tab:orange")
    twin.set_ylabel(f"{preset} on {book.header.get('benchmark', '')} {subset} (dB)", color="tab:orange")
    axes.set_xlim(left=0.0)


def _figure():
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install 'burstmamba[plot]'.") from error
    figure = Figure(figsize=(7, 4.6), dpi=140, layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    axes.spines[["top"]].set_visible(False)
    return figure, axes


def _save(figure, path: Path) -> None:
    import io

    from burstmamba.checkpoint import write_atomically

    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_atomically(path, content.getvalue())
