"""Which target pieces translate a source piece, on texts whose answer is known."""

import random
from dataclasses import dataclass

import numpy as np

from dragoman.data import lexical
from dragoman.data.lexical import most_frequent_targets, translation_table

WORDS = 20
OFFSET = 100  # source piece n means target piece n + OFFSET


@dataclass
class Pairs:
    """Token pairs in memory, as `TokenPairs` has them on disk."""

    sources: list[list[int]]
    targets: list[list[int]]

    def __post_init__(self):
        self.source_tokens, self.source_offsets, self.source_lengths = laid_out(self.sources)
        self.target_tokens, self.target_offsets, self.target_lengths = laid_out(self.targets)

    def __len__(self):
        return len(self.sources)


def laid_out(rows):
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    return np.concatenate(rows).astype(np.uint16), np.concatenate([[0], np.cumsum(lengths)]), lengths


def shuffled_translations(count=400):
    """Pairs in which each word has one translation, in any order, among many others."""
    drawn = random.Random(3)
    sources = [drawn.sample(range(4, 4 + WORDS), 6) for _ in range(count)]
    return Pairs(sources, [drawn.sample([word + OFFSET for word in row], 6) for row in sources])


def test_the_likeliest_translation_is_found_from_sentences_alone():
    table = translation_table(shuffled_translations(), 4 + WORDS, 3)
    assert table[4:, 0].tolist() == [word + OFFSET for word in range(4, 4 + WORDS)]


def test_a_piece_that_was_never_seen_has_no_translation():
    table = translation_table(shuffled_translations(), 4 + WORDS + 5, 3)
    assert table[-5:].tolist() == [[0] * 3] * 5


def test_a_corpus_that_is_too_large_is_thinned_out(monkeypatch):
    pairs = shuffled_translations()
    monkeypatch.setattr(lexical, "MAX_LINKS", 36 * 100)
    source, target, group = lexical.cooccurrences(pairs)
    assert len(source) == len(target) == len(group) == 36 * 100
    assert translation_table(pairs, 4 + WORDS, 1)[4, 0] == 4 + OFFSET


def test_every_source_piece_stands_beside_every_target_piece_of_its_pair():
    source, target, group = lexical.cooccurrences(Pairs([[5, 6], [7]], [[8, 9], [8, 9, 9]]))
    assert source.tolist() == [5, 6, 5, 6, 7, 7, 7]
    assert target.tolist() == [8, 8, 9, 9, 8, 9, 9]
    assert group.tolist() == [0, 0, 1, 1, 2, 3, 4]


def test_the_most_frequent_pieces_come_first():
    pairs = Pairs([[5]], [[9, 8, 9, 7, 9, 8]])
    assert most_frequent_targets(pairs, 2).tolist() == [9, 8]
    assert most_frequent_targets(pairs, 0).tolist() == []
