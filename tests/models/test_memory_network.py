"""The memory network: its hops written out by hand, and what must not change an answer."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.nn import functional as F

from dragoman.models.memory_network import MemoryNetwork
from dragoman.tokens import PAD

VOCABULARY, WIDTH, LONGEST = 11, 6, 8
orders = pytest.mark.parametrize("ordered", [False, True])
starts = pytest.mark.parametrize("linear", [False, True])


def small_network(hops=2, *, ordered=True, longest=LONGEST):
    torch.manual_seed(1)
    model = MemoryNetwork(VOCABULARY, WIDTH, hops, max_sentences=longest, position_encoding=ordered).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return model


def some_stories(batch=3, sentences=5, words=4):
    generator = torch.Generator().manual_seed(2)
    story = torch.randint(1, VOCABULARY, (batch, sentences, words), generator=generator)
    story[:, 1, 2:] = PAD  # sentences are not all alike in length
    story[0, 3, 1:] = PAD
    question = torch.randint(1, VOCABULARY, (batch, words), generator=generator)
    question[-1, 3:] = PAD
    return story, question


def vector(tokens, matrix, *, ordered):
    """Embed one sentence as section 4.1 of the memory network's paper says, word by word."""
    tokens = [token for token in tokens.tolist() if token != PAD]
    total = torch.zeros(WIDTH, dtype=torch.float64)
    for j, token in enumerate(tokens, start=1):
        for k in range(1, WIDTH + 1):
            part = (1 - j / len(tokens)) - (k / WIDTH) * (1 - 2 * j / len(tokens))
            total[k - 1] += (part if ordered else 1) * matrix[token, k - 1]
    return total


def softmax(scores):
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def by_hand(model, story, question, *, linear):
    """Read one story with three loops."""
    state = vector(question, model.word_embeddings[0], ordered=model.position_encoding)
    seen = []
    for hop in range(len(model.word_embeddings) - 1):
        ages = range(len(story) - 1, -1, -1)
        read, outputs = (
            [
                vector(line, model.word_embeddings[m], ordered=model.position_encoding)
                + model.temporal_embeddings[m, age]
                for line, age in zip(story, ages, strict=True)
            ]
            for m in (hop, hop + 1)
        )
        scores = [float(state @ line) for line in read]
        weights = scores if linear else softmax(scores)
        state = state + sum(weight * line for weight, line in zip(weights, outputs, strict=True))
        seen.append(weights)
    return model.word_embeddings[-1] @ state, torch.tensor(seen, dtype=torch.float64)


@orders
@starts
@pytest.mark.parametrize("hops", [1, 3])
@torch.no_grad()
def test_the_hops_equal_a_computation_with_loops(hops, ordered, linear):
    model = small_network(hops, ordered=ordered)
    story, question = some_stories()

    logits, weights = model(story, question, linear=linear)

    for row in range(len(story)):
        expected = by_hand(model, story[row], question[row], linear=linear)
        torch.testing.assert_close((logits[row], weights[row]), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_an_answer_is_a_word_and_every_hop_attends_to_every_sentence(hops):
    logits, weights = small_network(hops)(*some_stories())

    assert logits.shape == (3, VOCABULARY)
    assert weights.shape == (3, hops, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, hops, dtype=torch.float64))


@orders
@starts
@pytest.mark.parametrize("place", [0, 2, 5])
def test_padding_sentences_never_change_the_answer(ordered, linear, place):
    model = small_network(ordered=ordered)
    story, question = some_stories()
    empty = torch.full((3, 4, 4), PAD)
    padded = torch.cat([story[:, :place], empty, story[:, place:]], dim=1)

    logits, weights = model(story, question, linear=linear)
    with_padding, wider = model(padded, question, linear=linear)

    torch.testing.assert_close(with_padding, logits)
    torch.testing.assert_close(torch.cat([wider[..., :place], wider[..., place + 4 :]], dim=-1), weights)
    assert wider[..., place : place + 4].count_nonzero() == 0


