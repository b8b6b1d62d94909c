import pytest
from toy_transducers import Toy, padded

from dragoman.decoding.scoring import score_targets
from dragoman.models.transducer import Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END

CONFIG = DecodingConfig(length_penalty=0.6)


def test_a_score_is_the_sum_of_the_log_probabilities_divided_by_the_penalty():
    model, source = Toy(1), padded([[4, 5, END]])
    values = model.decode(padded([[2, 5, 4]]), model.encode(Source.from_ids(source)))[0].log_softmax(-1)
    by_hand = float(values[0, 5] + values[1, 4] + values[2, END])
    (found,) = score_targets(model, Source.from_ids(source), padded([[5, 4, END]]), CONFIG)
    assert found.tokens == (5, 4)
    assert found.log_probability == pytest.approx(by_hand, abs=1e-12)
    assert found.score == pytest.approx(by_hand / (8 / 6) ** 0.6, abs=1e-12)


def test_a_score_does_not_depend_on_padding_or_neighbours():
    model = Toy(2)
    alone = score_targets(model, Source.from_ids(padded([[4, END]])), padded([[5, END]]), CONFIG)
    crowd = score_targets(
        model, Source.from_ids(padded([[4, END], [5, 5, 5, END]])), padded([[5, END], [4, 4, 4, 4, END]]), CONFIG
    )
    assert crowd[0].score == pytest.approx(alone[0].score, abs=1e-12)


def test_a_target_without_its_end_counts_as_truncated():
    (found,) = score_targets(Toy(1), Source.from_ids(padded([[4, END]])), padded([[5, 4]]), CONFIG)
    assert found.truncated
    assert found.tokens == (5, 4)
