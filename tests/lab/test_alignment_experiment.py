"""Word alignment: link counts, a planted head that aligns perfectly, and the whole experiment."""

import numpy as np
import pytest
import torch
from toy_lab import toy_lab

from dragoman.corpora.phrasebook import phrasebook, split_words
from dragoman.errors import UserError
from dragoman.lab import alignment
from dragoman.lab.alignment import (
    align_with_ibm1,
    alignment_words,
    attention_links,
    diagonal_links,
    link_rates,
    parse_links,
)
from dragoman.lab.corpus import SplitCorpus
from dragoman.viewer.alignment import alignment_error_rate
from dragoman.viewer.record import AttentionRecord


def test_error_precision_and_recall_are_those_counted_by_hand():
    made, wanted = parse_links("0-0 1-1 2-3"), parse_links("0-0 1-1 2-2 3-3 4-4")
    rates = link_rates([made], [wanted])
    assert rates == pytest.approx({"error": 1 - 4 / 8, "precision": 2 / 3, "recall": 2 / 5})
    assert rates["error"] == pytest.approx(alignment_error_rate("0-0 1-1 2-3", "0-0 1-1 2-2 3-3 4-4"))


def test_rates_are_those_of_all_sentences_together():
    made, wanted = ["0-0", "0-1"], ["0-0", "0-0 1-1"]
    rates = link_rates([parse_links(line) for line in made], [parse_links(line) for line in wanted])
    assert rates == pytest.approx({"error": 1 - 2 / 5, "precision": 1 / 2, "recall": 1 / 3})
    assert link_rates([], [])["error"] == 1


def record_with(links, source, target):
    """Return a record of whole words in which layer 2, head 1 looks at what is linked, and all else rests on END."""
    cross = np.zeros((2, 2, len(target) + 1, len(source) + 1), np.float32)
    cross[..., -1] = 1
    for i, j in links:
        cross[1, 0, j] = np.eye(len(source) + 1)[i]
    inner = [np.eye(len(side) + 1, dtype=np.float32)[None, None] for side in (source, target)]
    pieces = [(*(f" {word}" for word in side), "⟨end⟩") for side in (source, target)]
    texts = [" ".join(side) for side in (source, target)]
    return AttentionRecord(*pieces, *texts, *inner, cross)


def test_a_planted_head_aligns_without_error_and_the_others_do_not():
    source, target = ("the", "man", "sleeps", "here"), ("hier", "schläft", "der", "Mann")
    gold = parse_links("0-2 1-3 2-1 3-0")
    record = record_with(gold, source, target)
    result = {name: link_rates([made], [gold])["error"] for name, made in attention_links(record)}
    assert result["layer 2, head 1, when written"] == 0
    assert result["layer 1, head 1, when written"] > 0.5
    assert result["layer 2, head 1, one step later"] > 0.5
    assert len(result) == 2 * (2 * (2 + 1) + 1)


def test_words_are_split_as_the_phrasebook_counts_them():
    for each in phrasebook("train", 200):
        assert split_words(each.source) == alignment_words(each.source)
        assert split_words(each.target) == alignment_words(each.target)


def test_the_diagonal_links_equal_sentences_word_by_word():
    assert diagonal_links("a b c", "x y z") == parse_links("0-0 1-1 2-2")
    assert diagonal_links("a b", "w x y z") == parse_links("0-0 0-1 1-2 1-3")


def test_ibm_model_1_links_words_that_always_occur_together():
    pairs = [("a b", "x y"), ("b a", "y x"), ("a c", "x z"), ("c b", "z y")] * 5
    assert set(align_with_ibm1(pairs, pairs)) == {parse_links("0-0 1-1")}


@pytest.fixture(scope="module")
def measured(small_phrasebook, small_model, tmp_path_factory):
    torch.set_num_threads(1)
    lab = toy_lab(
        tmp_path_factory.mktemp("lab"), small_phrasebook, seconds=3.0, name="alignment", given_run=small_model
    )
    return lab, alignment.run(lab)


def test_the_experiment_chooses_on_validation_and_reports_on_test(measured):
    lab, made = measured
    results = made.results
    chosen = results["chosen"]
    assert results["valid"][chosen]["error"] == min(each["error"] for each in results["valid"].values())
    assert f"{results['test'][chosen]['error']:.3f}" in made.findings[0]
    assert "gold alignment" in made.findings[0]
    assert {"the diagonal", "IBM model 1, each target word"} <= results["baselines"].keys()
    assert (
        results["baselines"]["IBM model 1, each target word"]["error"] < results["baselines"]["the diagonal"]["error"]
    )
    assert (lab.folder / "error-rates.png").stat().st_size > 1000


def test_without_gold_links_ibm_model_1_is_the_reference(measured, corpus, tmp_path):
    lab, _ = measured
    made = alignment.run(toy_lab(tmp_path, corpus, seconds=1.0, name="alignment", given_run=lab.reference_model().run))
    assert "the links that IBM model 1 predicts in both directions" in made.findings[0]
    assert list(made.results["baselines"]) == ["the diagonal"]


def test_missing_validation_links_are_named(small_phrasebook, tmp_path):
    lonely = tmp_path / "test.links"
    lonely.write_bytes(small_phrasebook.links.read_bytes())
    files = small_phrasebook.train, small_phrasebook.valid, small_phrasebook.test
    lab = toy_lab(tmp_path, SplitCorpus("mine", *files, links=lonely), name="alignment")
    with pytest.raises(UserError, match=r"valid\.links is missing"):
        alignment.load_aligned_pairs(lab, "valid", 5)
