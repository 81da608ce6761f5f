"""Learning rates and clocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from training_toys import PHASE

from burstmamba.training.chance import burst_length, seed_of
from burstmamba.training.recipe import Phase
from burstmamba.training.schedule import ema_weight, phase_clock, rate_at

COSINE = Phase("p", steps=100, batch=1, patch=8, rate=1.0, final_rate=0.1, warmup=10)


def test_values_of_rates():
    assert rate_at(COSINE, 0, 0.0) == pytest.approx(0.1)
    assert rate_at(COSINE, 4, 0.0) == pytest.approx(0.5)
    assert rate_at(COSINE, 50, 0.5) == pytest.approx(0.55)
    assert rate_at(COSINE, 99, 1.0) == pytest.approx(0.1)
    assert rate_at(COSINE, 200, 1.7) == pytest.approx(0.1)
    constant = replace(COSINE, schedule="constant")
    assert rate_at(constant, 4, 0.0) == pytest.approx(0.5)
    assert rate_at(constant, 99, 0.99) == 1.0


def test_average_starts_short():
    assert ema_weight(0.999, 0) == pytest.approx(0.9)
    assert ema_weight(0.999, 10**6) == pytest.approx(0.001)


def test_step_clock_counts_steps():
    clock = phase_clock((COSINE, replace(COSINE, name="q", steps=300)), 1, by_time=False)
    clock.tick(3, 1e9, None)
    assert clock.position(75) == pytest.approx(0.25)


def test_wall_clock_shares_the_time_and_extrapolates():
    """Two phases of 100 and 300 steps share 80 s as 20 and 60; between looks the measured pace counts."""
    clock = phase_clock((COSINE, replace(COSINE, name="q", steps=300)), 1, by_time=True)
    clock.tick(0, 20.0, 80.0)
    assert clock.position(1) == pytest.approx(0.0)  # no pace yet
    clock.tick(1, 26.0, 80.0)
    assert clock.position(1) == pytest.approx(0.1)
    clock.tick(3, 28.0, 80.0)
    assert clock.position(3) == pytest.approx(8 / 60)
    assert clock.position(13) == pytest.approx(18 / 60)
    assert clock.position(55) >= 1
    clock.tick(3, 28.0, 56.0)  # less is left than was thought: the phase is 14 to 56
    assert clock.position(3) == pytest.approx(14 / 42)


def test_preparation_takes_nothing_of_the_first_phase():
    """Compiling for 40 of 100 seconds: the first step is at the schedule's beginning, the last at its end."""
    clock = phase_clock((COSINE,), 0, by_time=True)
    clock.tick(0, 40.0, 100.0)
    assert clock.position(0) == 0
    clock.tick(10, 70.0, 100.0)
    assert clock.position(10) == pytest.approx(0.5)
    clock.tick(20, 100.0, 100.0)
    assert clock.position(20) == pytest.approx(1.0)


def test_pauses_do_not_change_the_pace():
    """Steps of 1 s, then a validation of 30 s: the clock is 30 s on, the next steps still take 1 s."""
    clock = phase_clock((COSINE,), 0, by_time=True)
    clock.tick(0, 0.0, 100.0)
    clock.tick(10, 10.0, 100.0)
    clock.rest(40.0)
    assert clock.position(10) == pytest.approx(0.4) and clock.position(20) == pytest.approx(0.5)
    clock.tick(20, 50.0, 100.0)
    assert clock.position(30) == pytest.approx(0.6)


def test_burst_lengths_follow_the_table():
    """The same step always draws the same length; the shares are those of the table."""
    drawn = [burst_length(PHASE, 7, step) for step in range(2000)]
    assert drawn == [burst_length(PHASE, 7, step) for step in range(2000)]
    counts = Counter(drawn)
    assert set(counts) == {1, 3}
    assert counts[1] / 2000 == pytest.approx(0.3, abs=0.04)
    assert drawn != [burst_length(PHASE, 8, step) for step in range(2000)]


def test_seeds_differ():
    seeds = {seed_of(seed, what, step) for seed in range(3) for what in ("a", "b") for step in range(50)}
    assert len(seeds) == 300 and all(0 <= seed < 2**63 for seed in seeds)
