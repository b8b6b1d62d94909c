from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_transducers import Toy, padded

from dragoman.decoding.hypothesis import Hypothesis, fast_topk
from dragoman.decoding.scoring import length_penalty, score_targets
from dragoman.decoding.search import beam_search
from dragoman.errors import UserError
from dragoman.models.transducer import Source
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, RESERVED_TOKENS, START, UNKNOWN

seeds = st.integers(0, 2**31)
alphas = st.sampled_from([0.0, 0.6, 1.0, 2.0])


def sources(vocabulary=6, most=5, longest=4):
    words = st.lists(st.integers(RESERVED_TOKENS, vocabulary - 1), min_size=1, max_size=longest)
    return st.lists(words.map(lambda tokens: [*tokens, END]), min_size=1, max_size=most)


def every_output(longest, vocabulary):
    """List all that can be produced in `longest` tokens: what ends with END, but not at once, and what is stopped."""
    words = [UNKNOWN, *range(RESERVED_TOKENS, vocabulary)]
    ended = [[*tokens, END] for length in range(1, longest) for tokens in product(words, repeat=length)]
    return ended + [list(tokens) for tokens in product(words, repeat=longest)]


def brute_force(model, source, config, vocabulary):
    outputs = every_output(len(source) - 1 + config.extra_length, vocabulary)
    scored = score_targets(model, Source.from_ids(padded([source] * len(outputs))), padded(outputs), config)
    return sorted(scored, key=lambda hypothesis: -hypothesis.score)


def greedy(model, source, config):
    """Take the likeliest token each time, asking the model for the whole prefix anew."""
    memory, prefix, total = model.encode(Source.from_ids(torch.tensor([source]))), [START], 0.0
    for _ in range(len(source) - 1 + config.extra_length):
        values = model.decode(torch.tensor([prefix]), memory)[0, -1].log_softmax(-1)
        values[[PAD, START, END] if prefix == [START] else [PAD, START]] = -torch.inf
        prefix.append(int(values.argmax()))
        total += float(values.max())
        if prefix[-1] == END:
            break
    penalty = length_penalty(float(len(prefix) - 1), config.length_penalty)
    words = tuple(token for token in prefix[1:] if token != END)
    return Hypothesis(words, total / penalty, total, truncated=prefix[-1] != END)


def same(found, expected, tolerance=1e-9):
    assert found.tokens == expected.tokens
    assert found.truncated == expected.truncated
    assert found.score == pytest.approx(expected.score, abs=tolerance)
    assert found.log_probability == pytest.approx(expected.log_probability, abs=tolerance)


@given(seeds, sources(), alphas)
@settings(max_examples=60, deadline=None)
def test_a_beam_of_one_is_greedy_search(seed, rows, alpha):
    model, config = Toy(seed), DecodingConfig(beam=1, length_penalty=alpha, extra_length=6)
    for source, (found,) in zip(rows, beam_search(model, Source.from_ids(padded(rows)), config), strict=True):
        same(found, greedy(model, source, config))


@given(seeds, st.lists(st.integers(4, 5), min_size=1, max_size=3), alphas)
@settings(max_examples=40, deadline=None)
def test_a_beam_wide_enough_finds_what_brute_force_finds(seed, words, alpha):
    model, config = Toy(seed), DecodingConfig(beam=128, length_penalty=alpha, extra_length=4 - len(words))
    found = beam_search(model, Source.from_ids(padded([[*words, END]])), config, n_best=20)[0]
    for hypothesis, expected in zip(found, brute_force(model, [*words, END], config, 6), strict=False):
        same(hypothesis, expected)
    assert len(found) == 20


@given(seeds, sources(vocabulary=40), st.integers(1, 6), alphas)
@settings(max_examples=60, deadline=None)
def test_the_n_best_are_sorted_unique_and_scored_as_they_say(seed, rows, beam, alpha):
    model, config = Toy(seed, 40), DecodingConfig(beam=beam, length_penalty=alpha, extra_length=5)
    for source, found in zip(rows, beam_search(model, Source.from_ids(padded(rows)), config, n_best=beam), strict=True):
        assert len(found) == beam
        assert len({(hypothesis.tokens, hypothesis.truncated) for hypothesis in found}) == beam
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        targets = padded([[*h.tokens, *[END] * (not h.truncated)] for h in found])
        for hypothesis, expected in zip(
            found, score_targets(model, Source.from_ids(padded([source] * beam)), targets, config), strict=True
        ):
            same(hypothesis, expected)


