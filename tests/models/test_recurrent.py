"""The recurrent encoder–decoder: what torch's own recurrence says, scores summed by hand."""

import copy

import pytest
import torch
from model_promises import CLOSE, batch, learned, logits
from small_models import random_rows, small_model
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from dragoman.model_config import RecurrentConfig
from dragoman.models.recurrent import (
    ATTENTIONS,
    CELLS,
    LOCATION_REACH,
    Recurrent,
    initialise_cell,
    reversal_index,
    reverse_sentences,
)
from dragoman.models.transducer import Memory, Source
from dragoman.tokens import PAD

cells = pytest.mark.parametrize("cell", ["lstm", "gru"])
scores = pytest.mark.parametrize("score", ["none", "additive", "dot", "general", "location", "scaled_dot"])


def recurrent(dtype=torch.float64, **settings):
    return small_model(dtype, architecture="recurrent", **settings)


def bidirectional(model, cell):
    """Return torch's own bidirectional stack with the weights of a model's encoder."""
    halves = CELLS[cell](16, 8, num_layers=2, batch_first=True, bidirectional=True, dtype=torch.float64)
    with torch.no_grad():
        for number, layer in enumerate(model.encoder):
            for part, direction in (("", layer.left_to_right), ("_reverse", layer.right_to_left)):
                for name, parameter in direction.cell.named_parameters():
                    getattr(halves, name.replace("_l0", f"_l{number}{part}")).copy_(parameter)
    return halves


@cells
def test_the_encoder_says_what_torch_says_of_packed_sentences(cell):
    model = recurrent(cell=cell)
    source = random_rows([7, 3, 5, 1])
    packed = pack_padded_sequence(
        model.source_embedding(source), (source != PAD).sum(1), batch_first=True, enforce_sorted=False
    )

    expected, _ = pad_packed_sequence(bidirectional(model, cell)(packed)[0], batch_first=True)
    memory = model.encode(Source.from_ids(source))

    torch.testing.assert_close(memory.states[memory.mask], expected[memory.mask], **CLOSE)


def test_a_sentence_is_turned_within_its_own_length_and_back():
    rows = random_rows([4, 1, 3])
    turn = reversal_index(rows != PAD)

    once = reverse_sentences(rows[..., None].double(), turn)

    assert [row[row != PAD].tolist() for row in once[..., 0].long()] == [
        row[row != PAD].flip(0).tolist() for row in rows
    ]
    assert torch.equal(reverse_sentences(once, turn)[..., 0].long(), rows)


def by_hand(look, query, state):
    """Return the score of one query (D) and one state (D), as its paper writes it."""
    return {
        "additive": lambda: look.score_function.direction[0] @ torch.tanh(look.query(query) + look.key(state)),
        "dot": lambda: query @ state,
        "general": lambda: query @ (look.key.weight @ state),
        "scaled_dot": lambda: look.query(query) @ look.key(state) / 4.0,  # the root of a width of 16
    }


@pytest.mark.parametrize("score", [score for score in ATTENTIONS if score != "location"])
def test_each_score_is_what_a_sum_by_hand_gives(score):
    look = ATTENTIONS[score](16).double()
    looking, states = torch.randn(2, 3, 16).double(), torch.randn(2, 4, 16).double()
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])

    seen, weights = look(looking, look.key(states), states, mask, record=True)

    for b, places in ((0, 4), (1, 3)):
        for t in range(3):
            rated = torch.stack([by_hand(look, looking[b, t], states[b, s])[score]() for s in range(places)])
            torch.testing.assert_close(weights[b, 0, t, :places], rated.softmax(0), **CLOSE)
            torch.testing.assert_close(seen[b, t], rated.softmax(0) @ states[b, :places], **CLOSE)
    torch.testing.assert_close(look(looking, look.key(states), states, mask)[0], seen, **CLOSE)


