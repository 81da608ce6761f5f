"""Tables of an ablation: the paper's numbers beside ours, and whether the paper's orders came out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from burstmamba.checkpoint import write_atomically
from burstmamba.errors import InputError
from burstmamba.evaluation.ablation import AblationTable, Order
from burstmamba.evaluation.bootstrap import Interval, interval, paired_difference
from burstmamba.evaluation.scores import ScoreBook


@dataclass(frozen=True)
class RowResult:
    """One row's scores, image by image."""

    label: str
    psnr: dict[str, float]
    ssim: dict[str, float]
    steps: str
    """Training steps of its weights."""
    minutes: str
    """Minutes that they took."""
    commit: str
    hardware: str
    date: str
    """When it was scored, which is also what commit and hardware are about."""


FACTS = {
    "steps": "weights_steps",
    "minutes": "weights_minutes",
    "commit": "commit",
    "hardware": "hardware",
    "date": "date",
}
"""What is told of a row beside its scores, and its name in the header of a book of scores."""


@dataclass(frozen=True)
class TableResult:
    """A table on one subset with one seed; rows that were not run are missing."""

    table: str
    subset: str
    seed: int
    rows: dict[str, RowResult]
    benchmark: str = "openburst"

    def difference(self, order: Order) -> Interval | None:
        """How much higher `order.higher` scores, image by image; None when a row is missing."""
        if order.lower not in self.rows or order.higher not in self.rows:
            return None
        low, high = self.rows[order.lower].psnr, self.rows[order.higher].psnr
        both = [image for image in high if image in low]
        return paired_difference([high[image] for image in both], [low[image] for image in both])


def collect(table: AblationTable, books: dict[str, ScoreBook], subset: str, seed: int) -> TableResult:
    """The table's rows from the books of its recipes."""
    rows = {}
    for row in table.rows:
        book = books.get(row.recipe)
        if book is None:
            continue
        psnr = book.values(subset, row.method.label, "openburst")
        if psnr:
            ssim = book.values(subset, row.method.label, "openburst", "ssim")
            facts = [book.header.get(name, "unknown") for name in FACTS.values()]
            rows[row.label] = RowResult(row.label, psnr, ssim, *facts)
    benchmark = next((book.header["benchmark"] for book in books.values() if "benchmark" in book.header), "openburst")
    return TableResult(table.name, subset, seed, rows, benchmark)


def verdict(order: Order, difference: Interval) -> str:
    """Whether a claim of the paper came out, by the 95 % interval of the per-image difference."""
    if difference.count < 2:
        return "too few images"
    if difference.sign > 0:
        return "yes"
    if difference.sign < 0:
        return "no, reversed"
    return "undecided" if order.strict else "yes (no difference)"


def markdown(table: AblationTable, results: list[TableResult]) -> str:
    """One table for each subset and seed, with the orders below."""
    parts = [f"### {table.title}\n"]
    for result in results:
        parts.append(f"{result.benchmark} `{result.subset}`, seed {result.seed}\n")
        parts.append("| row | paper PSNR / SSIM | ours PSNR (95 % interval) | ours SSIM | images | steps | minutes |")
        parts.append("|---|---|---|---|---|---|---|")
        for row in table.rows:
            paper = f"{row.paper[0]:.3f} / {row.paper[1]:.3f}" if row.paper else "-"
            if (ours := result.rows.get(row.label)) is None:
                parts.append(f"| {row.label} | {paper} | not run | | | | |")
                continue
            psnr, ssim = interval(list(ours.psnr.values())), interval(list(ours.ssim.values()))
            cells = (row.label, paper, psnr.text(), f"{ssim.mean:.4f}", str(psnr.count), ours.steps, ours.minutes)
            parts.append("| " + " | ".join(cells) + " |")
        if len({ours.steps for ours in result.rows.values()}) > 1:
            parts += ["", "The rows had different numbers of steps: orders between them are not under one budget."]
        parts += ["", "| the paper's order | paper | ours, per image (95 % interval) | agrees |", "|---|---|---|---|"]
        for order in table.orders:
            parts.append(_order_line(table, result, order))
        parts.append("")
    return "\n".join(parts)


def _order_line(table: AblationTable, result: TableResult, order: Order) -> str:
    low, high = table.row(order.lower).paper, table.row(order.higher).paper
    paper = f"{high[0] - low[0]:+.3f} dB" if low and high else "-"
    sign = "<" if order.strict else "≤"
    difference = result.difference(order)
    ours = "not run | " if difference is None else f"{difference.text(3, signed=True)} | {verdict(order, difference)}"
    return f"| {order.lower} {sign} {order.higher} | {paper} | {ours} |"


def save_results(path: Path, results: list[TableResult]) -> None:
    """Write tables as JSON, per-image scores included."""
    content = [
        {
            "table": result.table,
            "benchmark": result.benchmark,
            "subset": result.subset,
            "seed": result.seed,
            "rows": [
                {
                    "label": row.label,
                    **{name: getattr(row, name) for name in FACTS},
                    "psnr": {image: round(value, 4) for image, value in row.psnr.items()},
                    "ssim": {image: round(value, 5) for image, value in row.ssim.items()},
                }
                for row in result.rows.values()
            ],
        }
        for result in results
    ]
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in content)
    write_atomically(path, f'{{"ablation": [\n{lines}\n]}}\n'.encode())


def load_results(path: Path, table: AblationTable) -> list[TableResult]:
    """Read what `save_results` wrote."""
    try:
        content = json.loads(path.read_text())["ablation"]
        return [_read_result(entry) for entry in content if entry["table"] == table.name]
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not a file of ablation results ({error}).") from None


def _read_result(entry: dict) -> TableResult:
    facts = ("label", "psnr", "ssim", *FACTS)
    rows = {row["label"]: RowResult(*(row[name] for name in facts)) for row in entry["rows"]}
    return TableResult(entry["table"], entry["subset"], entry["seed"], rows, entry.get("benchmark", "openburst"))
