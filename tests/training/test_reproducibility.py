"""Same seed, same machine, same result (A12)."""

import os
import subprocess
import sys

from traces import weights


def trained_in_a_process_of_its_own(recipe, folder, environment):
    folder.mkdir()
    file = folder / "recipe.toml"
    file.write_text(recipe.to_toml())
    quiet = {"cwd": folder, "env": {**os.environ, "OMP_NUM_THREADS": "1", **environment}, "check": True}
    subprocess.run([sys.executable, "-m", "dragoman", "train", file], **quiet, capture_output=True)
    return folder / "run"


def test_fresh_processes_with_other_hashes_locales_and_folders_train_the_same_model(toy_recipe, tmp_path):
    settings = ["tokenizer.kind=bpe", "tokenizer.size=300", "training.steps=4"]
    one, other = (
        trained_in_a_process_of_its_own(
            toy_recipe("run", *settings),
            tmp_path / name,
            {"PYTHONHASHSEED": seed, "LC_ALL": locale, "DRAGOMAN_CACHE": str(tmp_path / f"cache of {name}")},
        )
        for name, seed, locale in (("one", "1", "C"), ("other", "4242", "C.UTF-8"))
    )
    assert (one / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes()
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert weights(one) == weights(other)
