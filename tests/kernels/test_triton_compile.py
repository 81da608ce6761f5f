"""Compiling the walks for a GPU, which needs none."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

# Compiles `carry` for an H200 both ways and prints whether the machine code is the same.
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from burstmamba.kernels.selective_scan.triton_compile import without_coalescing
from burstmamba.kernels.selective_scan.triton_walk import carry

constants = {"N": 4, "NP": 4, "BACKWARD": False}
signature = {name: "constexpr" if name in constants else "i32" for name in carry.arg_names}
signature |= {name: "*fp32" for name in ("A", "ends", "starts", "durations")}
places = {(carry.arg_names.index(name),): value for name, value in constants.items()}
source = ASTSource(fn=carry, signature=signature, constexprs=places)
compiled = lambda: triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["cubin"]
plain = compiled()
with without_coalescing():
    fast = compiled()
print(plain == fast, len(plain) > 1000)
"""


def test_the_pass_that_is_left_out_changes_nothing(tmp_path):
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_ALWAYS_COMPILE": "1"}
    environment.pop("TRITON_INTERPRET", None)
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.stdout.split() == ["True", "True"], run.stderr[-2000:]