@given(seeds, sources(vocabulary=20), st.integers(2, 5), alphas)
@settings(max_examples=60, deadline=None)
def test_no_search_is_worse_than_the_greedy_one(seed, rows, beam, alpha):
    model, config = Toy(seed, 20, sharpness=0.5), DecodingConfig(beam=beam, length_penalty=alpha, extra_length=8)
    for source, (best,) in zip(rows, beam_search(model, Source.from_ids(padded(rows)), config), strict=True):
        assert best.score >= greedy(model, source, config).score - 1e-12


@given(seeds, sources(vocabulary=30, most=9, longest=9), st.integers(1, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_batch_gives_what_its_sentences_give_alone(seed, rows, beam, compact):
    model, config = Toy(seed, 30, end_bias=1.0), DecodingConfig(beam=beam, extra_length=7)
    together = beam_search(model, Source.from_ids(padded(rows, 12)), config, n_best=beam, compact=compact)
    for source, found in zip(rows, together, strict=True):
        alone = beam_search(model, Source.from_ids(padded([source])), config, n_best=beam)[0]
        for hypothesis, expected in zip(found, alone, strict=True):
            same(hypothesis, expected)


@given(seeds, st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_equal_scores_are_broken_alike_alone_and_in_a_batch(seed, beam):
    model, config = (
        Toy(seed, 30, sharpness=0.0),
        DecodingConfig(beam=beam, extra_length=3),
    )  # every token is equally likely
    rows = [[4, 5, END], [6, END], [7, 8, 9, END]]
    together = beam_search(model, Source.from_ids(padded(rows)), config, n_best=beam)
    assert together == [
        beam_search(model, Source.from_ids(padded([source])), config, n_best=beam)[0] for source in rows
    ]


@given(seeds, sources(), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_a_model_that_never_ends_is_stopped_at_the_longest_length_of_each_sentence(seed, rows, beam):
    model, config = Toy(seed, end_bias=-1e9), DecodingConfig(beam=beam, extra_length=5)
    for source, (best,) in zip(rows, beam_search(model, Source.from_ids(padded(rows)), config), strict=True):
        assert best.truncated
        assert len(best.tokens) == len(source) - 1 + 5


@given(seeds, sources(), alphas)
@settings(max_examples=30, deadline=None)
def test_padding_and_start_are_never_produced(seed, rows, alpha):
    model, config = Toy(seed), DecodingConfig(beam=4, length_penalty=alpha, extra_length=5)
    model.bias[[PAD, START]] = 50.0  # the model would like nothing better
    for hypotheses in beam_search(model, Source.from_ids(padded(rows)), config, n_best=4):
        assert not {PAD, START} & {token for h in hypotheses for token in h.tokens}


def test_a_search_stops_when_nothing_live_can_overtake():
    """Count the steps: a model sure of its END need not be followed to the longest length."""
    model, config = Toy(3, end_bias=12.0), DecodingConfig(beam=4, extra_length=200)
    steps = []
    model.step = lambda *arguments, step=model.step: steps.append(1) or step(*arguments)
    beam_search(model, Source.from_ids(padded([[4, 5, END]])), config)
    assert len(steps) < 10


def test_silence_is_never_the_answer_even_if_it_scores_best():
    """On Multi30k a sentence of 28 words came back empty: every wording of it was less probable than ending at once."""
    model = Toy(3, end_bias=50.0)
    (found,) = beam_search(
        model, Source.from_ids(padded([[4, 5, END]])), DecodingConfig(beam=4, extra_length=9), n_best=4
    )
    assert all(hypothesis.tokens for hypothesis in found)


@pytest.mark.parametrize("n_best", [0, -1])
def test_fewer_hypotheses_than_one_are_refused(n_best):
    with pytest.raises(UserError, match="must be at least 1, got"):
        beam_search(Toy(1), Source.from_ids(padded([[4, END]])), DecodingConfig(beam=4), n_best=n_best)


def test_more_hypotheses_than_the_beam_are_refused():
    with pytest.raises(UserError, match="n_best must be at most the beam width, 4, got 5"):
        beam_search(Toy(1), Source.from_ids(padded([[4, END]])), DecodingConfig(beam=4), n_best=5)


@given(seeds, st.integers(1, 300), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_the_largest_are_those_of_topk(seed, size, count):
    values = torch.randn(3, 2, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = values.topk(min(count, size))
    found, places = fast_topk(values, count)
    assert torch.equal(found, expected.values)
    assert torch.equal(places, expected.indices)
