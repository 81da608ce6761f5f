"""Freed memory that stays with the process, seen by the pages it has to fetch."""

import subprocess
import sys

import pytest

# Allocates, fills and frees 64 MiB thirty times; prints the page faults of the last twenty.
FAULTS = """
import resource, threading, torch
from burstmamba.memory import keep_freed_memory
torch.set_num_threads(1)
if {keep}:
    assert keep_freed_memory()

def work():
    for turn in range(30):
        if turn == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(2**24)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

thread = threading.Thread(target=work)
thread.start() if {threaded} else work()
"""


def faults(*, keep: bool, threaded: bool) -> int:
    code = FAULTS.format(keep=keep, threaded=threaded)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's settings")
@pytest.mark.parametrize("threaded", (False, True))
def test_pages_are_fetched_once(threaded):
    assert faults(keep=True, threaded=threaded) < faults(keep=False, threaded=threaded) / 3
