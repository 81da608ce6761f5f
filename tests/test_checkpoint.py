import json
import os
import pickle
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file

from burstmamba import InputError
from burstmamba.checkpoint import load_checkpoint, load_mambair, load_model, read_checkpoint, save_checkpoint
from burstmamba.model.burstmamba import BurstMamba
from burstmamba.model.config import ModelConfig, preset
from burstmamba.model.mambair import from_mambair, rename
from burstmamba.training.export import export_weights
from burstmamba.training.snapshot import Place, Snapshots

D_NAME = "layers.5.residual_group.blocks.0.self_attention.Ds"


class Evil:
    """Writes a file when a careless reader unpickles it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.fixture
def model():
    torch.manual_seed(0)
    return BurstMamba(preset("tiny")).eval()


def test_round_trip(model, tmp_path):
    save_checkpoint(tmp_path / "m.safetensors", model, half=False, notes={"steps": "7"})
    again = load_checkpoint(tmp_path / "m.safetensors")
    assert again.config == model.config and not again.training
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert read_checkpoint(tmp_path / "m.safetensors").notes["steps"] == "7"


def test_the_same_weights_make_the_same_bytes(model, tmp_path):
    notes = {name: name for name in ["steps", "recipe", "commit", "hardware", "minutes", "scores"]}
    found = set()
    for i in range(6):
        save_checkpoint(tmp_path / f"{i}.safetensors", model, notes=notes)
        found.add((tmp_path / f"{i}.safetensors").read_bytes())
    assert len(found) == 1
    assert read_checkpoint(tmp_path / "0.safetensors").notes.items() >= notes.items()


def test_half_precision_halves_the_file(model, tmp_path):
    save_checkpoint(tmp_path / "h.safetensors", model)
    save_checkpoint(tmp_path / "f.safetensors", model, half=False)
    sizes = [(tmp_path / name).stat().st_size for name in ("h.safetensors", "f.safetensors")]
    assert sizes[0] < 0.7 * sizes[1]
    frames = torch.rand(1, 2, 3, 6, 6)
    with torch.no_grad():
        assert torch.allclose(load_checkpoint(tmp_path / "h.safetensors")(frames), model(frames), atol=5e-3)


def test_keyframe_only_file_is_the_single_image_network(model, tmp_path):
    state = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("keyframe.")}
    save_checkpoint(tmp_path / "k.safetensors", model, state=state, half=False)
    single = load_checkpoint(tmp_path / "k.safetensors")
    assert single.burst is None
    frames = torch.rand(1, 1, 3, 5, 5)
    with torch.no_grad():
        assert torch.equal(single(frames), model(frames))


def test_an_interrupted_write_leaves_the_old_file(model, tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, model)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match="cannot write .*No space left on device"):
        save_checkpoint(path, model, notes={"steps": "2"})
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_new_file_takes_the_name_of_the_old_one(model, tmp_path):
    """Whole, at once: what has the old file open, or another name for it, keeps it."""
    path, other = tmp_path / "m.safetensors", tmp_path / "best.safetensors"
    save_checkpoint(path, model)
    os.link(path, other)
    before = other.read_bytes()
    save_checkpoint(path, model, notes={"steps": "2"})
    assert other.read_bytes() == before != path.read_bytes()


def test_errors(model, tmp_path):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, model)
    whole = path.read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.safetensors").write_text("hello")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    config = preset("tiny").to_json()
    save_file({"keyframe.norm.weight": torch.zeros(16)}, tmp_path / "few.safetensors", {"config": config})
    wrong = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    wrong["keyframe.norm.weight"] = torch.zeros(17)
    save_file(wrong, tmp_path / "shape.safetensors", {"config": config})
    cases = {
        "missing.safetensors": "no checkpoint at",
        "cut.safetensors": "not a complete safetensors file",
        "text.safetensors": "not a complete safetensors file",
        "foreign.safetensors": "no BurstMamba configuration",
        "few.safetensors": "lacks .* weights",
        "shape.safetensors": r"keyframe.norm.weight has shape \(17,\), its configuration needs \(16,\)",
    }
    for name, message in cases.items():
        with pytest.raises(InputError, match=message):
            load_checkpoint(tmp_path / name)
    with pytest.raises(InputError, match="no model 'nonsense': give a shipped name"):
        load_model("nonsense")
    newer = json.dumps({**json.loads(config), "warp_drive": 9})
    with pytest.raises(InputError, match="unknown model setting.* warp_drive"):
        ModelConfig.from_json(newer)


def test_devices_are_named_as_in_the_commands(model, tmp_path):
    save_checkpoint(tmp_path / "m.safetensors", model)
    known = "cuda" if torch.cuda.is_available() else "cpu"
    assert next(load_checkpoint(tmp_path / "m.safetensors", "auto").parameters()).device.type == known
    for name, message in {
        "cuda:99": "there is no cuda:99",
        "gpu": "device must be auto, cpu, cuda",
    }.items():
        with pytest.raises(InputError, match=message):
            load_checkpoint(tmp_path / "m.safetensors", name)


def test_other_files_of_a_training_are_named(model, tmp_path):
    """What lies beside the weights is not taken for another program's."""
    place = Snapshots(tmp_path / "checkpoints", 1).write(Place(), "{}", model.state_dict(), {}, {}, best=True)
    (shard,) = export_weights(tmp_path / "export", model, model)
    for path, what in (
        (place, "a checkpoint for going on with a training"),
        (place.with_name("best.safetensors"), "a checkpoint for going on with a training"),
        (shard, "one part of an exported training"),
    ):
        with pytest.raises(
            InputError, match=f"{path} is {what}, not a model; give weights.safetensors or best.safetensors of the run"
        ):
            load_model(path)


