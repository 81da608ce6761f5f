"""Models from the Hugging Face hub, with the network replaced by a folder."""

import shutil
import sys

import pytest
import torch

from burstmamba.checkpoint import load_model
from burstmamba.errors import InputError
from burstmamba.hub import FILE_NAME, from_pretrained, push_to_hub
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import preset

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs the extra `hub`")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that is a folder: uploads are copied there, downloads are read from there."""

    def upload(*, path_or_fileobj, path_in_repo, repo_id, commit_message):
        target = tmp_path / repo_id / path_in_repo
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path_or_fileobj, target)
        return f"https://hub/{repo_id}"

    def download(repo_id, file_name, revision=None):
        path = tmp_path / repo_id / file_name
        if not path.exists():
            raise huggingface_hub.errors.LocalEntryNotFoundError("no connection\nand more lines")
        return str(path)

    made = []
    monkeypatch.setattr(huggingface_hub, "create_repo", lambda repo, private, exist_ok: made.append((repo, private)))
    monkeypatch.setattr(huggingface_hub, "upload_file", upload)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return made


def test_a_model_goes_there_and_comes_back(hub, tmp_path):
    model = BurstMamba(preset("tiny"))
    assert push_to_hub(model, "me/tiny-model", half=False) == "https://hub/me/tiny-model"
    assert hub == [("me/tiny-model", True)] and (tmp_path / "me" / "tiny-model" / FILE_NAME).exists()
    for loaded in (from_pretrained("me/tiny-model"), load_model("me/tiny-model")):
        assert loaded.config == model.config
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(loaded.state_dict()[name], tensor)


def test_errors(hub, monkeypatch):
    with pytest.raises(
        InputError, match=r"cannot get model.safetensors from the repository 'me/none' \(no connection\)"
    ):
        load_model("me/none")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'burstmamba\[hub\]'"):
        from_pretrained("me/tiny-model")


def test_paths_are_not_repositories():
    with pytest.raises(InputError, match="no model 'folder/model.safetensors'"):
        load_model("folder/model.safetensors")
