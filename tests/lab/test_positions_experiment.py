"""Section 3.5: maps between encodings, ranges of lengths, and the whole experiment."""

import numpy as np
import pytest
from small_lab import check_report, shrink
from toy_lab import toy_lab

from dragoman.lab import positions


@pytest.mark.parametrize("offset", [1, 3, 17])
def test_the_rotation_maps_every_position_to_the_one_at_the_offset(offset):
    table = positions.sinusoid_table(300)
    moved = table[: 300 - offset] @ positions.exact_offset_map(offset).T
    assert np.abs(moved - table[offset:]).max() < 1e-9


def test_least_squares_fit_the_map_to_a_millionth():
    errors = positions.offset_map_errors(10)
    assert errors["recovered"] < 1e-6
    assert errors["exact"] < 1e-6


def test_in_few_dimensions_the_fitted_map_is_the_rotation():
    """In 128, many of the slow waves look alike over some hundred places, so that other maps do as well."""
    assert (
        np.abs(positions.fit_offset_map(3, positions=400, width=4) - positions.exact_offset_map(3, width=4)).max()
        < 1e-6
    )


def test_ranges_cover_every_length_once_and_never_cross_the_cut():
    pairs = [("w " * length, "") for length in range(3, 19) for _ in range(10)]
    ranges = positions.seen_and_unseen_ranges(pairs, cut=9)
    covered = [length for first, last in ranges for length in range(first, last + 1)]
    assert covered == list(range(3, 19))
    assert any(last == 8 for _, last in ranges)


def test_half_of_the_sentences_are_short_enough_to_train_on(corpus):
    lengths = [len(source.split()) for source, _ in corpus.pairs("train")]
    cut = positions.median_length_cut(corpus)
    assert 0.3 < sum(length < cut for length in lengths) / len(lengths) < 0.8


def test_the_experiment_writes_a_report(tmp_path, corpus, monkeypatch):
    shrink(monkeypatch)
    lab = toy_lab(tmp_path, corpus, seconds=60)
    report = positions.run(lab)
    check_report(report, lab, tables=2, pictures=3)
    assert set(report.results["scores"]) == {"sinusoidal", "learned"}  # there is no time for the third


def test_models_that_have_not_learned_are_not_compared(tmp_path, corpus, monkeypatch):
    shrink(monkeypatch, learned=False)
    lab = toy_lab(tmp_path, corpus, seconds=32)
    report = positions.run(lab)
    check_report(report, lab, tables=2, pictures=2)  # what is known without training, and what models reached
    assert "PE(pos + k) is a linear function" in report.findings[0]
    assert report.findings[1:] == (
        "Nothing was learned in this budget; it needs about 20 minutes (an estimate). Run it again with --budget 20m "
        "--overwrite.",
    )