def mambair_names(stages=6, blocks=6):
    """Every weight name of MambaIR's classical ×4 network."""
    both = ("weight", "bias")
    names = [
        f"{part}.{kind}" for part in ("conv_first", "patch_embed.norm", "norm", "conv_after_body") for kind in both
    ]
    names += [
        f"{part}.{kind}"
        for part in ("conv_before_upsample.0", "upsample.0", "upsample.2", "conv_last")
        for kind in both
    ]
    for g in range(stages):
        names += [f"layers.{g}.conv.{kind}" for kind in both]
        for i in range(blocks):
            block = f"layers.{g}.residual_group.blocks.{i}"
            attention = f"{block}.self_attention"
            names += [f"{block}.{part}.{kind}" for part in ("ln_1", "ln_2") for kind in both]
            names += [f"{block}.skip_scale", f"{block}.skip_scale2"]
            names += [
                f"{attention}.{part}" for part in ("x_proj_weight", "dt_projs_weight", "dt_projs_bias", "A_logs", "Ds")
            ]
            names += [f"{attention}.in_proj.weight", f"{attention}.out_proj.weight"]
            names += [f"{attention}.{part}.{kind}" for part in ("conv2d", "out_norm") for kind in both]
            cab = ("cab.0", "cab.2", "cab.3.attention.1", "cab.3.attention.3")
            names += [f"{block}.conv_blk.{part}.{kind}" for part in cab for kind in both]
    return names


def test_mambair_names_cover_the_keyframe_stream():
    with torch.device("meta"):
        model = BurstMamba(preset("paper-single"))
    expected = model.state_dict()
    translated = from_mambair({name: torch.zeros(1440, 16) for name in mambair_names()})
    assert set(translated) == set(expected)
    A = torch.arange(1440 * 16.0).view(1440, 16)
    name = "layers.2.residual_group.blocks.3.self_attention.A_logs"
    moved = from_mambair({name: A})["keyframe.stages.2.blocks.3.scan.A_log"]
    assert moved.shape == (4, 360, 16) and torch.equal(moved[1], A[360:720])
    with pytest.raises(InputError, match="not a weight of MambaIR"):
        from_mambair({"layers.0.mlp.fc1.weight": torch.zeros(1)})


def test_mambair_weights_load_into_the_keyframe_stream(tmp_path):
    model = BurstMamba(preset("paper-single"))
    ours = model.state_dict()
    # MambaIR's own shapes: the four directions of A_logs and Ds are stacked in one axis.
    theirs = {}
    for name in mambair_names():
        tensor = ours[f"keyframe.{rename(name)}"]
        stacked = name.endswith(("A_logs", "Ds"))
        theirs[name] = torch.randn_like(tensor).flatten(0, 1) if stacked else torch.randn_like(tensor)
    torch.save({"params": theirs}, tmp_path / "mambair.pth")
    loaded = load_mambair(tmp_path / "mambair.pth")
    assert torch.equal(loaded.keyframe.shallow_convolution.weight, theirs["conv_first.weight"])
    assert torch.equal(loaded.keyframe.stages[5].blocks[0].scan.D.flatten(), theirs[D_NAME])
    del theirs["conv_last.bias"]
    torch.save(theirs, tmp_path / "short.pth")
    with pytest.raises(InputError, match="lacks 1 weights of MambaIR"):
        load_mambair(tmp_path / "short.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(InputError, match="cannot be read as a PyTorch weights file"):
        load_mambair(tmp_path / "text.pth")


def test_a_hostile_pickle_is_not_run(tmp_path):
    with open(tmp_path / "evil.pth", "wb") as file:
        pickle.dump(Evil(str(tmp_path / "ran")), file)
    with pytest.raises(InputError, match="cannot be read"):
        load_mambair(tmp_path / "evil.pth")
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_loading_takes_less_than_a_second_after_imports(model, tmp_path):
    save_checkpoint(tmp_path / "m.safetensors", BurstMamba(preset("light")))
    start = time.perf_counter()
    load_checkpoint(tmp_path / "m.safetensors")
    assert time.perf_counter() - start < 1


def test_import_is_light():
    """Importing the package compiles nothing and pulls in no heavy extra."""
    code = (
        "import sys, burstmamba; "
        "heavy = {'cv2', 'gradio', 'torchvision', 'rawpy', 'matplotlib', 'triton', 'ray'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
