"""Foreign pickles: known types pass, everything else is refused before it runs."""

import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch

from burstmamba.data.pickles import read_pickle
from burstmamba.errors import InputError

CONTENT = {
    "numbers": [1, 2.5, True, None, "text", b"bytes"],
    "array": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.float64(3.5),
    "tensor": torch.arange(4.0),
    "half": torch.ones(2, dtype=torch.float16),
    "ordered": OrderedDict(a=1),
}


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_values(tmp_path, protocol):
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(CONTENT, protocol=protocol))
    content = read_pickle(tmp_path / "meta.pkl")
    assert content["numbers"] == CONTENT["numbers"] and content["scalar"] == 3.5
    assert np.array_equal(content["array"], CONTENT["array"])
    assert torch.equal(content["tensor"], CONTENT["tensor"]) and torch.equal(content["half"], CONTENT["half"])
    assert content["ordered"] == {"a": 1}


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("function", [os.system, eval, exec, __import__, getattr, torch.load, np.load, open])
def test_hostile_pickles_do_not_run(tmp_path, function):
    target = tmp_path / "ran"
    attack = Hostile(function, f"open({str(target)!r}, 'w')" if function in (eval, exec) else f"touch {target}")
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps({"meta": attack}))
    with pytest.raises(InputError, match="which is not a plain number, array or EXIF value; it was not read"):
        read_pickle(tmp_path / "meta.pkl")
    assert not target.exists()


def test_hostile_tensors_do_not_run(tmp_path):
    target = tmp_path / "ran"
    inner = pickle.dumps(Hostile(os.system, f"touch {target}"))
    attack = Hostile(torch.storage._load_from_bytes, inner)
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps({"tensor": attack}))
    with pytest.raises(InputError):
        read_pickle(tmp_path / "meta.pkl")
    assert not target.exists()


def test_errors(tmp_path):
    path = tmp_path / "meta.pkl"
    with pytest.raises(InputError, match=r"meta.pkl is missing"):
        read_pickle(path)
    path.write_bytes(pickle.dumps(CONTENT)[:40])
    with pytest.raises(InputError, match="is not a readable pickle|was not read"):
        read_pickle(path)
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(InputError, match="should hold a dictionary, got list"):
        read_pickle(path)
