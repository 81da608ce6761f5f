"""Model cards and the README's table say what the shipped files and the committed scores say."""

import hashlib
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest
import torch
from safetensors.torch import load_file

from burstmamba.checkpoint import WEIGHTS, load_model, shipped_models

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
COLUMNS = ("bicubic", "classical L=14", "L=1", "L=2", "L=5", "L=10", "L=14", "L=14 copies")
SCENES = {
    "still scene": "still",
    "strong noise": "noisy",
    "moving object": "moving",
    "blurred and wrong frames in the burst": "badframe",
    "RAW mosaics (linear)": "raw",
    "RAW mosaics as in SyntheticBurst (linear)": "raw-synburst",
}

pytestmark = pytest.mark.parametrize("name", ["light", "light-raw", "paper"])


def scores(name: str) -> dict:
    return json.loads((RESULTS / f"openburst_{name}.json").read_text())


def means(name: str, measure: str = "psnr") -> dict[str, dict[str, float]]:
    """The mean over images by subset and method."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in scores(name)["scores"]:
        if measure in row:
            found[row["subset"]][row["method"]].append(row[measure])
    return {subset: {method: mean(values) for method, values in rows.items()} for subset, rows in found.items()}


def cells(text: str, first: str) -> list[str]:
    """The other cells of the first row that begins with this one."""
    row = re.search(rf"^\| {re.escape(first)} \|(.*)\|$", text, re.MULTILINE)
    assert row, f"no row {first}"
    return [cell.strip() for cell in row[1].split("|")]


def test_the_card_and_the_scores_are_of_the_shipped_file(name):
    content = (WEIGHTS / f"{name}.safetensors").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    card = (WEIGHTS / f"{name}.md").read_text()
    assert f"float16, {len(content) / 1e6:.1f} MB, sha256 `{digest}`" in card
    header = scores(name)["header"]
    assert header["weights"] == f"{name}.safetensors" and digest.startswith(header["weights_sha256"])
    thirty = json.loads((RESULTS / f"openburst-30_{name}.json").read_text())["header"]
    assert digest.startswith(thirty["weights_sha256"])


def test_the_file_is_half_precision_and_whole(name):
    tensors = load_file(WEIGHTS / f"{name}.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    model = load_model(name)
    assert name in shipped_models()
    assert sum(tensor.numel() for tensor in tensors.values()) == sum(p.numel() for p in model.parameters())
    assert all(p.isfinite().all() for p in model.parameters())


def test_the_card_states_the_committed_means(name):
    text, more = (WEIGHTS / f"{name}.md").read_text().split("SSIM and LPIPS-Alex")
    ssim, lpips = means(name, "ssim"), means(name, "lpips")
    for subset, found in means(name).items():
        assert cells(text, subset)[:8] == [f"{found[method]:.2f}" for method in COLUMNS]
        pairs = [f"{ssim[subset][method]:.3f}, {lpips[subset][method]:.3f}" for method in (*COLUMNS[:3], "L=14")]
        assert cells(more, subset) == pairs


def test_the_readme_states_the_committed_means(name):
    text, found = (ROOT / "README.md").read_text(), means(name)
    for scene, subset in SCENES.items():
        if subset in found:
            row = cells(text, scene)
            if name == "paper":
                assert row[4] == f"{found[subset]['L=14']:.2f}"
            else:
                assert row[:4] == [f"{found[subset][method]:.2f}" for method in (*COLUMNS[:3], "L=14")]
