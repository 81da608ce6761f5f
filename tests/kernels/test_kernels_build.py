"""Building the C++ kernels: without a compiler, and twice at once."""

import ctypes
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from burstmamba.correspondence.field import Correspondence
from burstmamba.kernels.cpu import library as cpu_library
from burstmamba.kernels.selective_scan import select_backend
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("burstmamba/kernels/cpu")
pytestmark = pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools is not installed")


@pytest.fixture
def checkout(tmp_path):
    """What a build needs, and no library."""
    (tmp_path / FOLDER).mkdir(parents=True)
    sources = [path.relative_to(ROOT) for ending in ("cpp", "h") for path in (ROOT / FOLDER).glob(f"*.{ending}")]
    for name in (Path("setup.py"), *sources):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def build(checkout, *arguments, **environment):
    command = [sys.executable, "setup.py", *(arguments or ("build_ext", "--inplace"))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=checkout, env=os.environ | environment, **pipes)


def libraries(checkout):
    return sorted((checkout / FOLDER).glob("_kernels_cpu*"))


def test_without_a_compiler_the_rest_is_installed(checkout):
    run = build(checkout, CC="/no/compiler", CXX="/no/compiler")
    output = run.communicate()[0]
    assert run.returncode == 0 and "_kernels_cpu" in output and "failed" in output, output
    assert not libraries(checkout)


@pytest.mark.skipif(cpu_library.library() is None, reason="the package was built without a C++ compiler")
def test_without_the_library_the_network_gives_the_same(library_folder, monkeypatch):
    torch.manual_seed(0)
    model = BurstMamba(replace(preset("light"), blocks=(1,))).eval()
    burst = torch.rand(1, 3, model.config.in_channels, 8, 9)
    maps = Correspondence.identity(burst)
    with torch.no_grad():
        assert select_backend(burst).name == "reference"
        plain = model(burst, maps)
        monkeypatch.undo()
        cpu_library.library.cache_clear()
        assert select_backend(burst).name == "cpp"
        torch.testing.assert_close(model(burst, maps), plain, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_two_builds_at_once_do_not_collide(checkout):
    runs = [build(checkout) for _ in range(2)]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    (library,) = libraries(checkout)
    assert ctypes.CDLL(str(library)).scan_problem_size() == ctypes.sizeof(cpu_library.ScanProblem)
    assert not (checkout / "build").exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_two_installations_at_once_do_not_collide(checkout):
    """As `pip install .` builds them: each wheel holds a library, and the checkout nothing new."""
    before = set(checkout.rglob("*"))
    runs = [build(checkout, "bdist_wheel", "--dist-dir", f"wheel-{i}") for i in range(2)]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    wheels = [path for path in checkout.rglob("*") if path not in before and path.is_file()]
    assert sorted(path.parent.name for path in wheels) == ["wheel-0", "wheel-1"]
    for wheel in wheels:
        assert any("_kernels_cpu" in name for name in zipfile.ZipFile(wheel).namelist())
