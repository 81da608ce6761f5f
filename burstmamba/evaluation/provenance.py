"""Where a number comes from: code, weights, machine and time, kept beside every score."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

import burstmamba
from burstmamba.data.openburst_photographs import digest


def provenance(device: torch.device | str, weights: Path | None = None) -> dict[str, str]:
    """Commit, hardware, versions and date of a run, and what its weights say about themselves."""
    facts = {
        "burstmamba": burstmamba.__version__,
        "commit": code_commit(),
        "hardware": hardware(torch.device(device)),
        "torch": torch.__version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    if weights is not None:
        from burstmamba.checkpoint import read_checkpoint

        facts["weights"] = weights.name
        facts["weights_sha256"] = file_hash(weights)
        notes = read_checkpoint(weights).notes
        facts.update({f"weights_{name}": text for name, text in notes.items() if name != "format"})
    return facts


def code_commit() -> str:
    """The commit of the source tree, `-dirty` when its files differ; $BURSTMAMBA_COMMIT without git."""
    folder = Path(burstmamba.__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        commit = git("rev-parse", "--short=10", "HEAD")
        return commit + ("-dirty" if git("status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or no repository
        return os.environ.get("BURSTMAMBA_COMMIT", f"release {burstmamba.__version__}")


def hardware(device: torch.device) -> str:
    """The accelerator's name, or the processor's with its number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    return f"{name}, {torch.get_num_threads()} threads"


def file_hash(path: Path) -> str:
    """SHA-256 of a file, first 16 digits."""
    return digest(path)[:16]
