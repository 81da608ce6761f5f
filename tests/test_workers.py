"""Processes that work for this one."""

import signal
import subprocess
import sys
import threading

import pytest

from burstmamba.workers import deaf_to_interrupts

ASK = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"]


@pytest.mark.skipif(sys.platform == "win32", reason="there signals are not inherited")
def test_who_is_started_here_does_not_hear_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with deaf_to_interrupts():
            inside = subprocess.run(ASK, capture_output=True, text=True, check=True).stdout
        outside = subprocess.run(ASK, capture_output=True, text=True, check=True).stdout
        assert (inside, outside) == ("True\n", "False\n")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_may_start_processes_too():
    done = []

    def work():
        with deaf_to_interrupts():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
