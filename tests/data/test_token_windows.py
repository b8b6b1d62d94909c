"""Running text as token arrays: every token in its stretches, cut once, kept, and gone on with exactly."""

import numpy as np
import pytest

from dragoman import recipe
from dragoman.data import token_windows as stream_module
from dragoman.data.batches import Order, collate
from dragoman.data.running_text import RunningText
from dragoman.data.split import SplitPart, pair_hash
from dragoman.data.token_windows import tokenize_long_text, tokenize_stream
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, START

LINE = "the quick brown fox jumps over the lazy dog\n"


@pytest.fixture
def text_of(write):
    def written(content, overlap=1):
        return RunningText.from_file(write("text.txt", content.encode()), overlap)

    return written


@pytest.fixture(scope="module")
def letters():
    return Tokenizer.train([LINE], recipe.TokenizerConfig(kind="characters"))


def test_stretches_without_overlap_are_the_text_one_after_another_and_its_end(text_of, letters, tmp_path):
    pairs = tokenize_stream(text_of(LINE * 3), letters, 50, tmp_path)
    tokens = [*letters.encode(LINE * 3), END]
    assert [token for number in range(len(pairs)) for token in pairs.target(number).tolist()] == tokens
    assert pairs.target_lengths.tolist() == [50, 50, 33]
    assert pairs.source_lengths.tolist() == [0, 0, 0]


def test_with_overlap_every_token_but_the_first_and_last_is_in_as_many_stretches(text_of, letters, tmp_path):
    pairs = tokenize_stream(text_of(LINE * 10, overlap=4), letters, 40, tmp_path)
    seen = np.zeros(len(pairs.target_tokens), dtype=int)
    for number in range(len(pairs)):
        start = pairs.target_offsets[number]
        np.testing.assert_array_equal(pairs.target(number), pairs.target_tokens[start : start + 40])
        seen[start : start + 40] += 1
    assert set(seen[30:-40].tolist()) == {4} and seen.min() >= 1
    assert set(pairs.target_lengths[:-1].tolist()) == {40}


def test_a_text_shorter_than_a_stretch_is_one(text_of, letters, tmp_path):
    pairs = tokenize_stream(text_of("the fox", overlap=8), letters, 40, tmp_path)
    assert pairs.target(0).tolist() == [*letters.encode("the fox"), END] and len(pairs) == 1


def test_a_batch_has_no_source_and_begins_each_stretch_with_start(text_of, letters, tmp_path):
    pairs = tokenize_stream(text_of(LINE * 10, overlap=4), letters, 16, tmp_path)
    order = Order(pairs.costs, 64, seed=3)
    (numbers,) = order.update(5)
    batch = collate(pairs, numbers)
    assert batch.source.shape == (4, 0) and batch.target.shape == (4, 16)
    assert set(batch.prefix[:, 0]) == {START}
    np.testing.assert_array_equal(batch.prefix[:, 1:], batch.target[:, :-1])
    np.testing.assert_array_equal(Order(pairs.costs, 64, seed=3).update(5)[0], numbers)


def test_a_text_is_cut_once_and_stretches_of_any_length_are_laid_over_it(text_of, letters, tmp_path, monkeypatch):
    text = text_of(LINE * 10, overlap=2)
    first = tokenize_stream(text, letters, 40, tmp_path)
    monkeypatch.setattr(stream_module, "write_stream", None)
    again, other = tokenize_stream(text, letters, 40, tmp_path), tokenize_stream(text, letters, 20, tmp_path)
    assert first.folder == again.folder == other.folder
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_a_damaged_folder_is_made_again(text_of, letters, tmp_path):
    text = text_of(LINE * 10)
    folder = tokenize_stream(text, letters, 40, tmp_path).folder
    whole = (folder / "tokens").read_bytes()
    (folder / "tokens").write_bytes(whole[:-2])
    tokenize_stream(text, letters, 40, tmp_path)
    assert (folder / "tokens").read_bytes() == whole


def test_both_sides_of_a_split_are_all_of_the_text(text_of, letters, tmp_path):
    text = text_of(LINE * 500, overlap=2)
    last = [pair_hash(1, *pair) for pair in text.pairs()][-2:]
    training, validation = (
        tokenize_stream(text, letters, 64, tmp_path, part=SplitPart(1, frozenset(last), is_held_out=side))
        for side in (False, True)
    )
    both = [*training.target_tokens[:-1].tolist(), *validation.target_tokens[:-1].tolist()]
    assert both == letters.encode(LINE * 500)
    assert np.diff(training.target_offsets)[0] == 32 and np.diff(validation.target_offsets)[0] == 64


def test_each_stretch_knows_the_chunk_that_it_begins_in(text_of, letters, tmp_path):
    text = text_of(LINE * 500)
    pairs = tokenize_stream(text, letters, 64, tmp_path)
    chunks = [chunk for _, chunk in text.pairs()]
    for number in (0, 31, 32, 100, len(pairs) - 1):
        before = sum(map(len, chunks[: pairs.line_numbers[number] - 1]))
        assert before <= pairs.target_offsets[number] < before + len(chunks[pairs.line_numbers[number] - 1])


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters"])
def test_the_tokens_of_a_long_text_spell_it(kind):
    text = "".join(f"{number} naïve words,\n\n  and  more\n" * (number % 3) for number in range(300))
    tokenizer = Tokenizer.train([text[:3000]], recipe.TokenizerConfig(kind=kind, size=300))
    tokens = tokenize_long_text(text, tokenizer)
    assert tokens.tolist() == tokenizer.encode(text)
    assert tokenizer.decode(tokens.tolist()) == text
    assert tokenize_long_text("", tokenizer).tolist() == []