def test_the_score_by_location_is_what_a_sum_by_hand_over_earlier_looks_gives():
    look = ATTENTIONS["location"](16).double()
    looking, states = torch.randn(2, 3, 16).double(), torch.randn(2, 9, 16).double()
    mask = torch.tensor([[True] * 9, [True] * 7 + [False] * 2])
    kernel = look.location.weight.view(16, 2, 2 * LOCATION_REACH + 1)

    seen, weights = look(looking, look.key(states), states, mask, record=True)

    for b, places in ((0, 9), (1, 7)):
        looks = [torch.zeros(9).double()]
        for t in range(3):
            rated = torch.stack(
                [
                    look.direction.weight[0]
                    @ torch.tanh(
                        look.query(looking[b, t])
                        + look.key(states[b, s])
                        + sum(
                            kernel[:, 0, r] * looks[-1][s + r - LOCATION_REACH]
                            + kernel[:, 1, r] * sum(looks)[s + r - LOCATION_REACH]
                            for r in range(2 * LOCATION_REACH + 1)
                            if 0 <= s + r - LOCATION_REACH < 9
                        )
                    )
                    for s in range(places)
                ]
            )
            looks.append(torch.cat([rated.softmax(0), torch.zeros(9 - places).double()]))
            torch.testing.assert_close(weights[b, 0, t], looks[-1], **CLOSE)
            torch.testing.assert_close(seen[b, t], looks[-1] @ states[b], **CLOSE)


@scores
def test_only_a_score_leaves_weights_to_show(score):
    shown = recurrent(score=score).attention_maps(Source.from_ids(batch()[0]), batch()[1])

    assert (shown.encoder, shown.decoder) == ([], [])
    assert [tuple(weights.shape) for weights in shown.cross] == ([] if score == "none" else [(3, 1, 6, 7)])


@cells
def test_without_attention_only_the_ends_of_the_source_reach_the_decoder(cell):
    model = recurrent(cell=cell, score="none")
    source, prefix = batch()
    memory = model.encode(Source.from_ids(source))
    expected = model.decode(prefix, memory)
    middle = memory.states.clone()
    middle[0, 1:6], middle[0, 0, :8], middle[0, 6, 8:] = 9.0, 9.0, 9.0  # all but last onward and first backward

    torch.testing.assert_close(model.decode(prefix, Memory(middle, memory.mask)), expected, **CLOSE)
    attentive = recurrent(cell=cell, score="dot")
    assert not torch.allclose(
        attentive.decode(prefix, Memory(middle, memory.mask)), attentive.decode(prefix, memory), atol=1e-3
    )


@cells
@pytest.mark.parametrize("score", ["none", "additive"])
def test_torchs_faster_cells_of_single_precision_say_the_same(cell, score):
    model = recurrent(torch.float32, cell=cell, score=score)
    expected = logits(copy.deepcopy(model).double(), *batch())
    torch.testing.assert_close(logits(model, *batch()), expected.float(), atol=1e-4, rtol=0)


@cells
def test_a_cell_begins_by_keeping_what_it_has(cell):
    made = CELLS[cell](5, 4)
    initialise_cell(made)

    keeping = made.bias_ih_l0[4:8]
    assert torch.equal(keeping, torch.ones(4))
    assert made.bias_ih_l0.sum() == 4.0 and not made.bias_hh_l0.any()
    for gate in made.weight_hh_l0.split(4):
        torch.testing.assert_close(gate @ gate.T, torch.eye(4), atol=1e-5, rtol=0)


def test_two_vocabularies_cannot_share_one_embedding():
    with pytest.raises(AssertionError, match="9 source and 8 target tokens cannot share"):
        Recurrent(RecurrentConfig(layers=1, width=8), 9, 8)


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "score"), [("gru", "additive"), ("lstm", "none"), ("lstm", "location")])
def test_it_learns_to_write_backwards(cell, score):
    model = recurrent(torch.float32, cell=cell, score=score, layers=1, width=32)
    assert learned(model, lambda rows: rows.flip(1), steps=150, rate=1e-2, words=3) > 0.8
