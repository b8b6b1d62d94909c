"""Whatever the model, whatever the source: every hypothesis is a well-formed tree over exactly the source's words."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_transducers import Toy, padded, small_transformer

from dragoman.decoding.engine import Engine
from dragoman.decoding.sampling import sample
from dragoman.decoding.sampling_options import SamplingOptions
from dragoman.decoding.search import beam_search
from dragoman.decoding.shortlist import Shortlist
from dragoman.decoding.tree_constraint import MAX_OPEN_BRACKETS, MAX_OPENING_CHAIN, TreeConstraint, TreeGrammar
from dragoman.errors import UserError
from dragoman.models.transducer import Source
from dragoman.native import functions
from dragoman.native.model import NativeTransformer
from dragoman.recipe import DecodingConfig
from dragoman.tokens import END, PAD, RESERVED_TOKENS

PIECES = ["pad", "unknown", "start", "end", "(A", "(B", "(C", ")C", ")A", ")B", "DT", "NN"]
VOCABULARY = len(PIECES)
OPEN, CLOSE, TAG = 4, 8, 10  # "(A", ")A" and "DT"
WORDS = (torch.arange(VOCABULARY) >= RESERVED_TOKENS + 2).long()  # two pieces go on with a word, the others begin one


def writer(model, config, pieces=PIECES):
    return TreeConstraint(model, TreeGrammar.from_vocabulary(pieces), WORDS, config)


def check_tree(tokens, words):
    """Read a tree with a stack and see that it is whole."""
    stack, seen, roots = [], 0, 0
    for token in tokens:
        if PIECES[token].startswith("("):
            roots += not stack
            stack.append([PIECES[token][1:], 0])
        elif PIECES[token].startswith(")"):
            label, inside = stack.pop()
            assert label == PIECES[token][1:]
            assert inside > 0, "an empty bracket"
            if stack:
                stack[-1][1] += 1
        else:
            seen += 1
            stack[-1][1] += 1
    assert not stack
    assert (seen, roots) == (words, 1)


def check_all(source, found):
    for row, hypotheses in zip(source, found, strict=True):
        words = int(WORDS[torch.as_tensor(row)].sum())
        for hypothesis in hypotheses:
            assert not hypothesis.truncated
            check_tree(hypothesis.tokens, words)


@st.composite
def sources(draw):
    """Draw a batch of sources of pieces, each beginning with a word."""
    rows = draw(st.lists(st.lists(st.integers(RESERVED_TOKENS, VOCABULARY - 1), max_size=9), min_size=1, max_size=4))
    return padded([[VOCABULARY - 1, *row, END] for row in rows])


@settings(max_examples=30, deadline=None)
@given(source=sources(), seed=st.integers(0, 10_000), beam=st.integers(1, 4), extra=st.integers(3, 12))
def test_every_hypothesis_is_a_tree_over_the_words_of_its_source(source, seed, beam, extra):
    config = DecodingConfig(beam=beam, extra_length=extra)
    model = writer(Toy(seed, VOCABULARY, sharpness=6.0), config)
    for compact in (True, False):
        check_all(source, beam_search(model, Source.from_ids(source), config, n_best=beam, compact=compact))
    check_all(source, sample(model, Source.from_ids(source), config, SamplingOptions(seed=seed), n=2))


class Rigged:
    """Logits that are the same at every step, whatever was read."""

    def __init__(self, wanted, strength):
        self.logits = torch.zeros(VOCABULARY)
        self.logits[wanted] = torch.tensor(strength)
        self.inside = Toy(1, VOCABULARY)

    def encode(self, source):
        return self.inside.encode(source)

    def initial_state(self, memory):
        return self.inside.initial_state(memory)

    def step(self, token, memory, state):
        return self.logits.expand(*token.shape, -1), self.inside.step(token, memory, state)[1]


@pytest.mark.parametrize("strength", [-torch.inf, -3e38, -50.0, 50.0, 3e38, torch.inf, torch.nan])
@pytest.mark.parametrize("wanted", [END, PAD, slice(4, 7), slice(7, 10), slice(10, 12), slice(None)], ids=str)
def test_a_model_that_wants_one_thing_only_or_never_still_writes_trees(wanted, strength):
    config = DecodingConfig(beam=3, extra_length=20)
    model = writer(Rigged(wanted, strength), config)
    rows = padded([[11] * 6 + [END], [11, END], [11, 4, 5, 11, END]])
    check_all(rows, beam_search(model, Source.from_ids(rows), config, n_best=3))
    check_all(rows, beam_search(model, Source.from_ids(rows), DecodingConfig(beam=1, extra_length=20)))
    check_all(rows, sample(model, Source.from_ids(rows), config, n=2))


def test_brackets_are_opened_as_long_as_there_is_room_to_close_them():
    config = DecodingConfig(beam=1, extra_length=9)
    found = beam_search(
        writer(Rigged([OPEN, TAG], [50.0, 25.0]), config), Source.from_ids(padded([[11, 11, END]])), config
    )
    assert [PIECES[token] for token in found[0][0].tokens] == [*["(A"] * 4, "DT", "DT", *[")A"] * 4]


def test_chains_of_brackets_and_depths_have_an_end():
    config = DecodingConfig(beam=1, extra_length=400)
    source = padded([[11] * 30 + [END]])
    ((best,),) = beam_search(writer(Rigged([OPEN, TAG], [50.0, 25.0]), config), Source.from_ids(source), config)
    tokens = best.tokens
    check_tree(tokens, 30)
    assert list(tokens[: MAX_OPENING_CHAIN + 1]) == [OPEN] * MAX_OPENING_CHAIN + [TAG]
    assert tokens.count(OPEN) == MAX_OPEN_BRACKETS


@pytest.mark.skipif(functions.native_library() is None, reason="built without kernels")
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_compiled_model_is_held_to_trees_too(precision):
    config = DecodingConfig(beam=4, extra_length=30, precision=precision)
    model = small_transformer(VOCABULARY, width=64, inner_width=96, heads=2)
    engine = Engine(model, config, constrain=lambda inner: writer(inner, config))
    assert isinstance(engine.search_model.model, NativeTransformer)
    rows = [[11] * count + [END] for count in (1, 9, 4, 2)]
    check_all(rows, engine.search(rows, n_best=4))
    check_all(rows, engine.search(rows, n_best=4, exact=True))
    check_all(rows, engine.sample(rows, n=3))


def test_a_shortlist_gives_way_where_a_tree_needs_what_is_not_on_it():
    config = DecodingConfig(beam=3, extra_length=30)
    listed = Shortlist(torch.full((VOCABULARY, 1), OPEN), torch.tensor([TAG]), VOCABULARY)
    engine = Engine(
        small_transformer(VOCABULARY), config, shortlist=listed, constrain=lambda inner: writer(inner, config)
    )
    rows = [[11] * count + [END] for count in (1, 7)]
    check_all(rows, engine.search(rows, n_best=3))


@torch.inference_mode()
def test_a_tree_keeps_the_probability_that_the_model_gives_it():
    config = DecodingConfig(beam=4, extra_length=30)
    engine = Engine(small_transformer(VOCABULARY), config, constrain=lambda inner: writer(inner, config))
    rows = [[11] * count + [END] for count in (1, 5, 3)]
    found = [hypotheses[0] for hypotheses in engine.search(rows)]
    scored = engine.score(rows, [[*one.tokens, END] for one in found])
    assert [one.log_probability for one in found] == pytest.approx([one.log_probability for one in scored], abs=1e-4)


@pytest.mark.parametrize("prefix", [[OPEN, TAG], [TAG], [CLOSE, CLOSE], [PAD, END, 1]])
def test_any_beginning_may_be_asked_for(prefix):
    config = DecodingConfig(beam=3, extra_length=10)
    source = padded([[11, 11, 11, END]])
    found = beam_search(writer(Toy(3, VOCABULARY), config), Source.from_ids(source), config, prefix=prefix)[0]
    begun = [one.tokens[: len(prefix)] == tuple(prefix) for one in found if not one.truncated]
    assert begun == [True] * (prefix == [OPEN, TAG])


def test_a_label_without_both_brackets_is_never_used():
    grammar = TreeGrammar.from_vocabulary(["", "", "", "", "(A", "(B", ")A", ")C", "NN"])
    usable = grammar.allowed.any(dim=0)
    usable[grammar.closing_token[1:]] = True
    assert usable.nonzero().squeeze(1).tolist() == [4, 6, 8]


@pytest.mark.parametrize("pieces", [["(A", ")B", "NN"], ["(A", ")A"], ["NN"], []])
def test_a_vocabulary_that_cannot_write_trees_is_refused(pieces):
    with pytest.raises(UserError, match='target_kind = "words"'):
        TreeGrammar.from_vocabulary(["", "", "", "", *pieces])


def test_a_longest_output_without_room_for_brackets_is_refused():
    with pytest.raises(UserError, match="extra_length = 2 is too small for"):
        writer(Toy(1, VOCABULARY), DecodingConfig(extra_length=2))
