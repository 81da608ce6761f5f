"""Two CPU minutes on two cores, without data: for tests, and to see a network learn.

burstmamba train tiny --minutes 2 --out runs/tiny
"""

from dataclasses import replace

from burstmamba.model.config import preset
from burstmamba.synthesis import synthesis_preset
from burstmamba.training.recipe import Phase, Photographs, Recipe, Validation

SYNTHESIS = replace(
    synthesis_preset("handheld-rgb").without_nuisance(), processed=0.0, shift=(1.0, 3.0), shot=(1e-4, 1e-3)
)

RECIPE = Recipe(
    model=preset("tiny"),
    data=Photographs(SYNTHESIS, leaves=True),
    phases=(
        Phase("complete", steps=400, batch=4, patch=16, frames=((1, 0.3), (4, 0.4), (14, 0.3)), rate=4e-3, warmup=20),
    ),
    ema=0.98,
    validation=Validation(bursts=4, patch=32, every=100),
    log_every=10,
    save_steps=100,
)
