"""One sum of surprises, divided by tokens, words, characters and bytes."""

import math

import pytest

from dragoman.errors import UserError
from dragoman.evaluation.perplexity import Perplexity, TextLoss, perplexity_table, to_json
from dragoman.evaluation.score import Score

TEXT = "wär\nes so\n"


def test_a_model_that_finds_two_tokens_alike_each_time_has_perplexity_two():
    found = Perplexity.from_loss(TextLoss(10 * math.log(2), 10, 0, 8, 4), TEXT)
    assert found.per_token == pytest.approx(2)
    assert found.bits_per_character == pytest.approx(1)
    assert found.per_word == pytest.approx(2 ** (10 / 3))
    assert {measure.name: round(measure.value, 3) for measure in found}["bits per byte"] == round(10 / 11, 3)


def test_what_makes_the_numbers_repeatable_is_printed_with_them():
    found = Perplexity.from_loss(TextLoss(12.0, 10, 2, 8, 4), TEXT)
    assert str(found).startswith(
        "bits per character 1.7312  tokens:10|characters:10|words:3|bytes:11|window:8|stride:4"
    )
    assert perplexity_table(found).endswith("|window:8|stride:4|unknown:2")
    assert to_json(found)["perplexity_per_token"] == pytest.approx(math.exp(1.2))


def test_a_text_that_was_hopeless_to_predict_has_a_number_all_the_same():
    assert math.isfinite(Perplexity.from_loss(TextLoss(1e9, 10, 0, 8, 4), TEXT).per_word)


def test_a_small_number_has_four_decimals():
    numbers = {score.name: score.number for score in Perplexity.from_loss(TextLoss(24.0, 10, 0, 8, 4), TEXT)}
    assert (numbers["nats per token"], numbers["perplexity per token"]) == ("2.4000", "11.02")


def test_there_is_nothing_to_predict_in_an_empty_text():
    with pytest.raises(UserError, match="The text is empty"):
        Perplexity.from_loss(TextLoss(0.0, 0, 0, 8, 4), "")


def test_a_huge_number_is_not_written_digit_by_digit():
    assert Score("perplexity per word", 3.21e40).number == "3.2e+40"
    assert Score("perplexity per word", 123456.789).number == "123456.79"
