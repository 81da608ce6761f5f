"""Models on the Hugging Face hub, through the extra `hub`; nothing here runs unless a repository is named."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from burstmamba.checkpoint import load_checkpoint, save_checkpoint, shipped_models
from burstmamba.errors import InputError
from burstmamba.model.burstmamba import BurstMamba

FILE_NAME = "model.safetensors"


def from_pretrained(
    repository: str, *, revision: str | None = None, device: torch.device | str = "cpu", file_name: str = FILE_NAME
) -> BurstMamba:
    """Load a model that `push_to_hub` stored; it is downloaded once and then read from the local cache."""
    return load_checkpoint(download(repository, revision=revision, file_name=file_name), device)


def download(repository: str, *, revision: str | None = None, file_name: str = FILE_NAME) -> Path:
    """The local file of a model that `push_to_hub` stored."""
    hub = _hub()
    try:
        return Path(hub.hf_hub_download(repository, file_name, revision=revision))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"cannot get {file_name} from the repository {repository!r} ({reason}); check its name and the network, "
            f"or use a shipped model ({', '.join(shipped_models()) or 'none shipped'})."
        ) from error


def push_to_hub(
    model: BurstMamba, repository: str, *, private: bool = True, half: bool = True, message: str = "Upload BurstMamba"
) -> str:
    """Store a model in a hub repository of the logged-in user, private unless told otherwise.

    Returns:
        The address of the upload.
    """
    hub = _hub()
    hub.create_repo(repository, private=private, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE_NAME
        save_checkpoint(path, model, half=half)
        return str(
            hub.upload_file(
                path_or_fileobj=str(path), path_in_repo=FILE_NAME, repo_id=repository, commit_message=message
            )
        )


def _hub():
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise InputError(
            "models from the Hugging Face hub need huggingface_hub; install it with: pip install 'burstmamba[hub]'."
        ) from None
    return huggingface_hub