def test_padding_words_never_change_the_answer():
    model = small_network()
    story, question = some_stories()
    torch.testing.assert_close(model(F.pad(story, (0, 3)), F.pad(question, (0, 2)))[0], model(story, question)[0])


def test_an_answer_does_not_depend_on_its_neighbours_in_the_batch():
    model = small_network()
    story, question = some_stories()
    torch.testing.assert_close(model(story, question)[0][1:2], model(story[1:2], question[1:2])[0])


def test_the_memory_holds_the_last_sentences_of_a_long_story():
    model = small_network(longest=3)
    story, question = some_stories()

    logits, weights = model(story, question)

    torch.testing.assert_close(logits, model(story[:, -3:], question)[0])
    assert weights[..., :2].count_nonzero() == 0


def test_a_story_without_sentences_has_an_answer():
    logits, weights = small_network()(torch.full((1, 2, 4), PAD), torch.tensor([[1, 2, 3, 4]]))
    assert torch.isfinite(logits).all()
    assert weights.count_nonzero() == 0


def test_a_bag_of_words_has_no_order_and_position_encoding_has():
    story, question = some_stories()
    story[:, 1] = story[:, 0]  # all sentences of one length, or a mirrored one would begin with padding
    story[0, 3] = story[0, 2]
    question[-1, 3:] = 1
    plain, ordered = small_network(ordered=False), small_network(ordered=True)
    torch.testing.assert_close(plain(story.flip(-1), question)[0], plain(story, question)[0])
    assert not torch.allclose(ordered(story.flip(-1), question)[0], ordered(story, question)[0])


def test_the_order_of_the_sentences_matters():
    model = small_network(ordered=False)
    story, question = some_stories()
    assert not torch.allclose(model(story.flip(1), question)[0], model(story, question)[0])


@orders
@starts
def test_the_gradients_are_those_of_finite_differences(ordered, linear):
    model = small_network(hops=2, ordered=ordered)
    names = list(dict(model.named_parameters()))

    def read(*parameters):
        with_them = dict(zip(names, parameters, strict=True))
        return functional_call(model, with_them, some_stories(batch=1, sentences=4), {"linear": linear})

    parameters = tuple(parameter.detach().requires_grad_() for parameter in model.parameters())
    assert gradcheck(read, parameters, fast_mode=True)


@starts
def test_every_matrix_is_used_and_padding_gets_no_gradient(linear):
    model = small_network(hops=3)
    story, question = some_stories()
    story[:, 0] = PAD

    logits, _ = model(story, question, linear=linear)
    F.cross_entropy(logits, torch.tensor([4, 5, 6])).backward()

    for parameter in model.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert (parameter.grad.flatten(1).abs().sum(1) > 0).all()
    assert (
        model.word_embeddings.grad[:-1, PAD].count_nonzero() == 0
    )  # the last matrix also writes: it learns not to answer PAD
    assert model.temporal_embeddings.grad[:, 4:].count_nonzero() == 0  # nobody is older than three


def test_a_network_learns_to_look_up_a_word():
    """Sentence (a b) says that a has b; asked a, the answer is b."""
    torch.manual_seed(1)
    model = MemoryNetwork(VOCABULARY, 16, 1, max_sentences=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    story = torch.stack([torch.randperm(VOCABULARY - 1)[:8].view(4, 2) + 1 for _ in range(200)])  # B M 2
    chosen = story[torch.arange(200), torch.randint(0, 4, (200,))]
    question, answer = F.pad(chosen[:, :1], (0, 1)), chosen[:, 1]
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(model(story, question)[0], answer).backward()
        optimizer.step()

    logits, weights = model(story, question)
    assert (logits.argmax(-1) == answer).float().mean() > 0.95
    found = story[torch.arange(200), weights[:, 0].argmax(-1)]
    assert (found == chosen).all(-1).float().mean() > 0.9
