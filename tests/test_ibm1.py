"""IBM model 1, on texts whose translations are known."""

import random

import numpy as np

from dragoman import ibm1
from dragoman.ibm1 import cooccurrences, likely_links, translation_table

WORDS = 20
OFFSET = 100  # source piece n means target piece n + OFFSET


def id_arrays(sources, targets):
    return [
        (np.array(source, dtype=np.uint16), np.array(target, dtype=np.uint16))
        for source, target in zip(sources, targets, strict=True)
    ]


def shuffled_translations(count=400):
    """Pairs in which each word has one translation, in any order, among many others."""
    drawn = random.Random(3)
    sources = [drawn.sample(range(4, 4 + WORDS), 6) for _ in range(count)]
    return id_arrays(sources, [drawn.sample([word + OFFSET for word in row], 6) for row in sources])


def test_the_likeliest_translation_is_found_from_sentences_alone():
    table = translation_table(shuffled_translations(), 4 + WORDS, 3)
    assert table[4:, 0].tolist() == [word + OFFSET for word in range(4, 4 + WORDS)]


def test_a_piece_that_was_never_seen_has_no_translation():
    table = translation_table(shuffled_translations(), 4 + WORDS + 5, 3)
    assert table[-5:].tolist() == [[0] * 3] * 5


def test_of_a_large_corpus_only_every_nth_pair_is_read(monkeypatch):
    pairs = shuffled_translations()
    monkeypatch.setattr(ibm1, "MAX_COOCCURRENCES", 36 * 100)
    assert len(cooccurrences(pairs, step=4).source) == 36 * 100
    assert translation_table(pairs, 4 + WORDS, 1)[4, 0] == 4 + OFFSET
    assert (translation_table(pairs, 4 + WORDS, 3) == translation_table(pairs[::4], 4 + WORDS, 3)).all()


def test_every_source_token_stands_beside_every_target_token_of_its_pair():
    source, target, position = cooccurrences(id_arrays([[5, 6], [7]], [[8, 9], [8, 9, 9]]))
    assert source.tolist() == [5, 6, 5, 6, 7, 7, 7]
    assert target.tolist() == [8, 8, 9, 9, 8, 9, 9]
    assert position.tolist() == [0, 0, 1, 1, 2, 3, 4]


def test_words_that_occur_together_are_linked_in_any_order():
    random_numbers = np.random.default_rng(3)
    sources = [np.array(random_numbers.permutation(8)[: random_numbers.integers(2, 6)]) for _ in range(200)]
    pairs = [(source, source[::-1] + 100) for source in sources]
    all_links = likely_links(pairs)
    for (source, target), links in zip(pairs, all_links, strict=True):
        assert (links <= (target[:, None] - 100 == source)).all()
    assert sum(links.sum() for links in all_links) > 0.9 * sum(map(len, sources))


def test_no_pairs_have_no_links():
    assert likely_links([]) == []
