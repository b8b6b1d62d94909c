"""A saved checkpoint can be used like the model that the run ended with."""

import shutil

import pytest
from safetensors.torch import load_file

import dragoman


def test_a_checkpoint_is_loaded_with_the_weights_of_its_step(trained):
    model = dragoman.load(trained, checkpoint=6)
    saved = load_file(trained / "checkpoints" / "000000006" / "model.safetensors")
    assert all(parameter.equal(saved[name]) for name, parameter in model.model.named_parameters())


def test_a_step_that_was_not_saved_is_answered_with_those_that_were(trained):
    with pytest.raises(dragoman.UserError, match=r"has no intact checkpoint at step 7 \(.*\); available: 4, 6, 8\."):
        dragoman.load(trained, checkpoint=7)


def test_a_damaged_checkpoint_is_not_listed_as_available(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "checkpoints" / "000000006" / "manifest.json").unlink()
    with pytest.raises(dragoman.UserError, match=r"at step 6 \(manifest.json is missing\); available: 4, 8\."):
        dragoman.load(run, checkpoint=6)
