"""Weights of any origin (C12): every fact is checked, and nothing is allocated before recipe and file agree."""

import json
import shutil
import struct

import numpy as np
import pytest
import torch
from mutations import read_tensors, renew_manifest
from safetensors.numpy import load_file, save_file

from dragoman import memory
from dragoman.checkpoints import read_progress
from dragoman.errors import UserError
from dragoman.model_config import MODEL_CONFIGS, build_model_config
from dragoman.models.architectures import build_model
from dragoman.models.weights import named_weights, weights_without_values


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a trained run, to be changed."""
    return shutil.copytree(trained, tmp_path / "run")


def change_facts(run, **facts):
    """Change the metadata of the weights, and nothing else."""
    file = run / "model.safetensors"
    header, data = read_tensors(file)
    header["__metadata__"]["dragoman"] = json.dumps(json.loads(header["__metadata__"]["dragoman"]) | facts)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize("value", ["1", "-1", "100001", "9" * 5000, "١٢", "1e3", "NaN", "0x10", " 7", [7], None])
def test_the_longest_source_is_a_number_in_range(command, run, value):
    """`longest_source = 1` never ended, 5,000 digits ended in a traceback (issue 17)."""
    change_facts(run, longest_source=value)
    refused = command("translate", run, "a b c")
    assert refused.code == 2
    assert "model.safetensors: its longest_source is '" in refused.err


@pytest.mark.parametrize("value", ["2", "100000", "-0.1", "NaN", "1e400", "9" * 5000])
def test_the_share_of_paragraphs_is_a_number_in_range(command, run, value):
    change_facts(run, paragraph_share=value)
    refused = command("translate", run, "a b c")
    assert (refused.code, "its paragraph_share is '" in refused.err) == (2, True)


@pytest.mark.parametrize("value", ["2", "7", "0", ""])
def test_facts_in_range_are_used(command, run, value):
    change_facts(run, longest_source=value, paragraph_share="0.5", steps="9" * 5000, note="\x1b[2J")
    assert command("translate", run, "a b c d e f g h").code == 0
    assert command("info", run).code == 0


def test_a_sparse_file_of_forty_gigabytes_is_refused(command, run):
    with (run / "model.safetensors").open("r+b") as file:
        file.truncate(40_000_000_000)
    refused = command("translate", run, "a b c")
    assert (refused.code, "model.safetensors" in refused.err) == (2, True)


def test_weights_that_need_more_memory_than_there_is_are_refused_with_the_number(command, run, monkeypatch):
    monkeypatch.setattr(memory, "_available_bytes", lambda: iter([1000]))
    refused = command("translate", run, "a b c")
    assert refused.code == 2
    assert "model.safetensors needs 0.0 GB of memory, but 0.0 GB are available." in refused.err


@pytest.mark.parametrize("header", [b"", b"[" * 1000, b'{"a": 1}', b"{" + b" " * (9 << 20) + b"}"])
def test_a_strange_header_is_refused(command, run, header):
    (run / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    refused = command("translate", run, "a b c")
    assert (refused.code, "model.safetensors" in refused.err) == (2, True)


@pytest.mark.parametrize("setting", ["layers = 40", "width = 65536", "inner_width = 1048576", "key_width = 65536"])
def test_a_recipe_of_any_size_takes_no_memory_before_the_weights_agree(command, run, setting, monkeypatch):
    taken = []
    monkeypatch.setattr("dragoman.tasks.sequence_model.build_model", lambda *_: taken.append(setting))
    name = setting.partition(" ")[0]
    lines = [line for line in (run / "recipe.toml").read_text().split("\n") if not line.startswith(f"{name} =")]
    lines.insert(lines.index("[model]") + 1, setting)
    (run / "recipe.toml").write_text("\n".join(lines))
    refused = command("translate", run, "a b c")
    assert (refused.code, taken) == (2, []), refused.err


@pytest.mark.parametrize("architecture", MODEL_CONFIGS)
def test_weights_without_values_are_those_of_the_model(architecture):
    settings = {"architecture": architecture, "layers": 2, "width": 16}
    config = build_model_config(settings)
    expected = named_weights(build_model(config, 20, 20))
    found = weights_without_values(lambda: build_model(config, 20, 20))
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in found.items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in expected.items()
    }
    assert all(tensor.device == torch.device("meta") for tensor in found.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", -1), ("step", 10**30), ("step", "1"), ("step", True), ("loss", "low"), ("loss", 1e300), ("loss", [1]),
        ("seconds", -1.0), ("longest", 1.5), ("origin", []), ("origin", {"recipe": 1}), ("interim", 1), ("unknown", 1),
    ],
)  # fmt: skip
def test_the_state_of_a_training_is_checked(run, name, value):
    path = max((run / "checkpoints").iterdir())
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {name: value}))
    with pytest.raises(UserError, match=r"state\.json"):
        read_progress(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "{", '{"step": ' + "9" * 5000 + "}", "[]", "1", "null"])
def test_a_state_of_another_form_is_refused(run, text):
    path = max((run / "checkpoints").iterdir())
    (path / "state.json").write_text(text)
    with pytest.raises(UserError, match=r"state\.json"):
        read_progress(path)


def test_checkpoints_of_other_shapes_are_not_averaged(command, run):
    """Tensors of shapes [n, 1] and [1, n] would be added to one of n² values."""
    paths = sorted((run / "checkpoints").iterdir())
    for path, shape in zip(paths, [(1000, 1), (1, 1000), (1000, 1)], strict=True):
        tensors = load_file(path / "model.safetensors")
        save_file(
            tensors | {min(tensors): np.zeros(shape, np.float32)}, path / "model.safetensors", {"format": "dragoman-1"}
        )
        renew_manifest(path / "model.safetensors")
    refused = command("average", run, "--last", 3)
    assert (refused.code, "has shape [" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("key", "tensor"),
    [
        ("exp_avg", np.zeros(1, np.float32)), ("exp_avg", np.zeros((1, 1), np.float32)), ("exp_avg", None),
        ("exp_avg_sq", np.zeros((), np.float32)), ("step", np.zeros(3, np.float32)), ("step", np.array(1)),
        ("max_exp_avg_sq", np.zeros(1, np.float32)),
    ],
)  # fmt: skip
def test_a_state_of_the_optimizer_of_another_shape_is_refused(command, run, key, tensor):
    """The fused Adam would read and write beyond the end of such a tensor."""
    file = max((run / "checkpoints").iterdir()) / "optimizer.safetensors"
    tensors = load_file(file)
    for name in [name.removesuffix(".step") for name in tensors if name.endswith(".step")]:
        tensors.pop(f"{name}.{key}", None)
        if tensor is not None:
            tensors[f"{name}.{key}"] = tensor
    save_file(tensors, file, {"format": "dragoman-1"})
    renew_manifest(file)
    refused = command("train", run / "recipe.toml", "--run", run, "--resume", "--set", "training.steps=9")
    assert (refused.code, "optimizer.safetensors: " in refused.err) == (2, True)


def test_weights_whose_products_overflow_are_an_error_where_attention_is_shown(command, run, tmp_path):
    """Finite weights can give attention weights that are not; the generator found the traceback."""
    file = run / "model.safetensors"
    header, data = read_tensors(file)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<f", 3e38) * (len(data) // 4))
    refused = command("attention", run, "a b", "-o", tmp_path / "page.html")
    assert (refused.code, "attention weights that are not finite" in refused.err) == (2, True)
