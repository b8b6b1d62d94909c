"""The compiled search is the search: the same hypotheses with the same scores, however many are worked on at once."""

import pytest
import torch

from dragoman.decoding.hypothesis import FAILED_HYPOTHESIS, max_output_lengths
from dragoman.decoding.search import beam_search
from dragoman.model_config import TransformerConfig
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.native import functions
from dragoman.native.model import compile_model
from dragoman.native.search import native_beam_search
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD

pytestmark = pytest.mark.skipif(functions.native_library() is None, reason="built without kernels")

PIECES = 23


def model(seed=5):
    """A model of random parameters, large enough to be sure of something: outputs differ, end, and come back."""
    torch.manual_seed(seed)
    built = Transformer(
        TransformerConfig(layers=2, width=64, inner_width=96, heads=2, dropout=0.0, norm="pre"), PIECES, PIECES
    )
    with torch.no_grad():
        built.output_weight.mul_(6)
        built.output_weight[END] *= 1.5
    return built.eval()


def source(sentences=12, longest=9):
    rows = torch.randint(4, PIECES, (sentences, longest), generator=torch.Generator().manual_seed(8))
    for number, row in enumerate(rows):
        row[longest - 1 - number % 6 :] = PAD
        row[longest - 2 - number % 6] = END
    return rows


class Stepping:
    """A compiled model of which only the steps are seen, so that the search must make them one by one."""

    def __init__(self, fast):
        self.encode, self.initial_state, self.step = fast.encode, fast.initial_state, fast.step


def alike(mine, expected):
    assert [[one.tokens for one in row] for row in mine] == [[one.tokens for one in row] for row in expected]
    assert [[one.truncated for one in row] for row in mine] == [[one.truncated for one in row] for row in expected]
    for row, other in zip(mine, expected, strict=True):
        assert [one.score for one in row] == pytest.approx([one.score for one in other], abs=1e-9)
        assert [one.log_probability for one in row] == pytest.approx([one.log_probability for one in other], abs=1e-9)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (2, 1), (4, 1), (4, 4), (9, 3), (40, 5)])
@torch.inference_mode()
def test_it_finds_what_the_search_step_by_step_finds(beam, n_best, penalty, precision):
    config = DecodingConfig(beam=beam, length_penalty=penalty, extra_length=12)
    fast = compile_model(model(), precision)
    expected = beam_search(Stepping(fast), Source.from_ids(source()), config, n_best=n_best)
    alike(beam_search(fast, Source.from_ids(source()), config, n_best=n_best), expected)
    assert len({len(row[0].tokens) for row in expected}) > 2  # or it would prove little


@torch.inference_mode()
def test_a_search_that_pauses_finds_the_same(monkeypatch):
    """One row between two pauses is one step of all active sentences."""
    monkeypatch.setattr("dragoman.native.model._ROWS_BETWEEN_PAUSES", 1)
    config, fast, pauses = DecodingConfig(beam=4, extra_length=12), compile_model(model(), "float32"), []
    expected = beam_search(fast, Source.from_ids(source()), config)
    paused = native_beam_search(
        fast, Source.from_ids(source()), config, 1, active_sentences=1, pause=lambda: pauses.append(1)
    )
    alike(paused, expected)
    assert len(pauses) >= sum(len(row[0].tokens) for row in expected)


@torch.inference_mode()
def test_what_a_pause_raises_ends_the_search(monkeypatch):
    monkeypatch.setattr("dragoman.native.model._ROWS_BETWEEN_PAUSES", 1)
    pauses = iter([None, None])
    with pytest.raises(StopIteration):
        beam_search(
            compile_model(model(), "float32"), Source.from_ids(source()), DecodingConfig(), pause=lambda: next(pauses)
        )


@torch.inference_mode()
def test_the_greedy_hypothesis_goes_on_beside_the_beam():
    """Some model must lose its greedy hypothesis, or the place beside the beam was never needed."""
    lost = 0
    for seed in range(20):
        built = model(seed)
        greedy, narrow, wide = (
            beam_search(
                compile_model(built, "float32"),
                Source.from_ids(source()),
                DecodingConfig(beam=beam, extra_length=12, length_penalty=0.0),
            )
            for beam in (1, 2, 3)
        )
        for one, two, three in zip(greedy, narrow, wide, strict=True):
            assert two[0].score >= one[0].score - 1e-9
            assert three[0].score >= one[0].score - 1e-9
        lost += sum(two[0].tokens == one[0].tokens for one, two in zip(greedy, narrow, strict=True))
    assert lost


@pytest.mark.parametrize("at_once", [1, 2, 5, 12])
@torch.inference_mode()
def test_waiting_sentences_enter_where_others_have_left(at_once):
    config = DecodingConfig(beam=4, extra_length=12)
    fast = compile_model(model(), "float32")
    alone = [beam_search(fast, Source.from_ids(row[row != PAD][None]), config, n_best=2)[0] for row in source()]
    assert native_beam_search(fast, Source.from_ids(source()), config, 2, active_sentences=at_once) == alone


@torch.inference_mode()
def test_outputs_that_do_not_end_are_cut_at_the_longest_length():
    built = model()
    with torch.no_grad():
        built.output_weight[END] *= 0
        built.output_weight[END] -= 10 * built.output_weight[4:].mean(dim=0)
    config = DecodingConfig(beam=3, extra_length=4)
    found = beam_search(compile_model(built, "float32"), Source.from_ids(source()), config, n_best=3)
    cut = [one for row in found for one in row if one.truncated]
    assert cut
    longest = max_output_lengths(Source.from_ids(source()), config).tolist()
    assert all(
        len(one.tokens) == most for row, most in zip(found, longest, strict=True) for one in row if one.truncated
    )


@pytest.mark.parametrize("beam", [1, 4])
@torch.inference_mode()
def test_a_model_that_gives_only_nan_fails_and_ends(beam):
    built = model()
    with torch.no_grad():
        built.output_weight.fill_(torch.nan)
    found = beam_search(compile_model(built, "float32"), Source.from_ids(source()), DecodingConfig(beam=beam))
    assert found == [[FAILED_HYPOTHESIS]] * len(source())


@torch.inference_mode()
def test_what_would_need_too_much_memory_is_searched_step_by_step():
    fast = compile_model(model(), "float32")
    longest = max_output_lengths(Source.from_ids(source()), DecodingConfig(extra_length=1)) + 99_999
    assert fast.max_active_sentences(longest, beam=512) == 0
    assert fast.max_active_sentences(longest, beam=4) == 2
    assert fast.max_active_sentences(torch.full((300,), 30), beam=4) == 8
