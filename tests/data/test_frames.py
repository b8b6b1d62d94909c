"""Frames of signals: the cache, pairs with targets, and what is hidden in training."""

from pathlib import Path

import numpy as np
import pytest

from dragoman.data.batches import collate
from dragoman.data.frames import FrameMasking, cache_frames, map_in_order, pair_frames
from dragoman.data.signal_corpus import SignalCorpus
from dragoman.errors import UserError
from dragoman.recipe import TokenizerConfig
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, PAD

WIDTH = 3


def frames_of(source: str) -> np.ndarray:
    """Return as many frames as the file has bytes, all with the value of its first byte."""
    content = Path(source).read_bytes()
    return np.full((len(content), WIDTH), content[0], dtype=np.float32)


@pytest.fixture
def corpus(tmp_path: Path) -> SignalCorpus:
    for name, length in (("a", 8), ("b", 5), ("c", 12)):
        (tmp_path / f"{name}.wav").write_bytes(name.encode() * length)
    (tmp_path / "list.tsv").write_text("a.wav\tone\nb.wav\ttwo two\nc.wav\tone two\n")
    return SignalCorpus(tmp_path / "list.tsv")


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["one two"], TokenizerConfig(kind="words"))


def test_the_frames_of_every_signal_are_cached_in_order_as_float16(corpus, tmp_path):
    arrays = cache_frames(corpus, frames_of, {}, WIDTH, cache_dir=tmp_path / "cache")

    assert arrays.frames.dtype == np.float16
    assert arrays.lengths(np.arange(3)).tolist() == [8, 5, 12]
    assert (arrays.signal(1) == ord("b")).all()


def test_frames_are_read_again_only_if_a_setting_or_a_signal_changed(corpus, tmp_path):
    reads = []

    def read(source: str) -> np.ndarray:
        reads.append(source)
        return frames_of(source)

    def cache(settings: dict[str, int]) -> str:
        opened = SignalCorpus(corpus.manifest)
        return cache_frames(opened, read, settings, WIDTH, cache_dir=tmp_path / "cache").fingerprint

    first = cache({"rate": 8})
    assert cache({"rate": 8}) == first and len(reads) == 3
    assert cache({"rate": 16}) != first and len(reads) == 6
    (tmp_path / "a.wav").write_bytes(b"x" * 8)
    assert cache({"rate": 8}) != first and len(reads) == 9


def test_frames_come_in_the_order_of_their_sources_whatever_the_number_of_threads(tmp_path):
    names = []
    for number in range(150):
        (tmp_path / str(number)).write_bytes(bytes([1 + number % 255]))
        names.append(str(tmp_path / str(number)))

    found = [matrix[0, 0] for matrix in map_in_order(frames_of, names, threads=4)]

    assert found == [1 + number % 255 for number in range(150)]


def test_a_signal_that_cannot_be_read_ends_the_preparation_with_its_error(corpus, tmp_path):
    def read(source: str) -> np.ndarray:
        raise UserError(f"{source} is damaged.")

    with pytest.raises(UserError, match=r"a\.wav is damaged"):
        cache_frames(corpus, read, {}, WIDTH, cache_dir=tmp_path / "cache")


def test_every_pair_is_there_once_for_each_version_and_costs_its_positions(corpus, tokenizer, tmp_path):
    versions = [cache_frames(corpus, frames_of, {"speed": n}, WIDTH, cache_dir=tmp_path / "cache") for n in (1, 2)]

    pairs = pair_frames(corpus, versions, tokenizer, 100, frames_per_position=4)

    assert len(pairs) == 6 and pairs.repeats == 2
    assert pairs.source_lengths.tolist() == [2, 2, 3] * 2  # of 8, 5 and 12 frames
    assert pairs.costs.tolist() == [2, 3, 3] * 2  # "two two" and its END are three tokens
    assert pairs.line_numbers.tolist() == [1, 2, 3] * 2
    assert pairs.target(4)[-1] == END


def test_signals_and_targets_that_are_too_long_or_empty_are_dropped_and_counted(corpus, tokenizer, tmp_path):
    versions = [cache_frames(corpus, frames_of, {}, WIDTH, cache_dir=tmp_path / "cache")]
    assert pair_frames(corpus, versions, tokenizer, 2, frames_per_position=4).dropped_long == 1
    (tmp_path / "list.tsv").write_text("a.wav\tone\nb.wav\t\n")
    partly_empty = SignalCorpus(tmp_path / "list.tsv")
    versions = [cache_frames(partly_empty, frames_of, {}, WIDTH, cache_dir=tmp_path / "cache")]
    assert pair_frames(partly_empty, versions, tokenizer, 100, frames_per_position=4).dropped_empty == 1
    with pytest.raises(UserError, match="no usable pair: 1 have an empty side and 1 are longer than 4 frames"):
        pair_frames(partly_empty, versions, tokenizer, 1, frames_per_position=4)


def test_a_batch_has_the_frames_of_its_signals_and_zeros_beyond_them(corpus, tokenizer, tmp_path):
    versions = [cache_frames(corpus, frames_of, {}, WIDTH, cache_dir=tmp_path / "cache")]
    pairs = pair_frames(corpus, versions, tokenizer, 100, frames_per_position=4)

    batch = collate(pairs, [0, 1])

    assert batch.source.shape == (2, 8, WIDTH) and batch.source_lengths.tolist() == [8, 5]
    assert (batch.source[1, :5] == ord("b")).all() and (batch.source[1, 5:] == 0).all()
    assert batch.target[0].tolist()[-2:] == [END, PAD]


def test_masks_depend_on_the_seed_alone_and_hide_no_more_than_they_may():
    masking = FrameMasking(max_frames=10, max_features=4)
    lengths = np.array([100, 60])

    def masked(*seed: int) -> np.ndarray:
        frames = np.ones((2, 100, 20), dtype=np.float32)
        masking.apply(frames, lengths, seed)
        return frames

    assert (masked(1, 2, 3) == masked(1, 2, 3)).all()
    assert (masked(1, 2, 3) != masked(1, 2, 4)).any()
    for step in range(50):
        for signal, length in zip(masked(7, step), lengths, strict=True):
            hidden_frames = (signal == 0).all(axis=1)
            hidden_features = (signal == 0).all(axis=0)
            assert hidden_frames.sum() <= 2 * 10 and hidden_features.sum() <= 2 * 4
            assert not hidden_frames[length:].any() or hidden_features.all()


def test_validation_is_never_masked(corpus, tokenizer, tmp_path):
    versions = [cache_frames(corpus, frames_of, {}, WIDTH, cache_dir=tmp_path / "cache")]
    pairs = pair_frames(corpus, versions, tokenizer, 100, frames_per_position=4, masking=FrameMasking(4, 2))

    assert (collate(pairs, [2]).source == ord("c")).all()
    assert any((collate(pairs, [2], seed=(1, step)).source == 0).any() for step in range(20))
