"""The house rules that a machine can check."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "burstmamba"
# part -> parts of the package it may import; some are leaves for everyone.
LEAVES = {"errors", "memory", "device", "folders", "workers", "burst", "correspondence"}
ALLOWED = {
    "errors": set(),
    "memory": set(),
    "device": {"errors"},
    "folders": {"errors"},
    "workers": set(),
    "settings": {"errors"},
    "burst": {"errors"},
    "correspondence": {"errors", "folders", "burst", "correspondence", "kernels"},
    "kernels": {"errors", "kernels"},
    "model": LEAVES | {"kernels", "model"},
    "checkpoint": LEAVES | {"model", "kernels", "hub"},
    "files": LEAVES | {"files"},
    "restoration": LEAVES | {"restoration", "files", "model", "kernels", "checkpoint"},
    "synthesis": LEAVES | {"synthesis", "data"},
    "data": LEAVES | {"data", "synthesis", "files", "settings"},
    "training": LEAVES
    | {"training", "model", "kernels", "checkpoint", "data", "synthesis", "evaluation", "recipes", "files", "settings"},
    "recipes": {"recipes", "training", "model", "synthesis", "data", "errors"},
}


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "burstmamba":
            found.add((node.module.split(".") + ["__init__"])[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("burstmamba.")}
    return found - {"__init__"}


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_imports_point_one_way(part):
    files = [PACKAGE / f"{part}.py"] if (PACKAGE / f"{part}.py").exists() else list((PACKAGE / part).rglob("*.py"))
    assert files
    for file in files:
        assert imports_of(file) <= ALLOWED[part], f"{file.relative_to(PACKAGE)} imports against the direction"


def test_burst_stream_receives_no_keyframe_feature():
    source = (PACKAGE / "model" / "burst_stream.py").read_text()
    arguments = {a.arg for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) for a in n.args.args}
    assert arguments <= {"self", "config", "features", "correspondence", "frames", "stage"}


def test_the_command_starts_light():
    """Nothing heavy before `main`: help is quick, and Ctrl-C is answered from the start."""
    code = "import sys, burstmamba.cli; assert not {'torch', 'numpy', 'cv2'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
