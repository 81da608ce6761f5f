"""`light` RGB, the shipped default: photographs, synthesis with nuisances, imperfect maps.

    burstmamba train open-rgb --data "photos/train-*" --val photos/val --minutes 60 --out runs/open-rgb

Made for one H200; the schedule is laid over the minutes that there are. What it reached is in docs/training.md.
"""

from burstmamba.model.config import preset
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.recipe import Phase, Photographs, Recipe

RECIPE = Recipe(
    model=preset("light"),
    data=Photographs(synthesis_preset("handheld-rgb")),
    loss="charbonnier",
    weight_decay=1e-4,
    ema=0.999,
    phases=(
        Phase(
            "complete",
            steps=100_000,
            batch=24,
            patch=32,
            frames=((1, 0.12), (3, 0.18), (7, 0.3), (14, 0.4)),
            rate=5e-4,
        ),
    ),
)
