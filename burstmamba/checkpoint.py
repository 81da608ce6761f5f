"""Checkpoints: weights and configuration in one safetensors file, written atomically, read safely."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from burstmamba.device import pick_device
from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import ModelConfig, preset
from burstmamba.model.mambair import from_mambair

WEIGHTS = Path(__file__).parent / "weights"
NOT_A_MODEL = {
    "burstmamba-run": "a checkpoint for going on with a training",
    "burstmamba-export": "one part of an exported training",
}
"""Other files of `burstmamba train`, by the format that they name."""


def save_checkpoint(
    path: str | Path,
    model: BurstMamba,
    *,
    state: Mapping[str, Tensor] | None = None,
    half: bool = True,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Write a model to one file; a reader never sees a partial one.

    Args:
        path: where to write (`.safetensors`).
        model: gives the configuration and, without `state`, the weights.
        state: other weights with the same names, such as an exponential moving average.
        half: float16 instead of float32.
        notes: further metadata (training steps, scores).
    """
    dtype = torch.float16 if half else torch.float32
    weights = model.state_dict() if state is None else state
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in weights.items()}
    metadata = {"format": "burstmamba", "config": model.config.to_json(), **(notes or {})}
    write_atomically(Path(path), in_order(save(tensors, metadata=metadata)))


def in_order(content: bytes) -> bytes:
    """A safetensors file with sorted metadata: the same weights make the same bytes, whenever they are saved."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file or nothing; an earlier file stays until the new one is complete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}.") from error
    finally:
        with suppress(OSError):  # a rest that cannot be removed hides nothing
            partial.unlink(missing_ok=True)


@dataclass(frozen=True)
class CheckpointFile:
    """What a checkpoint holds."""

    config: ModelConfig
    weights: dict[str, Tensor]
    notes: dict[str, str]


def read_checkpoint(path: str | Path) -> CheckpointFile:
    """Read weights and configuration; anything wrong with the file is one sentence."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no checkpoint at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a complete safetensors file ({error}); copy or download it again.") from error
    if other := NOT_A_MODEL.get(metadata.get("format", "")):
        raise InputError(
            f"{path} is {other}, not a model; give weights.safetensors or best.safetensors of the run's own folder."
        )
    if "config" not in metadata:
        raise InputError(f"{path} holds weights but no BurstMamba configuration; it was written by another program.")
    try:
        config = ModelConfig.from_json(metadata.pop("config"))
    except (json.JSONDecodeError, TypeError) as error:
        raise InputError(f"{path} has an unreadable configuration ({error}).") from error
    return CheckpointFile(config, weights, metadata)


def load_checkpoint(path: str | Path, device: torch.device | str = "cpu") -> BurstMamba:
    """Rebuild the model that a file describes, ready for inference.

    A file with only `keyframe.*` weights gives the single-image network. Devices are named as in the commands.
    """
    device = pick_device(device) if isinstance(device, str) else device
    file = read_checkpoint(path)
    config = file.config
    if not any(name.startswith("burst.") for name in file.weights):
        config = config.single()
    # Not on `meta`, whose arithmetic imports torch's compiler for two seconds; the caller's random numbers are kept.
    with torch.random.fork_rng(devices=[]):
        model = BurstMamba(config)
    expected = model.state_dict()
    missing, extra = sorted(expected.keys() - file.weights.keys()), sorted(file.weights.keys() - expected.keys())
    if missing or extra:
        what = f"lacks {len(missing)} weights (first: {missing[0]})" if missing else f"has unknown weights ({extra[0]})"
        raise InputError(f"{path} does not fit its own configuration: it {what}.")
    for name, tensor in file.weights.items():
        if tensor.shape != expected[name].shape:
            needed = tuple(expected[name].shape)
            raise InputError(f"{path}: {name} has shape {tuple(tensor.shape)}, its configuration needs {needed}.")
    model.load_state_dict({name: tensor.float() for name, tensor in file.weights.items()}, assign=True)
    return model.to(device).eval()


def load_mambair(path: str | Path, device: torch.device | str = "cpu") -> BurstMamba:
    """The single-image `paper` network with MambaIR's released classical ×4 weights (a `.pth` file)."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or foreign pickle raises whatever its bytes happen to mean
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{path} cannot be read as a PyTorch weights file: {reason}") from error
    state = state.get("params_ema", state.get("params", state)) if isinstance(state, dict) else {}
    model = BurstMamba(preset("paper-single"))
    translated = from_mambair(state)
    missing = sorted(model.state_dict().keys() - translated.keys())
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} weights of MambaIR's classical ×4 network (first: {missing[0]})."
        )
    try:
        model.load_state_dict(translated)
    except RuntimeError as error:
        raise InputError(f"{path} is a MambaIR of another size; the classical ×4 network is needed.") from error
    return model.to(device).eval()


def shipped_models() -> list[str]:
    """Names of the models inside the package."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def load_model(name: str | Path, device: torch.device | str = "cpu") -> BurstMamba:
    """Load a shipped model by name (`light`), a checkpoint by path, or a Hugging Face repository (`owner/name`)."""
    return load_checkpoint(find_weights(name), device)


def find_weights(name: str | Path) -> Path:
    """The file that `load_model` reads; one of a Hugging Face repository is downloaded once."""
    shipped = WEIGHTS / f"{name}.safetensors"
    if re.fullmatch(r"[a-z0-9-]+", str(name)) and shipped.is_file():
        return shipped
    if not Path(name).exists():
        if re.fullmatch(r"[\w.-]+/[\w-][\w.-]*", str(name)) and Path(name).suffix != ".safetensors":
            from burstmamba.hub import download

            return download(str(name))
        raise InputError(
            f"no model {str(name)!r}: give a shipped name ({', '.join(shipped_models()) or 'none shipped'}) "
            "or the path of a .safetensors checkpoint, or a Hugging Face repository owner/name."
        )
    return Path(name)
