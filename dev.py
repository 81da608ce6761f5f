#!/usr/bin/env python3
"""Set up and run BurstMamba from a clone: `python3 dev.py demo`, `python3 dev.py test`. Needs Python ≥ 3.11 alone."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
# An exact version: the CPU build where one is offered. A torch that is already in the environment is kept.
TORCH = "torch==2.13.0"


def pip(*arguments: str) -> None:
    """Run pip inside the environment."""
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def installed_torch() -> str | None:
    """The version of torch in the environment, or None."""
    code = "import importlib.metadata as m; print(m.version('torch'))"
    result = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else None


def set_up(extras: str) -> None:
    """Make `.venv` hold the package with these extras; quick when nothing changed."""
    if sys.version_info < (3, 11):  # noqa: UP036 (this runs before the package says so)
        sys.exit(f"BurstMamba needs Python 3.11 or newer, this is {sys.version.split()[0]}.")
    kernels = ROOT / "burstmamba" / "kernels"
    sources = [path for pattern in ("*.cpp", "*.h") for path in sorted(kernels.rglob(pattern))]
    files = [ROOT / "pyproject.toml", ROOT / "setup.py", *sources]
    state = hashlib.sha256(b"".join(file.read_bytes() for file in files) + extras.encode()).hexdigest()
    stamp = ENVIRONMENT / f"burstmamba-{extras}"
    if stamp.exists() and stamp.read_text() == state:
        return
    print(f"setting up {ENVIRONMENT} …", flush=True)
    if not PYTHON.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    if installed_torch() is None:
        pip(TORCH)
    constraint = ENVIRONMENT / "constraint.txt"
    constraint.write_text(f"torch=={installed_torch()}\n")
    pip("setuptools>=77", "wheel")
    pip("--constraint", str(constraint), "--no-build-isolation", "--editable", f"{ROOT}[{extras}]")
    stamp.write_text(state)


def demo(rest: list[str]) -> int:
    """Super-resolve the burst that ships with the package and say where the picture is."""
    set_up("app")
    burst, out = ROOT / "burstmamba" / "examples" / "fig", ROOT / "demo-out"
    out.mkdir(exist_ok=True)
    command = [PYTHON, "-m", "burstmamba", "restore", str(burst), "-o", str(out / "restored.png")]
    command += ["--compare", str(out / "compare.png"), "--force", *rest]
    code = subprocess.run(command).returncode
    if code == 0:
        print(f"\nrestored picture: {out / 'restored.png'}\nbefore and after: {out / 'compare.png'}")
    return code


def install_browser() -> None:
    """Get Chromium for the page's tests where that is one command; elsewhere they skip and say why."""
    if shutil.which("chromium") or not shutil.which("apt-get") or os.geteuid() != 0:
        return
    print("installing chromium for the tests of the page …", flush=True)
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", "--quiet", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test(rest: list[str]) -> int:
    """Run the tests."""
    set_up("app,dev")
    install_browser()
    return subprocess.run([PYTHON, "-m", "pytest", "-n", "2", *rest], cwd=ROOT).returncode


def main() -> int:
    """Parse and run one command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("demo", "test"))
    arguments, rest = parser.parse_known_args()
    return {"demo": demo, "test": test}[arguments.command](rest)


if __name__ == "__main__":
    sys.exit(main())
