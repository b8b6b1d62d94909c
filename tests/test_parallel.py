"""Two threads that share a batch do what one does."""

import threading

import pytest
import torch

from dragoman.model_config import TransformerConfig
from dragoman.models.transducer import Source
from dragoman.models.transformer import Transformer
from dragoman.parallel import SINGLE_THREAD, ThreadPool
from dragoman.recipe import TrainingConfig
from dragoman.tokens import END, PAD, START
from dragoman.training import loop
from dragoman.training.distributed import SINGLE_PROCESS
from dragoman.training.loop import TensorBatch, accumulate_gradients
from dragoman.training.loss import cross_entropy_objective


@pytest.fixture
def small_shares(monkeypatch):
    monkeypatch.setattr(loop, "MIN_SHARD_TOKENS", 4)


def batch(sentences=13, seed=1):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(4, 40, (sentences, 9), generator=generator)
    target = torch.randint(4, 40, (sentences, 8), generator=generator)
    target[:, -1] = END
    target[::3, 5] = END
    target[::3, 6:] = PAD
    prefix = torch.cat([torch.full((sentences, 1), START), target[:, :-1]], dim=1)
    prefix[prefix == END] = PAD
    return TensorBatch(Source.from_ids(source), prefix, target, int((target != PAD).sum()), list(range(sentences)))


def gradients(crew, dropout=0.0):
    torch.manual_seed(3)
    model = Transformer(TransformerConfig(layers=2, width=32, inner_width=64, heads=2, dropout=dropout), 40, 40)
    losses = accumulate_gradients(
        model, cross_entropy_objective(0.1), [batch()], TrainingConfig(precision="float32"), 1, SINGLE_PROCESS, crew
    )
    return losses, [parameter.grad for parameter in model.parameters()]


def test_two_threads_find_the_gradient_of_one(small_shares):
    (loss, nll, tokens, pairs), alone = gradients(SINGLE_THREAD)
    (shared_loss, shared_nll, shared_tokens, shared_pairs), together = gradients(ThreadPool(2))
    assert (shared_loss, shared_nll) == pytest.approx((loss, nll), rel=1e-6)
    assert (shared_tokens, sorted(shared_pairs)) == (tokens, sorted(pairs))
    for one, two in zip(alone, together, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def test_a_crew_gives_the_same_bits_every_time_dropout_included(small_shares):
    crew = ThreadPool(3)
    (first, once), (second, again) = gradients(crew, dropout=0.3), gradients(crew, dropout=0.3)
    assert first == second
    assert all(torch.equal(one, two) for one, two in zip(once, again, strict=True))


def test_the_shares_of_a_batch_are_the_batch(small_shares):
    whole = batch()
    shares = whole.split_rows(4)
    assert len(shares) == 4
    assert sum(share.tokens for share in shares) == whole.tokens
    assert sorted(number for share in shares for number in share.line_numbers) == whole.line_numbers
    assert max(len(share.target) for share in shares) - min(len(share.target) for share in shares) <= 1


def test_a_small_batch_is_not_cut_up():
    assert len(batch().split_rows(4)) == 1


def test_a_crew_works_at_the_same_time_and_answers_in_order():
    together = threading.Barrier(2, timeout=120)  # passed only if two wait at it at once

    def work(item):
        together.wait()
        return item, torch.get_num_threads()

    assert list(ThreadPool(2).map(work, [0, 1, 2, 3])) == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_an_error_in_a_share_reaches_the_caller(small_shares):
    with pytest.raises(ZeroDivisionError):
        list(ThreadPool(2).map(lambda item: 1 // item, [1, 0]))
