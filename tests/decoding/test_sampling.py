from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_transducers import Toy, padded

from dragoman.decoding.sampling import draw_tokens, sample
from dragoman.decoding.sampling_options import SamplingOptions
from dragoman.decoding.scoring import score_targets
from dragoman.decoding.search import beam_search
from dragoman.errors import UserError
from dragoman.models.transducer import Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, START

CONFIG = DecodingConfig(beam=1, extra_length=4)
SOURCES = [[4, 5, END], [5, END], [4, 4, 5, 5, END]]


def test_the_same_seed_draws_the_same_and_another_seed_something_else():
    first, again, other = (
        sample(Toy(1, 30), Source.from_ids(padded(SOURCES)), CONFIG, SamplingOptions(seed=seed), n=3)
        for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


@given(st.integers(0, 1000), st.permutations(SOURCES), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_what_is_drawn_for_a_sentence_does_not_depend_on_its_neighbours(seed, rows, n):
    model = Toy(seed, 30)
    together = sample(model, Source.from_ids(padded(rows, 9)), CONFIG, SamplingOptions(seed=seed), n=n)
    for source, found in zip(rows, together, strict=True):
        alone = sample(model, Source.from_ids(padded([source])), CONFIG, SamplingOptions(seed=seed), n=n)[0]
        assert [h.tokens for h in found] == [h.tokens for h in alone]


@given(st.integers(0, 1000), st.sampled_from([1e-9, 1e-300]))
@settings(max_examples=30, deadline=None)
def test_near_temperature_zero_the_likeliest_token_is_taken(seed, temperature):
    model = Toy(seed, 30)
    found = sample(model, Source.from_ids(padded(SOURCES)), CONFIG, SamplingOptions(temperature), n=2)
    for draws, (greedy,) in zip(found, beam_search(model, Source.from_ids(padded(SOURCES)), CONFIG), strict=True):
        assert {draw.tokens for draw in draws} == {greedy.tokens}


def test_a_temperature_below_what_float32_can_tell_from_zero_is_no_division_by_zero():
    values = torch.tensor([[[0.1, 0.7, 0.2]]]).log()
    chance = torch.tensor([[0.5]], dtype=torch.float64)
    assert draw_tokens(values, chance, SamplingOptions(1e-50)).tolist() == [[1]]


@pytest.mark.parametrize("limits", [{"top_k": 1}, {"top_p": 1e-6}])
def test_drawing_from_one_token_is_greedy_search(limits):
    model = Toy(4, 30)
    found = sample(model, Source.from_ids(padded(SOURCES)), CONFIG, SamplingOptions(**limits))
    assert [draws[0].tokens for draws in found] == [
        h[0].tokens for h in beam_search(model, Source.from_ids(padded(SOURCES)), CONFIG)
    ]


def test_outputs_come_as_often_as_the_model_says():
    model, config = Toy(5), DecodingConfig(extra_length=1)
    draws = sample(model, Source.from_ids(padded([[4, END]])), config, SamplingOptions(seed=1), n=4000)[0]
    frequencies = Counter(draw.tokens for draw in draws if not draw.truncated)
    assert frequencies
    for tokens, times in frequencies.items():
        (expected,) = score_targets(model, Source.from_ids(padded([[4, END]])), padded([[*tokens, END]]), config)
        # PAD and START are never drawn, nor END at once, so the rest comes a little more often than the model says.
        chances = model.decode(padded([[START, *tokens]]), model.encode(Source.from_ids(padded([[4, END]]))))[
            0
        ].softmax(-1)
        chances[1:, END] = 0.0
        share = (1 - chances[:, [PAD, START, END]].sum(-1)).prod()
        probability = float(torch.tensor(expected.log_probability).exp() / share)
        assert times / 4000 == pytest.approx(probability, abs=0.03)


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_a_drawn_output_is_scored_like_any_other(seed):
    model = Toy(seed, 30)
    draws = sample(model, Source.from_ids(padded(SOURCES[:1])), CONFIG, SamplingOptions(0.7, top_k=9, top_p=0.9), n=3)[
        0
    ]
    targets = padded([[*h.tokens, *[END] * (not h.truncated)] for h in draws])
    for draw, expected in zip(
        draws, score_targets(model, Source.from_ids(padded(SOURCES[:1] * 3)), targets, CONFIG), strict=True
    ):
        assert (draw.tokens, draw.truncated) == (expected.tokens, expected.truncated)
        assert draw.score == pytest.approx(expected.score, abs=1e-9)


def test_only_the_likeliest_tokens_are_drawn_from():
    values = torch.tensor([0.5, 0.1, 0.3, 0.1]).log()
    chances = torch.linspace(0, 1 - 1e-12, 101, dtype=torch.float64)[None]
    rows = values.expand(1, 101, 4)
    assert set(draw_tokens(rows, chances, SamplingOptions(top_k=0, top_p=1.0)).flatten().tolist()) == {0, 1, 2, 3}
    assert set(draw_tokens(rows, chances, SamplingOptions(top_k=2, top_p=1.0)).flatten().tolist()) == {0, 2}
    assert set(draw_tokens(rows, chances, SamplingOptions(top_k=0, top_p=0.7)).flatten().tolist()) == {0, 2}
    assert set(draw_tokens(rows, chances, SamplingOptions(top_k=0, top_p=0.4)).flatten().tolist()) == {0}


def test_a_model_that_never_ends_is_stopped():
    for source, draws in zip(
        SOURCES, sample(Toy(1, end_bias=-1e9), Source.from_ids(padded(SOURCES)), CONFIG, n=2), strict=True
    ):
        assert all(draw.truncated and len(draw.tokens) == len(source) - 1 + 4 for draw in draws)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"temperature": -1.0}, "temperature must be 0 or more, got -1.0"),
        ({"temperature": float("nan")}, "got nan"),
        ({"top_k": -1}, "top_k must be 1 or more, or 0 for all tokens, got -1"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.5}, "got 1.5"),
    ],
)
def test_options_out_of_range_are_refused(wrong, words):
    with pytest.raises(UserError, match=words):
        SamplingOptions(**wrong)


def test_at_least_one_output_is_drawn():
    with pytest.raises(UserError, match="must be at least 1, got 0"):
        sample(Toy(1), Source.from_ids(padded(SOURCES)), CONFIG, n=0)


def test_temperature_zero_takes_the_likeliest_token():
    values, uniform = torch.tensor([[[-1.0, -0.5, -2.0]]]), torch.tensor([[0.99]])
    assert draw_tokens(values, uniform, SamplingOptions(0)).tolist() == [[1]]
