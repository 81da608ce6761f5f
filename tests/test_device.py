import pytest
import torch

from burstmamba import InputError
from burstmamba.device import pick_device


def test_what_is_asked_for(monkeypatch):
    assert pick_device("cpu").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("auto") == torch.device("cuda")
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(InputError, match=r"there is no cuda:2: torch sees 2 CUDA GPU\(s\)"):
        pick_device("cuda:2")


def test_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto").type == "cpu"
    with pytest.raises(InputError, match="there is no cuda: torch sees 0 .* use cpu, or look at burstmamba doctor"):
        pick_device("cuda")


@pytest.mark.parametrize("name", ["gpu", "mps", "cpu:1", "cuda:x", ""])
def test_no_device(name):
    with pytest.raises(InputError, match=f"device must be auto, cpu, cuda or cuda:N, got '{name}'"):
        pick_device(name)
