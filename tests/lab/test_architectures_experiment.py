"""Table 2: equal numbers of parameters, equal time, and counted FLOPs."""

import pytest
from small_lab import check_report, shrink
from toy_lab import toy_lab

from dragoman.lab import architectures
from dragoman.lab.architectures import (
    CONTENDERS,
    count_flops_per_token,
    count_settings_parameters,
    length_finding,
    match_parameters,
    quantile_ranges,
    width_settings,
)
from dragoman.lab.corpus import bleu_in_range, format_range, is_in_range
from dragoman.model_config import RecurrentConfig, TransformerConfig

SMALL = {"layers": 2, "width": 16, "inner_width": 32, "heads": 2, "share_output": False}


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_has_about_as_many_parameters_as_the_transformer(tmp_path, corpus, name):
    lab = toy_lab(tmp_path, corpus)
    goal = count_settings_parameters({}, 3000, lab)
    assert count_settings_parameters(match_parameters(name, goal, 3000, lab), 3000, lab) == pytest.approx(
        goal, rel=0.08
    )


@pytest.mark.parametrize("name", [name for name in CONTENDERS if name != "Transformer"])
def test_the_width_of_a_model_comes_closest_to_the_number_of_parameters(tmp_path, corpus, name):
    lab = toy_lab(tmp_path, corpus)
    settings = match_parameters(name, 1_000_000, 3000, lab)
    width = settings["model.width"]
    sizes = [
        count_settings_parameters(width_settings(settings, each), 3000, lab) for each in (width - 2, width, width + 2)
    ]
    assert sizes == sorted(sizes)
    assert min(abs(size - 1_000_000) for size in sizes) == abs(sizes[1] - 1_000_000)


def test_operations_of_a_transformer_are_those_of_the_formula():
    """Forward and backward: three products for each one; attention compares all of 13 by 13 places."""
    length, width, inner, pieces = 13, 16, 32, 50
    encoder = 2 * (4 * width * width + 2 * width * inner) + 2 * 2 * length * width
    decoder = 2 * (8 * width * width + 2 * width * inner) + 4 * 2 * length * width
    forward = 2 * (encoder + decoder) + 2 * width * pieces
    assert count_flops_per_token(TransformerConfig(**SMALL), pieces, pieces) == pytest.approx(3 * forward, rel=0.02)


def test_operations_of_a_recurrent_model_include_those_of_its_cells():
    """A cell of an LSTM has eight products of width by width; two directions of half the width in the encoder."""
    width, pieces = 16, 50
    config = RecurrentConfig(layers=1, width=SMALL["width"], dropout=0.0, score="none")
    least = 3 * 2 * (8 * width * width + 8 * (width // 2) * width + width * pieces)
    assert least * 0.8 < count_flops_per_token(config, pieces, pieces) < 2.5 * least


def test_every_sentence_is_in_one_range_of_lengths_and_ranges_have_similar_sizes():
    pairs = [(" ".join("a" * length), "b") for length in [*range(1, 21)] * 5]
    ranges = quantile_ranges(pairs)
    counts = [sum(is_in_range(source, each) for source, _ in pairs) for each in ranges]
    assert sum(counts) == len(pairs)
    assert len(ranges) == 4
    assert max(counts) <= 1.5 * min(counts)


def test_one_length_alone_is_one_range():
    assert len(quantile_ranges([("a b", "c")] * 3)) == 1


def test_bleu_of_a_range_uses_only_the_sentences_of_that_length():
    pairs = [("a b", "one two three four"), ("a b c d e f", "five six seven eight")]
    translations = ["one two three four", "nothing of the kind"]
    result = [bleu_in_range(translations, pairs, each) for each in quantile_ranges(pairs)]
    assert result[0] == pytest.approx(100)
    assert result[-1] < 10
    assert [format_range(each) for each in ((2, 2), (3, 6))] == ["2", "3–6"]


def test_a_difference_that_grows_with_length_is_reported():
    lengths = quantile_ranges([("a b", ""), ("a b c d", "")])
    assert "the difference is largest on the longest sentences" in length_finding(
        "x", "y", {"x": [9, 9], "y": [8, 1]}, lengths
    )
    assert "The BLEU of x minus that of y is −1.0 on sentences of 2 words" in length_finding(
        "x", "y", {"x": [8, 1], "y": [9, 9]}, lengths
    )
    assert "the difference is not largest" in length_finding("x", "y", {"x": [9, 9], "y": [1, 8]}, lengths)


def test_the_experiment_trains_all_models_and_writes_a_report(tmp_path, corpus, monkeypatch):
    few = {name: CONTENDERS[name] for name in ("recurrent, no attention", "recurrent, additive", "Transformer")}
    monkeypatch.setattr(architectures, "CONTENDERS", few)
    monkeypatch.setattr(architectures, "RECURRENT_WITH_ATTENTION", ["recurrent, additive"])
    shrink(monkeypatch)
    lab = toy_lab(tmp_path, corpus, seconds=60.0)
    report = architectures.run(lab)
    check_report(report, lab, tables=2, pictures=2)
    rows = report.results["contenders"]
    assert set(rows) == set(few)
    assert {row["steps"] for row in rows.values()} == {8}
    assert "3 models (3 variants, 1 seed), 20 s each, about 10 steps; compared after the same training time" in str(
        report.parts[1]
    )
    assert report.findings[0].startswith("BLEU after the same training time with the same number of parameters")
