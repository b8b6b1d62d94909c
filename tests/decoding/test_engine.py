import random

import pytest
import torch
from toy_transducers import Toy, padded, sentences, small_transformer

from dragoman.decoding.engine import Engine, batches_by_length, exact_batches
from dragoman.decoding.hypothesis import EMPTY_HYPOTHESIS, FAILED_HYPOTHESIS
from dragoman.decoding.sampling_options import SamplingOptions
from dragoman.decoding.search import beam_search
from dragoman.models.transducer import Source
from dragoman.native import functions
from dragoman.parallel import ThreadPool
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD

CONFIG = DecodingConfig(beam=3, extra_length=4)


class Unasked:
    """A model that must not be asked."""

    def __getattr__(self, name):
        raise AssertionError(f"the model was asked to {name}")


def test_results_come_in_the_order_of_the_sources():
    model, rows = Toy(1, 200), sentences(40)
    alone = [beam_search(model, Source.from_ids(padded([row])), CONFIG)[0][0].tokens for row in rows]
    assert [found[0].tokens for found in Engine(model, CONFIG).search(rows)] == alone


@pytest.mark.parametrize("exact", [False, True])
def test_an_empty_source_gives_an_empty_output_without_asking_the_model(exact):
    engine = Engine(Unasked(), CONFIG)
    assert engine.search([[], [END], [PAD, PAD]], exact=exact) == [[EMPTY_HYPOTHESIS]] * 3
    assert engine.sample([[END]], n=2, exact=exact) == [[EMPTY_HYPOTHESIS] * 2]
    assert engine.score([[END]], [[END]], exact=exact) == [EMPTY_HYPOTHESIS]
    assert engine.search([], exact=exact) == []


def test_an_empty_source_has_no_other_translation_than_the_empty_one():
    assert Engine(Unasked(), CONFIG).score([[END]], [[4, END]])[0].score == -torch.inf


def test_empty_lines_keep_their_places_among_others():
    model = Toy(1)
    found = Engine(model, CONFIG).search([[END], [4, END], [], [5, 4, END]])
    assert found[0] == found[2] == [EMPTY_HYPOTHESIS]
    assert found[3][0].tokens == beam_search(model, Source.from_ids(padded([[5, 4, END]])), CONFIG)[0][0].tokens


@pytest.mark.parametrize("exact", [False, True])
def test_progress_counts_every_sentence_once(exact):
    counts = []
    Engine(Toy(1, 200), CONFIG).search([*sentences(200), [END]], exact=exact, progress=counts.append)
    assert sum(counts) == 201
    assert len(counts) > 2


def test_a_batch_keeps_to_its_budget_and_holds_sentences_of_like_length():
    shapes = {number: (len(row),) for number, row in enumerate(sentences(300, longest=90))}
    made = list(batches_by_length(shapes, 400))
    assert sorted(number for batch in made for number in batch) == list(range(300))
    assert all(len(batch) * max(shapes[number][0] for number in batch) <= 400 for batch in made)
    longest = [max(shapes[number] for number in batch) for batch in made]
    assert longest == sorted(longest, reverse=True)


def test_a_sentence_beyond_the_budget_is_a_batch_of_its_own():
    assert list(batches_by_length({0: (1000,), 1: (2,)}, 100)) == [[0], [1]]


