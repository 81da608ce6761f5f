"""`burstmamba doctor`: what is installed, what runs, and how to get the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

# Extra of the package -> modules it brings, and what they are for.
EXTRAS = {
    "heif": (("pillow_heif",), "HEIC photographs"),
    "train": (("tensorboard",), "training curves"),
    "metrics": (("torchmetrics", "lpips", "torchvision"), "LPIPS"),
    "flow": (("torchvision",), "RAFT correspondence"),
    "app": (("gradio",), "the web page"),
    "hub": (("huggingface_hub",), "models from the Hugging Face hub"),
    "batch": (("ray",), "many bursts on several machines"),
    "plot": (("matplotlib",), "plots and figures"),
}
PACKAGES = ("torch", "numpy", "opencv-python-headless", "pillow", "safetensors", "tifffile", "rawpy", "triton")


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say which versions, devices, scan backends, models and extras are here, and what is missing."""
    report = examine()
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    console = Console(soft_wrap=True)
    for title in ("versions", "devices", "scan backends", "models", "extras"):
        table = Table(title=title, show_header=False, title_justify="left")
        for name, value in report[title].items():
            table.add_row(name, escape(value))
        console.print(table)


def examine() -> dict[str, dict[str, str]]:
    """The report as sections of name → finding."""
    import torch

    from burstmamba import __version__
    from burstmamba.checkpoint import WEIGHTS, shipped_models
    from burstmamba.kernels.cpu.library import abilities
    from burstmamba.kernels.selective_scan import BACKENDS, cpu_backend

    devices = {"cpu": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"}
    probe = {"cpu": torch.zeros(1)}
    if torch.cuda.is_available():
        devices["cuda"] = torch.cuda.get_device_name()
        probe["cuda"] = torch.zeros(1, device="cuda")
    else:
        devices["cuda"] = "none found"
    backends = {
        backend.name: "; ".join(f"{device}: {backend.unavailable(x) or 'available'}" for device, x in probe.items())
        for backend in BACKENDS
    }
    if cpu_backend.unavailable(probe["cpu"]) is None:
        backends["cpp"] += f" ({abilities()})"
    models = {name: f"{(WEIGHTS / f'{name}.safetensors').stat().st_size / 2**20:.1f} MiB" for name in shipped_models()}
    extras = {}
    for extra, (modules, purpose) in EXTRAS.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        command = f"pip install 'burstmamba[{extra}]'"
        extras[extra] = f"missing {', '.join(missing)} ({purpose}): {command}" if missing else f"installed ({purpose})"
    return {
        "versions": {"burstmamba": __version__, "python": platform.python_version()}
        | {package: version_of(package) for package in PACKAGES},
        "devices": devices,
        "scan backends": backends,
        "models": models or {"none": "no trained weights in the package"},
        "extras": extras,
    }


def version_of(package: str) -> str:
    """The installed version; OpenCV may come under another name."""
    for name in (package, package.removesuffix("-headless")):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # perhaps under the next name
    return "not installed"
