"""Freed memory that stays with the process, seen by the pages it has to fetch."""

import subprocess
import sys

import pytest

# Allocates, fills and frees 64 MiB twenty times after a first time; prints the page faults of the twenty.
FAULTS = """
import resource, torch
from burstmamba.memory import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
torch.ones(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> int:
    run = subprocess.run([sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's settings")
def test_pages_are_fetched_once():
    assert faults(True) < faults(False) / 3
