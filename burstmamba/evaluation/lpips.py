"""LPIPS with AlexNet features, from files: no download, no import of the packages that carry the weights.

Zhang et al., "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", version 0.1.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from pickle import UnpicklingError

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from burstmamba.errors import InputError
from burstmamba.evaluation.metrics import size_text

BACKBONE_VARIABLE = "BURSTMAMBA_LPIPS_BACKBONE"
HEADS_VARIABLE = "BURSTMAMBA_LPIPS_HEADS"

# AlexNet's five convolutions: index in torchvision's `features`, shape, and whether a pooling comes before.
_LAYERS = (
    (0, 3, 64, 11, 4, 2, False),
    (3, 64, 192, 5, 1, 2, True),
    (6, 192, 384, 3, 1, 1, True),
    (8, 384, 256, 3, 1, 1, False),
    (10, 256, 256, 3, 1, 1, False),
)
_MIN_SIZE = 64


class Lpips(nn.Module):
    """Distance of two images in the space of AlexNet's features, weighted by learnt heads."""

    shift: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(c_in, c_out, kernel, stride, padding) for _, c_in, c_out, kernel, stride, padding, _ in _LAYERS
        )
        self.heads = nn.ParameterList(torch.zeros(layer[2]) for layer in _LAYERS)
        self.register_buffer("shift", torch.tensor((-0.030, -0.088, -0.188)).view(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor((0.458, 0.448, 0.450)).view(1, 3, 1, 1))

    @torch.no_grad()
    def forward(self, prediction: Tensor, target: Tensor, *, signed: bool = True) -> Tensor:
        """Perceptual distance, 0 for equal images.

        Args:
            prediction: (b, 3, h, w) in [0, 1].
            target: (b, 3, h, w) in [0, 1].
            signed: stretch to [-1, 1] first, as the metric was made; the burst benchmarks leave it out.

        Returns:
            (b,).
        """
        if min(prediction.shape[-2:]) < _MIN_SIZE:
            raise InputError(
                f"LPIPS needs at least {_MIN_SIZE}×{_MIN_SIZE} pixels, got {size_text(prediction)} without the border; "
                "--no-lpips leaves it out."
            )
        features = torch.cat((prediction, target)).to(self.shift)
        features = ((features * 2 - 1 if signed else features) - self.shift) / self.scale
        distance = torch.zeros(len(prediction), device=features.device)
        for layer, convolution, head in zip(_LAYERS, self.convolutions, self.heads, strict=True):
            if layer[-1]:
                features = F.max_pool2d(features, 3, 2)
            features = F.relu(convolution(features))
            unit = features / (features.square().sum(1, keepdim=True).sqrt() + 1e-10)
            difference = (unit[: len(prediction)] - unit[len(prediction) :]).square()
            distance = distance + torch.einsum("bchw,c->bhw", difference, head).mean(dim=(1, 2))
        return distance


def load_lpips(
    backbone: str | Path | None = None, heads: str | Path | None = None, device: str | torch.device = "cpu"
) -> Lpips:
    """LPIPS-Alex with its weights from local files.

    Args:
        backbone: AlexNet in torchvision's naming (.safetensors or .pth); default: $BURSTMAMBA_LPIPS_BACKBONE,
            then torch hub's cache.
        heads: the linear heads `lin0…lin4` (.pth); default: $BURSTMAMBA_LPIPS_HEADS, then the installed
            packages lpips or torchmetrics.
        device: where to put the network.
    """
    network = Lpips()
    features = _read(_find_backbone(backbone))
    linear = _read(_find_heads(heads))
    try:
        for convolution, layer in zip(network.convolutions, _LAYERS, strict=True):
            weights = {name: features[f"features.{layer[0]}.{name}"].float() for name in ("weight", "bias")}
            convolution.load_state_dict(weights)
        for index, head in enumerate(network.heads):
            head.data.copy_(linear[f"lin{index}.model.1.weight"].float().flatten())
    except (KeyError, RuntimeError) as error:
        raise InputError(
            f"the LPIPS weights do not fit AlexNet and its five heads ({error}); give torchvision's AlexNet as the "
            "backbone and alex.pth of the package lpips as the heads."
        ) from None
    return network.to(device).eval().requires_grad_(False)


def lpips_available(backbone: str | Path | None = None, heads: str | Path | None = None) -> bool:
    """Whether `load_lpips` would find both files."""
    try:
        _find_backbone(backbone)
        _find_heads(heads)
    except InputError:  # it says what is missing; here only whether something is
        return False
    return True


def _find_backbone(given: str | Path | None) -> Path:
    candidates = [given or os.environ.get(BACKBONE_VARIABLE)]
    if candidates == [None]:
        cache = Path(torch.hub.get_dir()) / "checkpoints"
        candidates = sorted(cache.glob("alexnet*.pth")) if cache.is_dir() else []
    for path in candidates:
        if path and Path(path).is_file():
            return Path(path)
    raise InputError(
        f"LPIPS needs AlexNet's weights and found none{f' at {candidates[0]}' if candidates else ''}; "
        f"give --lpips-backbone FILE, set {BACKBONE_VARIABLE}, or let torchvision download alexnet once."
    )


def _find_heads(given: str | Path | None) -> Path:
    candidates = [given or os.environ.get(HEADS_VARIABLE)]
    if candidates == [None]:
        inside = {"lpips": "weights/v0.1/alex.pth", "torchmetrics": "functional/image/lpips_models/alex.pth"}
        candidates = [_package_folder(package) / path for package, path in inside.items()]
    for path in candidates:
        if path and Path(path).is_file():
            return Path(path)
    raise InputError(
        "LPIPS needs its linear heads (alex.pth) and found none; install the package lpips or torchmetrics, "
        f"give --lpips-heads FILE, or set {HEADS_VARIABLE}."
    )


def _package_folder(package: str) -> Path:
    """Where a package is installed, without importing it (lpips would import torchvision)."""
    spec = importlib.util.find_spec(package)
    return Path(next(iter(spec.submodule_search_locations or [])) if spec else f"{package}-is-not-installed")


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    # What torch's unpickler meets in a file that is no pickle depends on the file's first bytes.
    except (SafetensorError, UnpicklingError, RuntimeError, OSError, EOFError, LookupError, ValueError) as error:
        raise InputError(f"{path} holds no LPIPS weights, or is damaged ({type(error).__name__}).") from None
