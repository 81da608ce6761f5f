"""Work in threads ahead of its use: order, bounds and errors."""

from __future__ import annotations

import os
import threading
import time
import warnings

import numpy as np
import pytest
from PIL import Image

from burstmamba.files import read_burst
from burstmamba.files.ahead import ahead


def test_results_come_in_order():
    def work(i: int) -> int:
        time.sleep(0.01 * (i % 3 == 0))
        return i * i

    assert list(ahead(work, range(40), most=8)) == [i * i for i in range(40)]
    assert list(ahead(work, [])) == []


def test_only_a_few_items_are_held():
    held, most, lock = 0, 0, threading.Lock()

    def work(i: int) -> int:
        nonlocal held, most
        with lock:
            held += 1
            most = max(most, held)
        return i

    for _ in ahead(work, range(50), most=2):
        time.sleep(0.002)
        with lock:
            held -= 1
    assert most <= min(2, os.cpu_count() or 1) + 1


def test_an_error_comes_in_its_place_and_ends_the_work():
    begun = []

    def work(i: int) -> int:
        begun.append(i)
        if i == 3:
            raise ValueError("the fourth")
        return i

    seen = []
    with pytest.raises(ValueError, match="the fourth"):
        for value in ahead(work, range(1000)):
            seen.append(value)
    assert seen == [0, 1, 2] and len(begun) < 1000


def test_warnings_are_as_before_after_reading_in_threads(tmp_path):
    for i in range(12):
        pixels = np.random.default_rng(i).integers(0, 256, (90, 120, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    before = list(warnings.filters)
    read_burst(tmp_path)
    assert list(warnings.filters) == before
