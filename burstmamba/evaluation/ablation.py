"""The paper's ablation tables as data: which recipe makes a row's weights, how the row is scored, what must hold."""

from __future__ import annotations

from dataclasses import dataclass

from burstmamba.errors import InputError
from burstmamba.evaluation.reconstruct import Method


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    label: str
    recipe: str
    """Name of the training recipe; rows that share it share the weights."""
    method: Method
    paper: tuple[float, float] | None = None
    """PSNR and SSIM on RealBSR-RGB in the paper; None for rows of our own."""


@dataclass(frozen=True)
class Order:
    """A claim of the paper: one row scores below another."""

    lower: str
    higher: str
    strict: bool = True
    """Whether a tie contradicts it."""


@dataclass(frozen=True)
class AblationTable:
    """Rows trained under one budget with equal seeds and batches, and the claims they test."""

    name: str
    title: str
    rows: tuple[Row, ...]
    orders: tuple[Order, ...]

    @property
    def recipes(self) -> list[str]:
        """Every recipe that has to be trained, once."""
        return list(dict.fromkeys(row.recipe for row in self.rows))

    def row(self, label: str) -> Row:
        """The row of this label."""
        return next(row for row in self.rows if row.label == label)


SINGLE = Method("network", 1)
WHOLE = Method("network", 14)
NO_MAPS = Method("network", 14, "auto", "unaligned")

COMPONENTS = AblationTable(
    "components",
    "Components, from the single-image network up (the paper's Table 2)",
    (
        Row("single", "ablation-single", SINGLE, (31.668, 0.900)),
        Row("burst, no GAS", "ablation-burst", NO_MAPS, (32.881, 0.924)),
        Row("burst + GAS", "ablation-gas", WHOLE, (33.080, 0.928)),
        Row("burst + GAS + ψS6", "ablation-psi", WHOLE, (33.287, 0.929)),
    ),
    (
        Order("single", "burst, no GAS"),
        Order("burst, no GAS", "burst + GAS"),
        Order("burst + GAS", "burst + GAS + ψS6", strict=False),
    ),
)

ALIGNMENT = AblationTable(
    "alignment",
    "When and how to align (the paper's Table 3)",
    (
        Row("none", "ablation-burst", NO_MAPS, (32.881, 0.924)),
        Row("pre-align", "ablation-prealign", Method("network", 14, "auto", "prealigned"), (32.965, 0.926)),
        Row("integer GAS", "ablation-integer", Method("network", 14, "auto", "rounded"), (32.434, 0.917)),
        Row("GAS", "ablation-gas", WHOLE, (33.080, 0.928)),
        Row("homography GAS", "ablation-homography", Method("network", 14, "homography"), (33.000, 0.927)),
    ),
    (
        Order("none", "GAS"),
        Order("pre-align", "GAS"),
        Order("integer GAS", "GAS"),
        Order("homography GAS", "GAS", strict=False),
    ),
)

LENGTHS = AblationTable(
    "length",
    "Burst length at inference, one model (the paper's appendix)",
    tuple(
        Row(f"L={frames}", "ablation-psi", Method("network", frames), paper)
        for frames, paper in (
            (1, (31.289, 0.890)),
            (2, (32.171, 0.907)),
            (5, (32.764, 0.918)),
            (10, (33.156, 0.926)),
            (14, (33.287, 0.929)),
        )
    ),
    (Order("L=1", "L=2"), Order("L=2", "L=5"), Order("L=5", "L=10"), Order("L=10", "L=14")),
)

SPLIT = AblationTable(
    "split",
    "Compute split between the streams at one total (the paper's Section 4.2)",
    (
        Row("50/50", "ablation-balanced", WHOLE, (30.32, 0.8936)),
        Row("keyframe-centric", "ablation-psi", WHOLE, (33.287, 0.929)),
    ),
    (Order("50/50", "keyframe-centric"),),
)

USE = AblationTable(
    "use",
    "Are the other frames used? (ours)",
    (
        Row("14 copies of the keyframe", "ablation-psi", Method("network", 14, "auto", "copies")),
        Row("L=1", "ablation-psi", SINGLE),
        Row("L=14, frames reversed", "ablation-psi", Method("network", 14, "auto", "reverse")),
        Row("L=14, frames shuffled", "ablation-psi", Method("network", 14, "auto", "shuffle")),
        Row("L=14", "ablation-psi", WHOLE),
        Row("L=14, exact maps", "ablation-psi", Method("network", 14, "exact")),
    ),
    (Order("14 copies of the keyframe", "L=14"), Order("L=14", "L=14, exact maps", strict=False)),
)

TABLES = {table.name: table for table in (COMPONENTS, ALIGNMENT, LENGTHS, SPLIT, USE)}


def ablation_table(name: str) -> AblationTable:
    """The table of this name."""
    if name not in TABLES:
        raise InputError(f"unknown table {name!r}; the known ones are {', '.join(TABLES)}, or all.")
    return TABLES[name]
