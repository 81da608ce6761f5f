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
    """The network's rows that differ only in their number of frames: L → the row's name.

    Of rows with several maps or treatments the plain ones are taken or, without any, those that came first.
    """
    methods = [method for method in book.distinct("method") if book.values(subset, method, rules)]
    rows = [match.groups() for method in methods if (match := re.fullmatch(r"L=(\d+)(.*)", method))]
    kinds = [kind for length, kind in rows if length != "1"]
    chosen = "" if "" in kinds or not kinds else kinds[0]
    found = {int(length): f"L={length}{kind}" for length, kind in rows if length == "1" or kind == chosen}
    if not found:
        raise InputError(f"the scores of {subset} hold no rows such as L=1 and L=14; evaluate with --burst-length.")
    return dict(sorted(found.items()))


def plot_length(book: ScoreBook, path: Path) -> None:
    """What further frames bring over the shortest burst, image by image with 95 % intervals, as a PNG.

    Differences rather than scores: images differ by far more than methods do.
    """
    figure, (axes,) = _figure()
    lengths: set[int] = set()
    for subset, rules in dict.fromkeys((score.subset, score.protocol) for score in book.scores.values()):
        rows = length_scores(book, subset, rules)
        lengths.update(rows)
        shortest = next(iter(rows))
        start = book.mean(subset, rows[shortest], rules)
        gains = [book.difference(subset, method, rows[shortest], rules) for method in rows.values()]
        bars = ([gain.mean - gain.low for gain in gains], [gain.high - gain.mean for gain in gains])
        label = f"{subset} ({rules}): {start:.2f} dB at L={shortest}"
        axes.errorbar(list(rows), [gain.mean for gain in gains], yerr=bars, marker="o", capsize=3, label=label)
    axes.set_xlabel("frames L")
    axes.set_ylabel("PSNR gain over the shortest burst (dB)")
    axes.set_xticks(sorted(lengths))
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def plot_tradeoff(path: Path, peers: Path | None = None, book: ScoreBook | None = None, preset: str = "") -> None:
    """PSNR against GFLOPs at 48×48 as a PNG: the paper's curve with its peers, and our own scores beside it.

    Args:
        path: where to draw it.
        peers: CSV with name, gflops, psnr for peers whose cost is known; the others are drawn as lines.
        book: our own scores, in a panel of their own: they are not RealBSR's and must not be read off one axis.
        preset: the network that was scored, for its cost; empty takes it from the name of its weights.
    """
    figure, panels = _figure(panels=1 if book is None else 2)
    _published(panels[0], read_peers(peers) if peers else {})
    if book is not None:
        _own_scores(panels[1], book, preset or _scored_preset(book))
    for axes in panels:
        axes.set_xlabel("GFLOPs at 48×48, correspondence not counted")
    _save(figure, path)


def _published(axes, known: dict[str, tuple[float, float]]) -> None:
    costs = [PAPER_COST[0] + PAPER_COST[1] * (row.method.frames - 1) for row in LENGTHS.rows]
    quality = [row.paper[0] for row in LENGTHS.rows if row.paper]
    axes.plot(costs, quality, marker="o", color="tab:purple", label="BurstMamba, as published")
    _name_points(axes, [row.label for row in LENGTHS.rows], costs, quality)
    for name, (x, y) in known.items():
        axes.plot(x, y, marker="s", color="tab:gray")
        axes.annotate(name, (x, y), textcoords="offset points", xytext=(6, -3), fontsize=8)
    unknown = {name: y for name, y in PEERS.items() if name not in known}
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    for index, (name, y) in enumerate(sorted(unknown.items(), key=lambda entry: entry[1])):
        axes.axhline(y, color="tab:gray", linewidth=0.6, linestyle=":")
        place = (0.01 + 0.18 * (index % 2), y)  # two columns left of the curve: neighbours are close to each other
        axes.annotate(
            f"{name} {y:.2f}", place, xycoords=("axes fraction", "data"), fontsize=7, va="center", bbox=behind
        )
    axes.set_ylabel("PSNR on RealBSR-RGB (dB)")
    axes.set_xlim(left=min([45.0, *(0.9 * x for x, _ in known.values())]))
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _own_scores(axes, book: ScoreBook, preset: str) -> None:
    from burstmamba.evaluation.complexity import measure_complexity
    from burstmamba.model.config import preset as find_preset

    config = find_preset(preset)
    for subset, rules in dict.fromkeys((score.subset, score.protocol) for score in book.scores.values()):
        rows = length_scores(book, subset, rules)
        costs = [measure_complexity(config, 48, 48, length).total("paper") / 1e9 for length in rows]
        quality = [book.mean(subset, method, rules) for method in rows.values()]
        axes.plot(costs, quality, marker="^", label=f"{preset}, {subset}")
        _name_points(axes, [f"L={length}" for length in rows], costs, quality)
    axes.margins(x=0.12)  # room for the first points' names
    axes.set_ylabel(f"PSNR on {book.header.get('benchmark', 'the benchmark')} (dB)")
    axes.legend(frameon=False, fontsize=8)


def _scored_preset(book: ScoreBook) -> str:
    from burstmamba.model.config import PRESETS

    name = Path(book.header.get("weights", "")).stem
    if name not in PRESETS:
        raise InputError(f"these scores do not say what network they are of; say it with --preset {'|'.join(PRESETS)}.")
    return name


def _name_points(axes, names: list[str], xs: list[float], ys: list[float]) -> None:
    for name, x, y in zip(names, xs, ys, strict=True):
        axes.annotate(name, (x, y), textcoords="offset points", xytext=(-6, 5), ha="right", fontsize=8)


def read_peers(path: Path) -> dict[str, tuple[float, float]]:
    """Peers' points from a CSV with the columns name, gflops, psnr."""
    try:
        with open(path, newline="") as file:
            return {row["name"]: (float(row["gflops"]), float(row["psnr"])) for row in csv.DictReader(file)}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} must be a CSV with the columns name, gflops, psnr ({error}).") from None


def _figure(panels: int = 1):
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install 'burstmamba[plot]'.") from error
    figure = Figure(figsize=(6.5 * panels, 4.6), dpi=140, layout="constrained")
    every = figure.subplots(1, panels, squeeze=False)[0]
    for axes in every:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, every


def _save(figure, path: Path) -> None:
    import io

    from burstmamba.checkpoint import write_atomically

    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_atomically(path, content.getvalue())
