"""A shortlist restricts what is said, sentence by sentence, and changes nothing else."""

import pytest
import torch
from test_compiled_search import PIECES, alike, model, source

from dragoman.decoding.engine import Engine
from dragoman.decoding.sampling_options import SamplingOptions
from dragoman.decoding.search import beam_search
from dragoman.decoding.shortlist import Shortlist, ShortlistedTransducer
from dragoman.models.transducer import Source
from dragoman.native import functions
from dragoman.native.model import compile_model
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD

CONFIG = DecodingConfig(beam=4, extra_length=12)


def table(likely=3, common=2):
    """Each source piece may become itself and its two neighbours."""
    around = torch.arange(PIECES)[:, None] + torch.arange(likely)
    return Shortlist(around % PIECES, torch.arange(5, 5 + common), PIECES)


def everything():
    return Shortlist(torch.arange(PIECES).repeat(PIECES, 1), torch.tensor([], dtype=torch.long), PIECES)


def sentences():
    return [row[row != PAD].tolist() for row in source()]


needs_kernels = pytest.mark.skipif(functions.native_library() is None, reason="built without kernels")


@pytest.mark.parametrize("fast", [pytest.param(True, marks=needs_kernels), False])
@torch.inference_mode()
def test_only_what_is_on_the_list_is_said(fast):
    transducer = ShortlistedTransducer(compile_model(model(), "float32") if fast else model(), table())
    for row, found in zip(source(), beam_search(transducer, Source.from_ids(source()), CONFIG, n_best=4), strict=True):
        allowed = {(token + more) % PIECES for token in [*row.tolist(), END] for more in range(3)} | {5, 6}
        assert all(set(one.tokens) <= allowed | {1} for one in found)


@needs_kernels
@pytest.mark.parametrize("precision", ["float32", "int8"])
@torch.inference_mode()
def test_the_compiled_search_is_restricted_alike(precision):
    class Stepping:
        def __init__(self, fast):
            self.encode, self.initial_state, self.step = fast.encode, fast.initial_state, fast.step

    fast = compile_model(model(), precision)
    expected = beam_search(ShortlistedTransducer(Stepping(fast), table()), Source.from_ids(source()), CONFIG, n_best=4)
    found = beam_search(ShortlistedTransducer(fast, table()), Source.from_ids(source()), CONFIG, n_best=4)
    assert [[one.tokens for one in row] for row in found] == [[one.tokens for one in row] for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert [one.score for one in row] == pytest.approx([one.score for one in other], abs=1e-4)


@torch.inference_mode()
def test_a_list_of_everything_changes_nothing():
    rows = sentences()
    plain = Engine(model(), CONFIG).search(rows, n_best=2)
    alike(Engine(model(), CONFIG, shortlist=everything()).search(rows, n_best=2), plain)


@needs_kernels
@torch.inference_mode()
def test_neighbours_change_nothing():
    engine = Engine(model(), CONFIG, shortlist=table())
    alone = [engine.search([row], n_best=2)[0] for row in sentences()]
    alike(engine.search(sentences(), n_best=2), alone)


@torch.inference_mode()
def test_what_is_drawn_at_random_is_on_the_list_too():
    for row, found in zip(
        sentences(),
        Engine(model(), CONFIG, shortlist=table()).sample(sentences(), SamplingOptions(3.0), n=3),
        strict=True,
    ):
        allowed = {(token + more) % PIECES for token in row for more in range(3)} | {1, 5, 6, 0, 2}
        assert all(set(one.tokens) <= allowed for one in found)
