"""Positions that count marked tokens: words on one side, their tags on the other."""

import pytest
import torch

from dragoman.errors import UserError
from dragoman.model.compiled import compiled
from dragoman.model.transformer import Transformer
from dragoman.recipe import Model, Recipe
from dragoman.tokens import PAD, START

WORDS, TAGS = range(5, 15), range(6, 9)  # tokens that begin a word, and that stand for one


@pytest.fixture
def model():
    torch.manual_seed(0)
    how = Model(
        layers=2,
        width=32,
        heads=4,
        inner_width=32,
        positions="counted",
        share_embeddings=False,
        norm="pre",
        dropout=0.0,
    )
    found = Transformer(how, 30, 20).double().eval()
    found.source_positions.marks[list(WORDS)] = 1
    found.target_positions.marks[list(TAGS)] = 1
    return found


@pytest.fixture
def sentences():
    drawn = torch.Generator().manual_seed(1)
    source = torch.randint(4, 30, (3, 7), generator=drawn)
    prefix = torch.randint(4, 20, (3, 6), generator=drawn)
    prefix[:, 0] = START
    return source, prefix


def test_a_tag_moves_the_decoder_to_the_next_word(model):
    source, target = model.source_positions, model.target_positions
    words = source.of(torch.tensor([[5, 20, 6, 7]]))[0, :, 16:]  # word 0 in two pieces, words 1 and 2
    tagged = target.of(torch.tensor([[START, 10, 6, 10, 7]]))[0, :, 16:]  # a bracket, a tag, a bracket, a tag
    assert torch.equal(words[[0, 0, 2, 2, 3]], tagged)


def test_the_other_half_tells_the_place_as_the_paper_does(model):
    places = model.target_positions.of(torch.tensor([[START, 10, 6, 10, 7]]))[0, :, :16]
    assert torch.equal(places, model.target_positions.places(0, 5))


def test_step_by_step_gives_the_logits_of_the_whole(model, sentences):
    source, prefix = sentences
    memory = model.encode(source)
    whole, state = model.decode(prefix, memory), model.start(memory)
    for place in range(prefix.shape[1]):
        logits, state = model.step(prefix[:, place : place + 1], memory, state)
        assert torch.allclose(logits[:, 0], whole[:, place], atol=1e-12)


def test_a_hypothesis_takes_its_count_along_when_the_beam_is_reordered(model, sentences):
    source, prefix = sentences
    memory = model.encode(source)
    _, state = model.step(prefix[:, :1], memory, model.start(memory))
    two = state.reorder(torch.zeros(3, 2, dtype=torch.long))
    _, two = model.step(torch.tensor([[6, 10]] * 3), memory, two)
    swapped, _ = model.step(torch.tensor([[10, 10]] * 3), memory, two.reorder(torch.tensor([[1, 0]] * 3)))
    straight, _ = model.step(torch.tensor([[10, 10]] * 3), memory, two)
    assert torch.allclose(swapped[:, 0], straight[:, 1], atol=1e-12)
    assert not torch.allclose(swapped[:, 0], straight[:, 0], atol=1e-3)


def test_padding_does_not_count(model, sentences):
    source, prefix = sentences
    padded = torch.nn.functional.pad(source, (0, 3), value=PAD)
    assert torch.allclose(model.decode(prefix, model.encode(padded)), model.decode(prefix, model.encode(source)))


def test_the_compiled_decoder_leaves_a_model_that_counts_alone(model):
    assert compiled(model.float(), "float32") is model


def test_a_task_without_anything_to_count_is_refused():
    with pytest.raises(UserError, match='positions = "counted" is for task parse; "translate" has nothing to count'):
        Recipe.from_table({"model": {"positions": "counted"}})


def test_a_width_that_cannot_be_halved_into_pairs_is_refused():
    with pytest.raises(UserError, match="a width that 4 divides"):
        Recipe.from_table({"task": "parse", "model": {"positions": "counted", "width": 30, "heads": 2}})
