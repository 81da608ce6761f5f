"""`burstmamba doctor`."""

import json

import pytest
from typer.testing import CliRunner

import burstmamba
from burstmamba.cli import build_app
from burstmamba.kernels.cpu import library as cpu_library


def examine():
    result = CliRunner().invoke(build_app(), ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.mark.skipif(cpu_library.library() is None, reason="the package was built without a C++ compiler")
def test_says_which_scan_runs():
    report = examine()
    assert report["scan backends"]["cpp"] == f"cpu: available ({cpu_library.abilities()})"
    assert cpu_library.abilities().split(", ")[0] in ("AVX-512", "AVX2", "baseline instructions")
    assert report["scan backends"]["reference"].startswith("cpu: available")


def test_says_that_there_was_no_compiler(library_folder):
    said = examine()["scan backends"]["cpp"]
    assert said.startswith("cpu: the package was installed without a C++ compiler; install one")


def test_prints_every_section():
    result = CliRunner().invoke(build_app(), ["doctor"])
    assert result.exit_code == 0, result.output
    for word in ("versions", "torch", "devices", "scan backends", "reference", "models", "light", "extras", "heif"):
        assert word in result.output


def test_the_version():
    done = CliRunner().invoke(build_app(), ["--version"])
    assert done.exit_code == 0 and done.output.strip() == burstmamba.__version__
