import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.arrays import tokenize_corpus
from dragoman.data.batches import Order, batch_boundaries, collate
from dragoman.tokens import END, PAD, START

quick = settings(max_examples=150, deadline=None)

lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200).map(np.array)


def order_of(pairs: np.ndarray, batch_tokens: int = 100, accumulate: int = 1, seed: int = 1) -> Order:
    """Return the order of pairs of these lengths."""
    return Order(pairs.max(axis=1), batch_tokens, accumulate, seed, tie_break=pairs[:, 1])


def some_lengths(count: int = 500) -> np.ndarray:
    """Return lengths with many ties."""
    return np.random.default_rng(0).integers(2, 20, size=(count, 2))


def epoch_of(order: Order, epoch: int, world: int) -> list[int]:
    """Return the indices of all pairs that all processes see in an epoch."""
    steps = order.updates_per_epoch
    return [
        int(number)
        for step in range(epoch * steps, (epoch + 1) * steps)
        for rank in range(world)
        for batch in order.update(step)[rank::world]
        for number in batch
    ]


@quick
@given(lengths, st.integers(1, 200), st.integers(1, 4), st.integers(1, 5), st.integers(0, 3), st.integers(0, 9))
def test_every_pair_is_seen_exactly_once_per_epoch(pairs, batch_tokens, accumulate, world, epoch, seed):
    order = order_of(pairs, batch_tokens, accumulate, seed)
    assert sorted(epoch_of(order, epoch, world)) == list(range(len(pairs)))


@quick
@given(lengths, st.integers(1, 200))
def test_a_batch_keeps_to_its_tokens_unless_one_pair_alone_is_more(pairs, batch_tokens):
    order = order_of(pairs, batch_tokens)
    for batch in order.epoch_batches(0):
        assert len(batch) == 1 or len(batch) * pairs[batch].max() <= batch_tokens


@quick
@given(lengths, st.integers(1, 200))
def test_no_batch_could_take_in_the_next_pair_too(pairs, batch_tokens):
    longest = np.sort(pairs.max(axis=1))
    ends = batch_boundaries(pairs.max(axis=1), batch_tokens)
    starts = [0, *ends[:-1]]
    for start, end in zip(starts[:-1], ends[:-1], strict=True):
        assert (end - start + 1) * longest[end] > batch_tokens


@quick
@given(lengths, st.integers(0, 60), st.integers(1, 3))
def test_a_run_that_starts_at_any_step_sees_what_one_that_never_stopped_sees(pairs, stop, accumulate):
    uninterrupted, resumed = order_of(pairs, 100, accumulate), order_of(pairs, 100, accumulate)
    for step in range(stop):
        uninterrupted.update(step)
    for step in range(stop, stop + 5):
        expected = uninterrupted.update(step)
        assert [batch.tolist() for batch in resumed.update(step)] == [batch.tolist() for batch in expected]


def test_an_update_has_as_many_micro_batches_as_are_accumulated():
    order = order_of(some_lengths(), accumulate=3)
    assert [len(order.update(step)) for step in range(3)] == [3, 3, 3]


def test_epochs_have_equally_many_updates_but_different_batches():
    order = order_of(some_lengths())
    first, second = order.epoch_batches(0), order.epoch_batches(1)
    assert len(first) == len(second) == order.updates_per_epoch
    assert {tuple(sorted(batch)) for batch in first} != {tuple(sorted(batch)) for batch in second}


def test_other_seeds_give_another_order():
    assert epoch_of(order_of(some_lengths(), seed=1), 0, 1) != epoch_of(order_of(some_lengths(), seed=2), 0, 1)


def test_short_and_long_batches_are_mixed():
    pairs = some_lengths(2000)
    longest = [int(pairs[batch].max()) for batch in order_of(pairs).epoch_batches(0)]
    assert longest != sorted(longest)
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.3


def test_the_order_is_the_same_in_every_version():
    """Written down once: a run begun with one version of the libraries is resumed with another."""
    order = order_of(np.array([[2, 3], [3, 2], [5, 5], [2, 2], [4, 4], [3, 3]]), batch_tokens=8)
    assert [batch.tolist() for batch in order.epoch_batches(0)] == [[2], [0, 5], [4], [3, 1]]
    assert [batch.tolist() for batch in order.epoch_batches(1)] == [[3, 1], [4], [2], [0, 5]]


def test_a_batch_is_padded_and_the_prefix_is_the_target_moved_by_one(corpus_of, tokenizer, tmp_path):
    pairs = tokenize_corpus(corpus_of([("a", "x"), ("a dog", "yz")]), tokenizer, tokenizer, 20, tmp_path)
    batch = collate(pairs, [1, 0])
    space, x, y, z = tokenizer.encode("xyz")
    assert batch.target.tolist() == [[space, y, z, END], [space, x, END, PAD]]
    assert batch.prefix.tolist() == [[START, space, y, z], [START, space, x, PAD]]
    assert batch.source.tolist() == [
        [*tokenizer.encode("a dog"), END],
        [*tokenizer.encode("a"), END, PAD, PAD, PAD, PAD],
    ]
    assert batch.tokens == 7
    assert batch.indices.tolist() == [1, 0]
    assert {array.dtype for array in (batch.source, batch.prefix, batch.target, batch.indices)} == {np.dtype(np.int64)}


@pytest.mark.parametrize("batch_tokens", [16, 64, 4096])
def test_batches_of_a_corpus_hold_all_its_tokens(corpus_of, tokenizer, tmp_path, batch_tokens):
    corpus = corpus_of([("s" * (number % 13 + 1), "t" * (number % 7 + 1)) for number in range(300)])
    pairs = tokenize_corpus(corpus, tokenizer, tokenizer, 50, tmp_path)
    order = Order(pairs.costs, batch_tokens)
    batches = [collate(pairs, numbers) for numbers in order.epoch_batches(0)]
    assert sum(batch.tokens for batch in batches) == pairs.target_lengths.sum()
    assert max(max(batch.source.size, batch.target.size) for batch in batches) <= batch_tokens


def test_batches_of_many_pairs_are_nearly_full():
    pairs = np.random.default_rng(0).integers(2, 80, size=(100_000, 2))
    fullest = pairs.max(axis=1).sum() / 25_000  # if no batch had padding or room left
    assert fullest <= order_of(pairs, batch_tokens=25_000).updates_per_epoch <= 1.02 * fullest
