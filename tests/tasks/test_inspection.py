"""A look inside: what is shown is what was computed (promise B13), and what can be asked for."""

import numpy as np
import pytest
import torch

import dragoman
from dragoman.models.attention import MultiHeadAttention
from dragoman.models.transducer import Source
from dragoman.tasks.registry import build_model
from dragoman.tasks.translate import Translator
from dragoman.tokens import START
from dragoman.viewer.document import viewer_document

TEXT = "a b c d"


@pytest.fixture(scope="module")
def model(trained):
    return dragoman.load(trained)


@pytest.fixture
def uses(model, monkeypatch):
    """Everything that every attention gave in an ordinary pass: values in, and what left the layer."""
    seen = []
    plain = MultiHeadAttention.attend_projected

    def look(self, looking, key, value, mask, *, record=False):
        output = plain(self, looking, key, value, mask, record=record)
        seen.append((self, value, output[0]))
        return output

    monkeypatch.setattr(MultiHeadAttention, "attend_projected", look)
    record = model.inspect(TEXT)
    source = model.batch_of_one(model.source_tokens(TEXT))
    written = model.batch_of_one([START, *model.target_tokenizer.encode(record.target_text)])
    seen.clear()
    with torch.inference_mode():
        model.model.decode(written, model.model.encode(Source.from_ids(source)))
    return record, seen


def test_the_weights_shown_make_the_output_of_every_layer(uses):
    record, seen = uses
    layers = len(record.encoder)
    shown = [*record.encoder, *(weights for pair in zip(record.decoder, record.cross, strict=True) for weights in pair)]
    assert len(seen) == len(shown) == 3 * layers
    for weights, (attention, value, output) in zip(shown, seen, strict=True):
        heads = torch.from_numpy(weights)[None] @ value
        with torch.inference_mode():
            again = attention.output(heads.transpose(1, 2).flatten(2))
        assert (again - output).abs().max() <= 1e-6 * output.abs().max().clamp(min=1)


def test_rows_sum_to_one_and_what_lies_ahead_is_exactly_zero(model):
    record = model.inspect(TEXT)
    for kind in ("encoder", "decoder", "cross"):
        assert np.abs(record.weights(kind).sum(-1) - 1).max() < 1e-6
    assert not np.triu(record.decoder, 1).any()


def test_looking_changes_nothing(model):
    before = model.translate(TEXT)
    assert model.inspect(TEXT, trace=True).target_text == before == model.translate(TEXT)


def test_a_given_target_is_read_along(model):
    assert model.inspect(TEXT, target="C B A").target_text == "C B A"


def test_a_translation_begins_with_the_prefix(model):
    assert model.inspect(TEXT, prefix="H G").target_text.split()[:2] == ["H", "G"]
    assert model.inspect(TEXT, prefix="H G").forced_length == 2
    found = model.search([TEXT, "b"], prefix="H ", n_best=3)
    assert all(one.text.split()[0] == "H" for row in found for one in row)


def test_the_prefix_belongs_to_the_first_part_of_a_text_that_is_read_in_parts(model):
    text = ". ".join(["a b c d e"] * 3)
    (best,) = model.search([text], prefix="H")[0]
    assert best.parts > 1
    assert best.text.startswith("H")


def test_the_chosen_path_of_the_tree_is_the_translation(model):
    record = model.inspect(TEXT, trace=True, beam=4)
    chosen = [node for node in record.beam.nodes if node.status == "chosen"]
    assert tuple(node.piece for node in chosen) == record.target_pieces[: len(chosen)]
    assert [node.text for node in chosen if node.piece != "⟨end⟩"][-1] == record.target_text


def test_the_tree_says_where_each_step_looked(model):
    record = model.inspect(TEXT, trace=True)
    shown = record.beam.attention
    assert shown.shape == (len(record.beam.nodes), len(record.source_pieces))
    chosen = [place for place, node in enumerate(record.beam.nodes) if node.status == "chosen"]
    assert np.abs(shown[chosen] - record.cross[record.beam.layer].mean(0)[: len(chosen)]).max() < 1e-5


def test_each_step_names_the_likeliest_pieces_and_the_written_one_has_its_probability(model):
    record = model.inspect(TEXT, beam=1)
    whole = sum(step.log_probability for step in record.steps)
    assert whole == pytest.approx(model.score([TEXT], [record.target_text])[0].log_probability, abs=1e-4)
    assert all(step.top_choices[0].log_probability >= step.log_probability - 1e-6 for step in record.steps)


def test_a_head_that_is_switched_off_is_named_and_missed(model):
    heads = [("cross", 0, 0), ("cross", 0, 1), ("encoder", 0, 0)]
    record = model.inspect(TEXT, ablate_heads=heads)
    assert record.ablated_heads == tuple(sorted(heads))
    assert viewer_document(record)["ablated_heads"] == [list(head) for head in sorted(heads)]
    assert not np.allclose(record.encoder, 0)
    plain = model.inspect(TEXT, target=record.target_text)
    assert sum(step.log_probability for step in record.steps) != pytest.approx(
        sum(step.log_probability for step in plain.steps), abs=1e-3
    )


def test_few_models_without_heads_are_kept(model):
    first = model.ablated_model((("encoder", 0, 0),))
    assert model.ablated_model((("encoder", 0, 0),)) is first
    for kind in ("encoder", "decoder", "cross"):
        for heads in ([0], [1], [0, 1]):
            model.ablated_model(tuple((kind, 0, head) for head in heads))
    assert len(model.ablated_models.models) == 8


def test_a_record_can_be_made_again_with_something_changed(model):
    record = model.inspect(TEXT)
    assert record.rerun(text="d c").source_text == "d c"
    assert record.rerun(ablate_heads=[["cross", 0, 1]]).ablated_heads == (("cross", 0, 1),)
    assert record.rerun(trace=True).beam is not None


@pytest.mark.parametrize("head", [("cross", 1, 0), ("cross", 0, 2), ("self", 0, 0), ("cross", 0), ("cross", "0", 0)])
def test_a_head_that_is_not_there_is_refused_with_those_that_are(model, head):
    with pytest.raises(dragoman.UserError, match=r"layer is from 0 to 0 and head is from 0 to 1"):
        model.inspect(TEXT, ablate_heads=[head])


def test_the_heads_of_a_decoder_that_is_deeper_than_the_encoder_can_be_ablated(model):
    deeper = model.recipe.model.model_copy(update={"decoder_layers": 2})
    recipe = model.recipe.model_copy(update={"model": deeper})
    tokenizers = model.source_tokenizer, model.target_tokenizer
    deep = Translator(recipe, build_model(recipe, *tokenizers).eval(), *tokenizers, model.device)
    assert deep.inspect(TEXT, target="A", ablate_heads=[("cross", 1, 0)]).ablated_heads == (("cross", 1, 0),)
    with pytest.raises(dragoman.UserError, match="layer is from 0 to 0"):
        deep.inspect(TEXT, target="A", ablate_heads=[("encoder", 1, 0)])


def test_a_target_and_a_prefix_are_one_too_many(model):
    with pytest.raises(dragoman.UserError, match="cannot both be given"):
        model.inspect(TEXT, target="A", prefix="A")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_there_is_nothing_to_see_in_an_empty_text(model, text):
    with pytest.raises(dragoman.UserError, match="is empty"):
        model.inspect(text)
