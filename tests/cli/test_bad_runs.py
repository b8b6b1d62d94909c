"""Run directories that are damaged, edited, mixed up or something else (C12): code 2, and the file is named."""

import pickle
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from dragoman import recipe
from dragoman.text.tokenizer import Tokenizer


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a trained run, to be damaged."""
    return shutil.copytree(trained, tmp_path / "run")


def cut(name):
    def damage(run):
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[: len(content) // 2])

    return damage


def write(name, content):
    return lambda run: (run / name).write_bytes(content)


def edit(name, before, after):
    def damage(run):
        text = (run / name).read_text()
        assert before in text
        (run / name).write_text(text.replace(before, after))

    return damage


def change_tensors(change):
    def damage(run):
        file = run / "model.safetensors"
        with safe_open(file, framework="np") as opened:
            facts = opened.metadata()
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file, facts)

    return damage


def without_one(tensors):
    tensors.pop(min(tensors))


def with_a_foreign_one(tensors):
    tensors["foreign"] = np.zeros(3, np.float32)


def with_one_misshapen(tensors):
    tensors[min(tensors)] = tensors[min(tensors)][..., :-1].copy()


def with_one_of_another_type(tensors):
    tensors[min(tensors)] = tensors[min(tensors)].astype(np.float64)


def with_facts(text):
    return lambda run: save_file(load_file(run / "model.safetensors"), run / "model.safetensors", {"dragoman": text})


def with_a_nan(tensors):
    tensors[min(tensors)].flat[0] = np.nan


def of_another_run(run):
    other = Tokenizer.train(["an other language"], recipe.TokenizerConfig(kind="words"))
    (run / "tokenizer.json").write_text(other.to_json())


def of_another_product(run):
    (run / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"<s>": 0}, "merges": []}}')


class Canary:
    """Something that would leave a trace if it were ever unpickled."""

    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('canary').touch()",)


DAMAGES = {
    "no weights": (lambda run: [(run / "model.safetensors").unlink(), shutil.rmtree(run / "checkpoints")],
                   "has no weights yet: neither model.safetensors nor an intact checkpoint."),
    "weights cut short": (cut("model.safetensors"), "model.safetensors is damaged or not a safetensors file"),
    "a pickle for weights": (write("model.safetensors", pickle.dumps(Canary())), "model.safetensors is damaged or not"),
    "no bytes for weights": (write("model.safetensors", b""), "model.safetensors is damaged or not"),
    "a missing tensor": (change_tensors(without_one), "1 tensors are missing ("),
    "a tensor too many": (change_tensors(with_a_foreign_one), "1 are unknown (foreign)"),
    "a tensor of another shape": (change_tensors(with_one_misshapen), "has shape ["),
    "a tensor with a NaN": (change_tensors(with_a_nan), "contains non-finite values"),
    "weights of another product": (lambda run: save_file({}, run / "model.safetensors", {"format": "pt"}),
                                   "has format 'pt', but this version of Dragoman reads 'dragoman-1';"),
    "facts of another shape": (with_facts("[1]"), "model.safetensors is damaged or not"),
    "facts nested too deeply": (with_facts("[" * 100_000), "model.safetensors is damaged or not"),
    "a tensor of another type": (change_tensors(with_one_of_another_type), "has type torch.float64"),
    "no tokenizer": (lambda run: (run / "tokenizer.json").unlink(), "tokenizer.json: no such file."),
    "a tokenizer cut short": (cut("tokenizer.json"), "tokenizer.json: not valid JSON"),
    "a tokenizer of another product": (of_another_product, "so it was not written by Dragoman"),
    "a tokenizer of another run": (of_another_run, "is not the one that the model was trained with"),
    "a tokenizer nested too deeply": (write("tokenizer.json", b"[" * 100_000), "tokenizer.json: not "),
    "a recipe of another size": (edit("recipe.toml", "width = 16", "width = 32"), "needs ["),
    "a recipe of a size beyond all memory": (edit("recipe.toml", "width = 16", "width = 65536"), "needs ["),
    "a recipe of another depth": (edit("recipe.toml", "layers = 1", "layers = 2"), "tensors are missing ("),
    "a recipe cut short": (cut("recipe.toml"), "recipe.toml"),
    "a recipe with a strange setting": (edit("recipe.toml", "heads = 2", "hats = 2"), 'has no setting "hats"'),
    "no recipe": (lambda run: (run / "recipe.toml").unlink(), "is not a run directory: it has no recipe.toml."),
    "nothing at all": (shutil.rmtree, "no such run directory. `dragoman train` creates one."),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_run_is_refused_with_what_is_wrong(command, run, tmp_path, monkeypatch, damage, words):
    monkeypatch.chdir(tmp_path)
    damage(run)
    refused = command("translate", run, "a b")
    assert refused.code == 2
    assert words in refused.err
    assert refused.out == ""
    assert not (tmp_path / "canary").exists()


def test_while_a_training_goes_on_its_newest_whole_checkpoint_translates(command, run):
    (run / "model.safetensors").unlink()
    (run / "checkpoints" / "000000008" / "model.safetensors").unlink()
    assert command("translate", run, "a b c").code == 0
    shown = command("info", run)
    assert "000000008: model.safetensors is missing" in shown.out


@pytest.mark.parametrize("verb", ["translate", "info", "average", "attention"])
def test_every_verb_refuses_a_directory_that_is_no_run(command, tmp_path, verb):
    (tmp_path / "empty").mkdir()
    arguments = {"translate": ["a"], "attention": ["a"]}.get(verb, [])
    refused = command(verb, tmp_path / "empty", *arguments)
    assert refused.code == 2
    assert "is not a run directory: it has no recipe.toml." in refused.err
    assert list((tmp_path / "empty").iterdir()) == []


def test_averaging_without_a_whole_checkpoint_leaves_the_model_as_it_is(command, run):
    shutil.rmtree(run / "checkpoints")
    before = (run / "model.safetensors").read_bytes()
    refused = command("average", run)
    assert refused.code == 2
    assert "has no intact checkpoint to average" in refused.err
    assert (run / "model.safetensors").read_bytes() == before


def test_averaging_what_was_never_trained_leaves_nothing_behind(command, tmp_path):
    """It left a lock, by which the next training took the user's own recipe and notes for its own, and erased them."""
    (tmp_path / "recipe.toml").write_text('preset = "tiny"\n')
    refused = command("average", tmp_path)
    assert (refused.code, "has no checkpoints to average" in refused.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


def test_overwriting_with_a_vocabulary_that_cannot_be_keeps_the_old_run(command, run):
    before = (run / "model.safetensors").read_bytes()
    wrong = ["--set", "tokenizer.kind=bpe", "--set", "tokenizer.size=100"]
    refused = command("train", run / "recipe.toml", "--run", run, "--overwrite", *wrong)
    assert (refused.code, "needs at least 260" in refused.err) == (2, True)
    assert (run / "model.safetensors").read_bytes() == before


def test_what_a_kill_left_half_written_is_removed_by_the_next_training(command, run):
    litter = [run / ".model.safetensors.4711", run / ".recipe.toml.abcdefgh"]
    for path in litter:
        path.write_bytes(b"half")
    assert command("train", run / "recipe.toml", "--run", run, "--resume").code == 0
    assert not any(path.exists() for path in litter)


@pytest.mark.parametrize("name", ["recipe.toml", "tokenizer.json", "model.safetensors"])
def test_a_link_that_leads_out_of_the_run_is_not_followed(command, run, tmp_path, name):
    (run / name).rename(tmp_path / name)
    (run / name).symlink_to(tmp_path / name)
    refused = command("translate", run, "a b")
    assert (refused.code, f"run: {name} is a symbolic link." in refused.err) == (2, True)
