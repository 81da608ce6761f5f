"""Everything random in a run is a function of (seed, what for, step): a resumed run needs no generator state."""

from __future__ import annotations

import hashlib
import random

from burstmamba.training.recipe import Phase


def seed_of(*parts: int | str) -> int:
    """A 63-bit seed that differs whenever one of `parts` does."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def burst_length(phase: Phase, seed: int, step: int) -> int:
    """L of one step, drawn from the phase's table; the same in every process."""
    lengths, chances = zip(*phase.frames, strict=True)
    return random.Random(seed_of(seed, "length", step)).choices(lengths, chances)[0]
