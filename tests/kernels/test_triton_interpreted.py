"""The logic of the Triton kernels, run by Triton's interpreter on the CPU."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from normalization_agreement import TOKENS
from normalization_agreement import TOLERANCE as NORMALIZATION_TOLERANCE
from sampling_agreement import SAMPLINGS
from sampling_agreement import TOLERANCE as SAMPLING_TOLERANCE
from scan_agreement import TINY, too_far

pytestmark = [pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"), pytest.mark.slow]


@pytest.fixture(scope="module")
def found():
    """Triton reads TRITON_INTERPRET when it is imported, so the comparison has a process of its own."""
    script = Path(__file__).with_name("interpreted_kernels.py")
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("scan", TINY, ids=str)
def test_scan_values_and_gradients(scan, found):
    assert not too_far(scan, found["scan"][str(scan)])


def test_scan_with_the_default_tuning(found):
    assert not too_far(TINY[2], found["scan"]["default tuning"])


def test_long_paths_forward_alone(found):
    assert not too_far(TINY[4], found["scan"]["long"])


def test_fresh_memory_does_not_leak(found):
    assert not too_far(TINY[4], found["scan"]["fresh memory"])


def test_scan_runs_agree(found):
    assert found["repeats"]


def test_flops(found):
    """The gradients take twice as many again."""
    assert found["flops"] == 3 * 2 * 18 * 5 * (9 * 4 + 1)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_sampling_values_and_gradients(sampling, found):
    for name, error in found["sampling"][str(sampling)].items():
        assert error <= SAMPLING_TOLERANCE[sampling.dtype], name


@pytest.mark.parametrize("tokens", TOKENS, ids=str)
def test_norms_and_residual_sums(tokens, found):
    for name, error in found["normalization"][str(tokens)].items():
        assert error <= NORMALIZATION_TOLERANCE[tokens.dtype if name == "gated" else torch.float32], name


def test_norms_under_autocast(found):
    found = found["autocast"]
    assert found["sum"] < 1e-6 and found["norm"] < 0.02