def test_exact_batches_always_have_the_same_rows_and_one_padded_length():
    shapes = {number: (len(row),) for number, row in enumerate(sentences(100))}
    for batch in exact_batches(shapes):
        assert len(batch) == 16
        assert len({-(-shapes[number][0] // 8) for number in batch}) == 1


def test_the_model_is_left_as_it_was_found():
    model = small_transformer(dropout=0.5).train()
    engine, rows = Engine(model, CONFIG), sentences(3, longest=4)
    assert engine.search(rows) == engine.search(rows)  # without dropout
    assert model.training
    model.decode(
        padded([[2, 4]]), model.encode(Source.from_ids(padded(rows[:1])))
    ).sum().backward()  # and with gradients


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_scoring_a_translation_gives_the_score_it_was_found_with(beam, dtype, tolerance):
    engine = Engine(small_transformer().to(dtype), DecodingConfig(beam=beam, extra_length=4))
    rows = sentences(60)
    found = [hypothesis for (hypothesis, *_) in engine.search(rows, n_best=beam)]
    targets = [[*hypothesis.tokens, *[END] * (not hypothesis.truncated)] for hypothesis in found]
    for given, expected in zip(engine.score(rows, targets), found, strict=True):
        assert (given.tokens, given.truncated) == (expected.tokens, expected.truncated)
        assert given.score == pytest.approx(expected.score, abs=tolerance)


@pytest.mark.parametrize("exact", [False, True])
def test_a_broken_model_still_gives_one_result_for_each_source(exact):
    model = Toy(1)
    model.output = model.output * torch.nan
    engine = Engine(model, CONFIG)
    assert engine.search([[4, END], [END]], exact=exact) == [[FAILED_HYPOTHESIS], [EMPTY_HYPOTHESIS]]
    assert len(engine.sample([[4, END], [5, END]], SamplingOptions(top_p=0.9), exact=exact)) == 2


@pytest.mark.slow
def test_neighbours_do_not_change_a_translation():
    rows = sentences(80)
    engine = Engine(small_transformer(), CONFIG)
    alone = [engine.search([row], n_best=3)[0] for row in rows]
    assert {best.truncated for best, *_ in alone} == {False, True}
    for chosen in random_batches(len(rows), 10):
        for number, found in zip(chosen, engine.search([rows[n] for n in chosen], n_best=3), strict=True):
            assert [h.tokens for h in found] == [h.tokens for h in alone[number]]
            assert [h.score for h in found] == pytest.approx([h.score for h in alone[number]], abs=1e-4)


@pytest.mark.slow
# Two threads wait for each other at every product, which takes minutes on a machine that is busy.
@pytest.mark.parametrize(
    ("threads", "beam", "count"), [(1, 3, 60), (1, 1, 40), pytest.param(2, 3, 100, marks=pytest.mark.long)]
)
def test_in_exact_mode_neighbours_do_not_change_a_single_bit(threads, beam, count):
    torch.set_num_threads(threads)
    rows = sentences(count)
    engine = Engine(small_transformer(), DecodingConfig(beam=beam, extra_length=4))
    alone = [engine.search([row], n_best=beam, exact=True)[0] for row in rows]
    for chosen in random_batches(count, count // 10 + 2):
        found = engine.search([rows[number] for number in chosen], n_best=beam, exact=True)
        assert found == [alone[number] for number in chosen]


def test_scores_and_draws_are_exact_too():
    rows = sentences(30)
    engine = Engine(small_transformer(), CONFIG)
    draws = engine.sample(rows, SamplingOptions(seed=5), n=2, exact=True)
    targets = [[*h.tokens, END] for h, _ in draws]
    scores = engine.score(rows, targets, exact=True)
    for number in range(0, 30, 3):
        assert (
            engine.sample(rows[number : number + 1], SamplingOptions(seed=5), n=2, exact=True)
            == draws[number : number + 1]
        )
        assert engine.score(rows[number : number + 1], targets[number : number + 1], exact=True) == [scores[number]]


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_crew_finds_what_one_finds(precision):
    rows = sentences(120)
    config = DecodingConfig(beam=3, extra_length=4, batch_tokens=128, precision=precision)
    model = small_transformer(heads=2)
    assert Engine(model, config, pool=ThreadPool(2)).search(rows, n_best=2) == Engine(model, config).search(
        rows, n_best=2
    )


@pytest.mark.skipif(functions.native_library() is None, reason="built without kernels")
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_compiled_loops_need_no_exact_mode(precision):
    rows = sentences(40)
    engine = Engine(small_transformer(heads=2), DecodingConfig(beam=3, extra_length=4, precision=precision))
    alone = [engine.search([row], n_best=3)[0] for row in rows]
    for chosen in random_batches(40, 6):
        assert engine.search([rows[number] for number in chosen], n_best=3) == [alone[number] for number in chosen]


def test_a_search_is_the_same_with_and_without_compiled_loops(monkeypatch):
    rows, model = sentences(60), small_transformer(heads=2)
    compiled = Engine(model, CONFIG).search(rows, n_best=3)
    monkeypatch.setattr(functions, "native_library", lambda: None)
    for one, other in zip(compiled, Engine(model, CONFIG).search(rows, n_best=3), strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


def random_batches(count, times):
    generator = random.Random(7)
    return [generator.sample(range(count), min(count, generator.randint(1, 64))) for _ in range(times)]
