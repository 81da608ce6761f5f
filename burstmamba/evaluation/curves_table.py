"""How much each further frame brings, image by image."""

from __future__ import annotations

from itertools import pairwise

from burstmamba.errors import InputError
from burstmamba.evaluation.figures.curves import length_scores
from burstmamba.evaluation.scores import ScoreBook


def length_differences(book: ScoreBook) -> list[str]:
    """Markdown lines: paired differences between neighbouring burst lengths; empty without several lengths."""
    lines = []
    for subset in book.distinct("subset"):
        for rules in book.distinct("protocol"):
            try:
                rows = length_scores(book, subset, rules)
            except InputError:  # no two lengths were scored there
                continue
            for (_, shorter), (_, longer) in pairwise(rows.items()):
                difference = book.difference(subset, longer, shorter, rules)
                lines.append(f"| {subset} | {longer} − {shorter} | {difference.text(3, signed=True)} |")
    if not lines:
        return []
    return ["| subset | more frames | PSNR difference per image (dB) |", "|---|---|---|", *lines, ""]
