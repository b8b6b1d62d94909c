"""The feed-forward floor: what it sees, what it cannot see."""

import pytest
import torch
from model_promises import CLOSE, batch, learned, logits
from small_models import random_rows, small_model

from dragoman.models.transducer import Memory, Source
from dragoman.tokens import START

kinds = pytest.mark.parametrize("kind", ["average", "concatenate"])


def test_an_average_cannot_tell_the_order_of_words_and_a_concatenation_can():
    source, prefix = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[START, 8]])
    found = {
        kind: [
            logits(small_model(architecture="bag_of_embeddings", pooling=kind), one, prefix)
            for one in (source, source.flip(1))
        ]
        for kind in ("average", "concatenate")
    }

    torch.testing.assert_close(*found["average"], **CLOSE)
    assert not torch.allclose(*found["concatenate"], atol=1e-3)


def test_an_average_is_the_mean_of_the_embeddings():
    model = small_model(architecture="bag_of_embeddings")
    source, prefix = batch()
    means = torch.stack([model.source_embedding(row[row != 0]).mean(0) for row in source])[:, None]

    found = model.decode(prefix, Memory(means, torch.ones(3, 1, dtype=torch.bool)))

    torch.testing.assert_close(found, model.decode(prefix, model.encode(Source.from_ids(source))), **CLOSE)


def test_a_concatenation_is_one_very_wide_layer_that_sees_so_many_words_and_no_more():
    model = small_model(architecture="bag_of_embeddings", pooling="concatenate", longest=8)
    source, prefix = random_rows([11]), torch.tensor([[START, 8]])
    other = source.clone()
    other[0, 8:] = 4

    side_by_side = model.source_embedding(source)[:, :8].reshape(1, 8 * 16)

    torch.testing.assert_close(
        model.context(model.encode(Source.from_ids(source))), model.pooling.inner(side_by_side), **CLOSE
    )
    torch.testing.assert_close(logits(model, other, prefix), logits(model, source, prefix), **CLOSE)
    assert small_model(architecture="bag_of_embeddings", pooling="concatenate").pooling.inner.in_features == 64 * 16


@kinds
def test_only_the_last_words_written_are_read(kind):
    model = small_model(architecture="bag_of_embeddings", pooling=kind, kernel=3)
    memory = model.encode(Source.from_ids(random_rows([5])))
    found = [model.decode(torch.tensor([[START, *words]]), memory)[0, -1] for words in ([9, 4, 5, 6], [8, 4, 5, 6])]
    other = model.decode(torch.tensor([[START, 9, 8, 5, 6]]), memory)[0, -1]

    torch.testing.assert_close(*found, **CLOSE)
    torch.testing.assert_close(other, model.decode(torch.tensor([[START, 7, 7, 7, 8, 5, 6]]), memory)[0, -1], **CLOSE)
    assert not torch.allclose(found[0], other, atol=1e-3)


@kinds
def test_nothing_attends(kind):
    shown = small_model(architecture="bag_of_embeddings", pooling=kind).attention_maps(
        Source.from_ids(batch()[0]), batch()[1]
    )
    assert (shown.encoder, shown.decoder, shown.cross) == ([], [], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "task"),
    [("average", lambda rows: rows.sort(dim=1).values), ("concatenate", lambda rows: rows.flip(1))],
    ids=["averaged words can be sorted", "concatenated ones can be turned around too"],
)
def test_it_learns_what_it_can_see(kind, task):
    model = small_model(
        torch.float32, architecture="bag_of_embeddings", pooling=kind, width=32, inner_width=96, kernel=4, longest=8
    )
    assert learned(model, task, steps=150, words=3) >= 0.8
