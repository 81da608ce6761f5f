"""A run's weights in small files, for moving between machines; and starting from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from burstmamba.checkpoint import WEIGHTS, read_checkpoint, shipped_models, write_atomically
from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import ModelConfig
from burstmamba.training.grow import grow, larger
from burstmamba.training.snapshot import is_snapshot, read_snapshot

MIB = 1 << 20
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Weights:
    """What a warm start begins with."""

    config: ModelConfig
    model: dict[str, Tensor]
    """float32, as trained; the average when only that is known."""
    ema: dict[str, Tensor]
    notes: dict[str, str]


def export_weights(
    folder: Path,
    model: BurstMamba,
    ema: BurstMamba,
    *,
    dtype: str = "fp16",
    shard_mib: float = 15.0,
    notes: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write trained and averaged weights as `shard-00001-of-0000N.safetensors`; each file is complete in itself.

    Args:
        folder: where the shards go; older shards there are replaced.
        model: the weights as trained.
        ema: their average.
        dtype: `fp16`, `bf16` or `fp32`.
        shard_mib: largest size of one file in MiB.
        notes: further metadata (steps, scores).
    """
    named = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    named |= {f"ema.{name}": tensor for name, tensor in ema.state_dict().items()}
    compact = {name: _compact(name, tensor, DTYPES[dtype]) for name, tensor in named.items()}
    shards = _split(compact, int(shard_mib * MIB))
    metadata = {"format": "burstmamba-export", "config": model.config.to_json(), **(notes or {})}
    written = []
    for number, shard in enumerate(shards, 1):
        path = folder / f"shard-{number:05d}-of-{len(shards):05d}.safetensors"
        write_atomically(path, save(shard, metadata=metadata))
        written.append(path)
    for path in folder.glob("shard-*.safetensors"):
        if path not in written:
            path.unlink()
    return written


def _compact(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    small = tensor.detach().to("cpu", dtype).contiguous()
    if not torch.isfinite(small).all():
        raise InputError(f"{name} does not fit {dtype} or is not finite; export with another precision.")
    return small


def _split(tensors: dict[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """Fill one shard after the other; the room for names and shapes is counted too."""
    shards: list[dict[str, Tensor]] = [{}]
    used = header = 64 * 1024
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size() + len(name) + 128
        if size + header > limit:
            raise InputError(f"{name} alone needs {size / MIB:.1f} MiB; choose larger shards.")
        if used + size > limit:
            shards.append({})
            used = header
        shards[-1][name] = tensor
        used += size
    return shards


def read_weights(path: Path) -> Weights:
    """Read an export (its folder, or one of its shards), weights, a run's checkpoint, or a shipped model by name."""
    if not path.exists() and path.name in shipped_models():
        path = WEIGHTS / f"{path.name}.safetensors"
    if path.is_file() and is_snapshot(path):
        found = read_snapshot(path)
        config = ModelConfig.from_json(json.dumps(json.loads(found.recipe)["model"]))
        return Weights(config, found.model, found.ema, {"steps": str(found.place.step)})
    if path.is_file() and not path.name.startswith("shard-"):
        file = read_checkpoint(path)
        weights = {name: tensor.float() for name, tensor in file.weights.items()}
        return Weights(file.config, weights, weights, file.notes)
    folder = path if path.is_dir() else path.parent
    found = sorted(folder.glob("shard-*-of-*.safetensors"))
    if not found:
        raise InputError(
            f"no weights at {path}: expected a .safetensors file, a folder of exported shards or a shipped model "
            f"({', '.join(shipped_models())})."
        )
    expected = int(found[0].stem.rsplit("-", 1)[-1])
    if len(found) != expected:
        raise InputError(f"{folder} holds {len(found)} of {expected} shards; copy the missing ones.")
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "ema": {}}
    metadata: dict[str, str] = {}
    for shard in found:
        try:
            with safe_open(shard, framework="pt") as file:
                metadata = dict(file.metadata() or {})
                for key in file.keys():  # noqa: SIM118 (not a dict)
                    part, name = key.split(".", 1)
                    parts[part][name] = file.get_tensor(key).float()
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise InputError(f"{shard} is not a complete shard of an export ({error}); copy it again.") from error
    try:
        config = ModelConfig.from_json(metadata.pop("config"))
    except (KeyError, json.JSONDecodeError) as error:
        raise InputError(f"{folder} holds shards without a configuration ({error}); export them again.") from error
    return Weights(config, parts["model"], parts["ema"], metadata)


def warm_start(model: BurstMamba, ema: BurstMamba, path: Path) -> Weights:
    """Begin with exported weights; a smaller network's may begin a larger one's, those of RGB frames those of RAW ones.

    Tokens of a RAW burst carry more of their phase: projections of the burst stream that are wider than the given ones
    take those for their first inputs and keep their fresh weights for the others.

    Returns:
        What was read.
    """
    weights = read_weights(path)
    for module, state in ((model, weights.model), (ema, weights.ema)):
        own = module.state_dict()
        if larger(weights.config, model.config):
            state = grow(state, weights.config, model)
        missing = [name for name in own if name not in state and not name.startswith("burst.")]
        wrong = [name for name, tensor in state.items() if name not in own or not begins(name, tensor, own[name])]
        if missing or wrong:
            raise InputError(
                f"{path} holds another network than the recipe's: {(missing or wrong)[0]} does not fit; "
                "choose the recipe that it was trained with."
            )
        with torch.no_grad():
            for name, tensor in state.items():
                own[name][(slice(None), slice(tensor.shape[1])) if tensor.ndim == 2 else ...].copy_(tensor)
    return weights


def begins(name: str, tensor: Tensor, own: Tensor) -> bool:
    """Whether a tensor can begin one of ours: of its shape, or a projection of the burst stream with fewer inputs."""
    narrower = tensor.ndim == own.ndim == 2 and len(tensor) == len(own) and tensor.shape[1] < own.shape[1]
    return tensor.shape == own.shape or (name.startswith("burst.") and narrower)
