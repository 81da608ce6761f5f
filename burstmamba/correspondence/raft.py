"""Frozen RAFT (torchvision's) as an estimator of local motion; needs the extra `flow`."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.error import URLError

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from burstmamba.correspondence.dense import Flow
from burstmamba.errors import InputError

# RAFT correlates all pairs of 8×8 cells: its memory grows with the square of the area.
LONGEST_SIDE = 1024
SMALLEST_SIDE = 128
UPDATES = 20

# The authors' key names → torchvision's, tried in this order on what is left of a key.
RENAMES = (
    (r"^module\.", ""),
    (r"^fnet\.", "feature_encoder."),
    (r"^cnet\.", "context_encoder."),
    (r"(layer\d\.\d)\.conv(\d)\.", r"\1.convnormrelu\2.0."),
    (r"(layer\d\.\d)\.norm(\d)\.", r"\1.convnormrelu\2.1."),
    (r"^(feature|context)_encoder\.conv1\.", r"\1_encoder.convnormrelu.0."),
    (r"^(feature|context)_encoder\.norm1\.", r"\1_encoder.convnormrelu.1."),
    (r"^(feature|context)_encoder\.conv2\.", r"\1_encoder.conv."),
    (r"^update_block\.encoder\.convc(\d)\.", r"update_block.motion_encoder.convcorr\1.0."),
    (r"^update_block\.encoder\.convf(\d)\.", r"update_block.motion_encoder.convflow\1.0."),
    (r"^update_block\.encoder\.conv\.", "update_block.motion_encoder.conv.0."),
    (r"^update_block\.gru\.conv([zrq])(\d)\.", r"update_block.recurrent_block.convgru\2.conv\1."),
    (r"^update_block\.gru\.conv([zrq])\.", r"update_block.recurrent_block.convgru1.conv\1."),
    (r"^update_block\.mask\.0\.", "mask_predictor.convrelu.0."),
    (r"^update_block\.mask\.2\.", "mask_predictor.conv."),
)


def torchvision_keys(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights under torchvision's names, whichever of the two namings they came in."""
    if any(key.removeprefix("module.").startswith("feature_encoder.") for key in weights):
        return {key.removeprefix("module."): value for key, value in weights.items()}
    renamed = {}
    for key, value in weights.items():
        # The authors register the shortcut's norm twice (the only third norm with weights); `downsample` holds it too.
        if re.search(r"layer\d\.0\.norm3\.", key):
            continue
        for pattern, replacement in RENAMES:
            key = re.sub(pattern, replacement, key)
        renamed[key] = value
    return renamed


def load_raft(name: str, weights: str | Path | None = None, device: str | None = None) -> Flow:
    """RAFT as a function of two planes.

    Args:
        name: "raft-small" or "raft-large".
        weights: .safetensors or .pth file in torchvision's or the authors' naming; None = torchvision's published ones.
        device: where to run; a GPU when there is one.
    """
    network = _build(name, weights)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    network = network.to(place).eval().requires_grad_(False)
    return lambda first, second: _flow(network, first, second, place)


def _build(name: str, weights: str | Path | None) -> nn.Module:
    try:
        from torchvision.models import optical_flow  # pyright: ignore[reportMissingImports] (an extra)
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"{name} needs torchvision, which cannot be imported here ({error}): "
            'install "burstmamba[flow]" or use the method "dense", which needs no weights.'
        ) from None
    small = name == "raft-small"
    build = optical_flow.raft_small if small else optical_flow.raft_large
    if weights is None:
        published = optical_flow.Raft_Small_Weights.DEFAULT if small else optical_flow.Raft_Large_Weights.DEFAULT
        try:
            return build(weights=published)
        except (URLError, OSError) as error:
            raise InputError(
                f"{name}'s published weights could not be downloaded ({error}): "
                'give a file of them, or use the method "dense", which needs none.'
            ) from None
    network = build(weights=None)
    try:
        network.load_state_dict(torchvision_keys(_read(Path(weights))))
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise InputError(f"{weights} does not hold the weights of {name}: {first[:200]}") from None
    return network


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise InputError(f"no file of RAFT weights at {path}: give a .safetensors or .pth file.")
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


@torch.no_grad()
def _flow(network: nn.Module, first: Tensor, second: Tensor, device: torch.device) -> Tensor:
    """Flow (2, h, w) in pixels between planes (h, w)."""
    h, w = first.shape
    factor = max(1, -(-max(h, w) // LONGEST_SIDE))
    pair = torch.stack((first, second))[:, None].to(device)  # (2, 1, h, w)
    if factor > 1:
        pair = F.avg_pool2d(pair, factor)
    small_h, small_w = pair.shape[-2:]
    right = max(SMALLEST_SIDE, -(-small_w // 8) * 8) - small_w
    bottom = max(SMALLEST_SIDE, -(-small_h // 8) * 8) - small_h
    # RAFT was trained on [−1, 1]; the range of a dim or hazy burst is stretched to it.
    low, high = torch.quantile(pair[0, 0, ::2, ::2].flatten()[:4_000_000], torch.tensor([0.002, 0.998], device=device))
    pair = ((pair - low) / (high - low).clamp(min=0.02) * 2 - 1).clamp(-1, 1)
    pair = F.pad(pair, (0, right, 0, bottom), mode="replicate").expand(-1, 3, -1, -1)
    flow = network(pair[:1], pair[1:], num_flow_updates=UPDATES)[-1][..., :small_h, :small_w].float().cpu()
    if factor == 1:
        return flow[0]
    # A cell of the small flow lies at factor·k + (factor − 1)/2: what F.interpolate assumes of half-pixel centres.
    cells = factor * F.interpolate(flow, scale_factor=factor, mode="bilinear", align_corners=False)
    return F.pad(cells, (0, w - cells.shape[-1], 0, h - cells.shape[-2]), mode="replicate")[0]
