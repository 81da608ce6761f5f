"""One photograph becomes a burst with exact ground truth and exact maps."""

from __future__ import annotations

from burstmamba.synthesis.config import SCALE, SynthesisConfig, synthesis_preset
from burstmamba.synthesis.synthesize import synthesize_burst

__all__ = ["SCALE", "SynthesisConfig", "synthesis_preset", "synthesize_burst"]
