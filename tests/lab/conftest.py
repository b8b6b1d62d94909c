"""Fixtures of the tests of the laboratory."""

import pytest
import torch
from toy_lab import toy_corpus, toy_lab, train

from dragoman.corpora.phrasebook import write_phrasebook
from dragoman.lab.corpus import SplitCorpus

TINY = {
    "model.width": 32, "model.inner_width": 32, "model.heads": 2, "tokenizer.size": 600, "training.threads": 1,
    "training.steps": 30,
}  # fmt: skip


@pytest.fixture
def corpus(toy_files, tmp_path):
    """The toy language in three parts."""
    return toy_corpus(toy_files, tmp_path / "corpus")


@pytest.fixture(scope="session")
def small_phrasebook(tmp_path_factory):
    """A few hundred pairs of the phrasebook, with what it knows about them."""
    folder = tmp_path_factory.mktemp("phrasebook")
    write_phrasebook(folder, {"train": 300, "valid": 40, "test": 40})
    train, valid, test = ((folder / f"{split}.en", folder / f"{split}.de") for split in ("train", "valid", "test"))
    return SplitCorpus("phrasebook", train, valid, test, links=folder / "test.links")


@pytest.fixture(scope="session")
def small_model(small_phrasebook, tmp_path_factory):
    """A model to look into that has learned from it for a moment."""
    torch.set_num_threads(1)
    return train(toy_lab(tmp_path_factory.mktemp("small"), small_phrasebook), "tiny", TINY).run
