"""Per-image scores of several methods: kept as JSON, so that a run can go on, and as CSV for everybody else."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from burstmamba.checkpoint import write_atomically
from burstmamba.errors import InputError
from burstmamba.evaluation.bootstrap import Interval, interval, paired_difference
from burstmamba.evaluation.protocol import METRICS, average, protocol


@dataclass(frozen=True)
class Score:
    """One method on one image under one protocol."""

    subset: str
    image: str
    method: str
    protocol: str
    psnr: float
    ssim: float
    lpips: float | None = None
    seconds: float | None = None
    """Time of the reconstruction alone, its share of the batch's."""
    frames: int | None = None
    """Frames that were used, after unusable ones were left out."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What identifies a score."""
        return self.subset, self.image, self.method, self.protocol


@dataclass
class ScoreBook:
    """All scores of one evaluation, and what was run where."""

    header: dict[str, str] = field(default_factory=dict)
    scores: dict[tuple[str, str, str, str], Score] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """Outputs that could not be scored, with the reason."""
    truths: dict[str, float] = field(default_factory=dict)
    """Mean value of each ground truth by SUBSET/NAME: bursts of other scenes may have the same names."""
    frames: dict[str, str] = field(default_factory=dict)
    """Fingerprint of each burst's frames: other noise may have the same ground truth. Older books have none."""

    def add(self, score: Score) -> None:
        """Keep a score; an earlier one of the same key is replaced, but for its LPIPS where the new one has none."""
        earlier = self.scores.get(score.key)
        if score.lpips is None and earlier is not None:
            score = replace(score, lpips=earlier.lpips)
        self.scores[score.key] = score

    def forget(self, methods: list[str]) -> None:
        """Drop the scores of these methods."""
        self.scores = {key: score for key, score in self.scores.items() if score.method not in methods}

    def values(self, subset: str, method: str, rules: str, metric: str = "psnr") -> dict[str, float]:
        """Score of each image, in the order in which they were scored."""
        chosen = (s for s in self.scores.values() if (s.subset, s.method, s.protocol) == (subset, method, rules))
        return {s.image: getattr(s, metric) for s in chosen if getattr(s, metric) is not None}

    def distinct(self, name: str) -> list[str]:
        """The subsets, methods or protocols that occur, in order of appearance."""
        return list(dict.fromkeys(getattr(score, name) for score in self.scores.values()))

    def mean(self, subset: str, method: str, rules: str, metric: str = "psnr") -> float:
        """The protocol's mean, over batches of images in the order of their names where it has batches."""
        scores = self.values(subset, method, rules, metric)
        return average([scores[image] for image in sorted(scores)], protocol(rules))

    def difference(self, subset: str, first: str, second: str, rules: str, metric: str = "psnr") -> Interval:
        """How much higher `first` scores than `second` on the images that both have."""
        a, b = (self.values(subset, method, rules, metric) for method in (first, second))
        both = [image for image in a if image in b and math.isfinite(a[image]) and math.isfinite(b[image])]
        return paired_difference([a[image] for image in both], [b[image] for image in both])

    def save(self, path: Path) -> None:
        """Write the book as JSON, one line a score, atomically."""
        head = {"header": self.header, "problems": self.problems, "truths": self.truths, "frames": self.frames}
        start = json.dumps(head, indent=1).removesuffix("\n}")
        rows = ",\n".join(json.dumps(_compact(score)) for score in self.scores.values())
        write_atomically(path, f'{start},\n "scores": [\n{rows}\n ]\n}}\n'.encode())

    def save_csv(self, path: Path) -> None:
        """Write the scores as CSV."""
        text = io.StringIO()
        table = csv.DictWriter(text, [f.name for f in fields(Score)], lineterminator="\n")
        table.writeheader()
        table.writerows(asdict(score) for score in self.scores.values())
        write_atomically(path, text.getvalue().encode())

    @classmethod
    def load(cls, path: Path) -> ScoreBook:
        """Read a book written by `save`."""
        try:
            content = json.loads(path.read_text())
            header, scores = content["header"], [Score(**_numbers(row)) for row in content["scores"]]
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}).") from None
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a file of scores ({error}); delete it or choose another folder.") from None
        found = {s.key: s for s in scores}
        return cls(header, found, *(content.get(name, {}) for name in ("problems", "truths", "frames")))


def _compact(score: Score) -> dict[str, object]:
    """A score without what is unknown, numbers to six digits; JSON has no infinity, which is written as text."""

    def plain(value: object) -> object:
        if not isinstance(value, float):
            return value
        return round(value, 6) if math.isfinite(value) else str(value)

    return {name: plain(value) for name, value in asdict(score).items() if value is not None}


def _numbers(row: dict) -> dict:
    """A row that `_compact` made, with its numbers again."""
    return {name: float(value) if name in METRICS else value for name, value in row.items()}


@dataclass(frozen=True)
class Summary:
    """One method on one subset under one protocol."""

    subset: str
    protocol: str
    method: str
    images: int
    means: dict[str, float]
    """The protocol's mean of each metric."""
    spread: Interval
    """Of PSNR, over images."""
    seconds: float | None
    """Mean time of a reconstruction."""
    frames: float | None
    """Mean number of frames used."""

    def cells(self) -> list[str]:
        """Subset, protocol, method, images, PSNR with its interval, SSIM, LPIPS, seconds, frames: for tables."""
        lpips = f"{self.means['lpips']:.4f}" if "lpips" in self.means else "-"
        return [
            self.subset,
            self.protocol,
            self.method,
            str(self.images),
            f"{self.means['psnr']:.2f}{self.spread.range_text()}",
            f"{self.means['ssim']:.4f}",
            lpips,
            "-" if self.seconds is None else f"{self.seconds:.3f}",
            "-" if self.frames is None else f"{self.frames:.1f}",
        ]


def summaries(book: ScoreBook) -> Iterable[Summary]:
    """Mean and interval of every subset, protocol and method that has scores."""
    for subset in book.distinct("subset"):
        for rules in book.distinct("protocol"):
            for method in book.distinct("method"):
                row = (subset, method, rules)
                metrics = [metric for metric in METRICS if book.values(*row, metric)]
                if metrics:
                    means = {metric: book.mean(*row, metric) for metric in metrics}
                    spread = interval(list(book.values(*row).values()))
                    extra = [_plain_mean(book.values(*row, name)) for name in ("seconds", "frames")]
                    yield Summary(subset, rules, method, len(book.values(*row)), means, spread, *extra)


def _plain_mean(values: dict[str, float]) -> float | None:
    return math.fsum(values.values()) / len(values) if values else None
