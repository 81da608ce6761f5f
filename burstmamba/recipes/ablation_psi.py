"""Ablation, the whole model: burst stream, GAS and ψS6; every other row is a change of this one.

    burstmamba train ablation-psi --data "photos/train-*" --val photos/val --out runs/ablation-psi

In the paper, on RealBSR-RGB: 33.287 dB (Tables 2 and 3). All rows share steps, seed, batches and the paper's scan.
"""

from dataclasses import replace

from burstmamba.model.config import preset
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.recipe import Phase, Photographs, Recipe

RECIPE = Recipe(
    model=replace(preset("light"), reach=0.0),
    data=Photographs(synthesis_preset("handheld-rgb")),
    phases=(Phase("complete", steps=10_000, batch=20, patch=32, frames=((1, 0.2), (5, 0.3), (14, 0.5)), rate=5e-4),),
)
