"""The paper's network, with what makes `light` fit for real photographs and short training: keyframe stream first.

    burstmamba train open-paper --data "photos/train-*" --val photos/val --minutes 40 --out runs/open-paper

Made for one H200; the schedule is laid over the minutes that there are. What it reached is in docs/training.md.
"""

from dataclasses import replace

from burstmamba.model.config import LIGHT, preset
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.recipe import Phase, Photographs, Recipe

RECIPE = Recipe(
    model=replace(
        preset("paper"),
        reach=LIGHT.reach,
        drop_path=LIGHT.drop_path,
        use_confidence=True,
        use_phase=True,
        global_skip="bicubic",
    ),
    data=Photographs(synthesis_preset("handheld-rgb")),
    loss="charbonnier",
    weight_decay=1e-4,
    phases=(
        Phase("keyframe", steps=15_000, batch=20, patch=40, frames=((1, 1.0),), rate=3e-4),
        Phase(
            "complete",
            steps=25_000,
            batch=20,
            patch=30,
            frames=((1, 0.1), (4, 0.2), (8, 0.25), (14, 0.45)),
            rate=3e-4,
        ),
    ),
)
