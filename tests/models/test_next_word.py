"""A guide tells the decoder which word of the source is next."""

import pytest
import torch

from dragoman.decoding.search import beam_search
from dragoman.errors import UserError
from dragoman.model_config import TransformerConfig
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.native.model import compile_model
from dragoman.recipe import DecodingConfig, Recipe
from dragoman.tokens import END, PAD, START

WORD, GOES_ON, TAG, BRACKET = 5, 20, 6, 10  # begins a word, goes on with one; deals with a word, does not


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = TransformerConfig(
        layers=2, width=32, heads=2, inner_width=32, next_word=True, share_embeddings=False, norm="pre", dropout=0.0
    )
    found = Transformer(config, 30, 20).double().eval()
    begins, deals = torch.zeros(30, dtype=torch.long), torch.zeros(20, dtype=torch.long)
    begins[5:15] = 1
    deals[6:9] = 1
    found.next_word.set_word_tokens(begins, deals)
    return found


@pytest.fixture
def sentences():
    drawn = torch.Generator().manual_seed(1)
    source = torch.randint(4, 30, (3, 7), generator=drawn)
    prefix = torch.randint(4, 20, (3, 6), generator=drawn)
    prefix[:, 0] = START
    return source, prefix


def test_words_are_found_where_they_begin_and_behind_the_last_one_stands_the_end(model):
    source = torch.tensor(
        [[WORD, GOES_ON, WORD, WORD, END, PAD, PAD], [GOES_ON, WORD, GOES_ON, GOES_ON, WORD, 21, END]]
    )
    assert model.next_word.word_starts(Source.from_ids(source)).tolist() == [
        [0, 2, 3, 4, 4, 4, 4],
        [1, 4, 6, 6, 6, 6, 6],
    ]


def test_a_tag_moves_the_guide_on_and_a_bracket_does_not(model):
    memory = model.encode(Source.from_ids(torch.tensor([[WORD, GOES_ON, WORD, END]])))
    counts = model.next_word.count_words(torch.tensor([[START, BRACKET, TAG, BRACKET, TAG]])).cumsum(dim=1)
    shown = model.next_word.next_word_vectors(memory, counts)[0]
    expected = model.next_word.projection(memory.states[0, [0, 0, 2, 2, 3]])
    assert torch.allclose(shown, expected)


def test_more_tags_than_words_are_shown_the_end(model):
    memory = model.encode(Source.from_ids(torch.tensor([[WORD, END]])))
    assert torch.equal(
        model.next_word.next_word_vectors(memory, torch.tensor([[1]])),
        model.next_word.next_word_vectors(memory, torch.tensor([[99]])),
    )


def test_a_hypothesis_takes_its_count_along_when_the_beam_is_reordered(model, sentences):
    source, prefix = sentences
    memory = model.encode(Source.from_ids(source))
    _, state = model.step(prefix[:, :1], memory, model.initial_state(memory))
    two = state.reorder(torch.zeros(3, 2, dtype=torch.long))
    _, two = model.step(torch.tensor([[TAG, BRACKET]] * 3), memory, two)
    swapped, _ = model.step(torch.tensor([[BRACKET, BRACKET]] * 3), memory, two.reorder(torch.tensor([[1, 0]] * 3)))
    straight, _ = model.step(torch.tensor([[BRACKET, BRACKET]] * 3), memory, two)
    assert torch.allclose(swapped[:, 0], straight[:, 1], atol=1e-12)
    assert not torch.allclose(swapped[:, 0], straight[:, 0], atol=1e-3)


def test_the_compiled_decoder_follows_the_guide(model, sentences):
    source, prefix = sentences
    single = model.float()
    quick = compile_model(single, "float32")
    if quick is single:
        pytest.skip("built without kernels")
    memory = quick.encode(Source.from_ids(source))
    whole, state = single.decode(prefix, single.encode(Source.from_ids(source))), quick.initial_state(memory)
    for place in range(prefix.shape[1]):
        logits, state = quick.step(prefix[:, place : place + 1], memory, state)
        assert torch.allclose(logits[:, 0], whole[:, place], atol=1e-4)


def test_the_compiled_search_leaves_a_guided_model_alone(model, sentences):
    source, _ = sentences
    single = model.float()
    config = DecodingConfig(beam=3, extra_length=9)
    plain = beam_search(single, Source.from_ids(source), config)
    quick = beam_search(compile_model(single, "float32"), Source.from_ids(source), config)
    assert [row[0].tokens for row in quick] == [row[0].tokens for row in plain]


def test_the_next_word_is_refused_for_a_task_without_a_token_for_each_word():
    with pytest.raises(UserError, match='next_word needs task parse, not "translate"'):
        Recipe.from_table({"model": {"next_word": True}})


def test_an_architecture_without_the_feature_is_trained_without_it():
    recipe = Recipe.from_table({"task": "parse", "model": {"architecture": "recurrent"}})
    assert "next_word" not in recipe.model.model_dump()
