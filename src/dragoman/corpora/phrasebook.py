"""The built-in corpus: English–German sentence pairs, made by a small grammar, with their gold word alignment.

`lexicon` holds the words, `meanings` what one can say with them, `grammar` turns a meaning into two linked
sentences, and `drawing` and `patterns` draw meanings: verb-second and verb-final order, agreement across distance,
pronouns that take the gender of their noun, negation, questions, subordinate and relative clauses. An English
sentence has exactly one translation.

The splits are made by combination, not by sentence. A combination is a pair of content words that belong together in
a sentence: an adjective and its noun, or a verb and the noun of its subject, object or place (also through a pronoun).
A stable hash gives every combination to one split. A sentence with a combination of the test split is a test sentence;
otherwise, one with a combination of the validation split is a validation sentence; only the rest is training. So each
test sentence shows two words together that training never shows together. Each of the words by itself, in the very
form, is among the first 8000 training pairs of the same seed.

Where a pronoun stands for a noun of its sentence, the grammar knows which: the gold answer for whoever looks for what
it refers to. "His" and "her" before a noun are drawn without an owner in mind and have no such answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from random import Random

from dragoman.corpora.grammar import AlignedWord, Mention, render_sentence
from dragoman.corpora.lexicon import BE, VERBS, adjectives_for, nouns_of_kinds
from dragoman.corpora.meanings import Clause, NounPhrase, SentenceMeaning
from dragoman.corpora.patterns import draw_sentence
from dragoman.errors import UserError, did_you_mean

SPLITS = ("train", "valid", "test")
_HELD_OUT_PERCENT = {"test": 4, "valid": 2}  # of all combinations
_MIN_WORDS, _MAX_WORDS = 4, 20  # English words and marks
_VOCABULARY_PAIRS = 8000  # training pairs whose words the other splits may use
PERSONAL_PRONOUN_WORDS = frozenset(("it", "he", "him", "she", "her", "they", "them"))


@dataclass(frozen=True)
class PhrasebookPair:
    """A sentence, its translation, and which word of the one stands for which word of the other."""

    source: str
    target: str
    links: tuple[tuple[int, int], ...]  # positions in words(source) and words(target), counted from 0, sorted
    nouns: tuple[int, ...] = ()  # positions in words(source); of a noun of two words, the second
    antecedents: tuple[tuple[int, int], ...] = ()  # in words(source): a pronoun, and the noun that it stands for

    @property
    def anaphora(self) -> tuple[tuple[int, int], ...]:
        """Return the antecedents of personal pronouns; those of relative ones stand right before them."""
        said = split_words(self.source)
        return tuple(
            (pronoun, noun) for pronoun, noun in self.antecedents if said[pronoun].lower() in PERSONAL_PRONOUN_WORDS
        )


def split_words(text: str) -> list[str]:
    """Split a sentence into words and punctuation marks, as the links count them."""
    return re.findall(r"\w+|[^\w\s]", text)


def render_pair(sentence: SentenceMeaning) -> PhrasebookPair:
    """Write a sentence out in both languages."""
    english, german = render_sentence(sentence)
    nouns = tuple(place for place, word in enumerate(english) if word.mention and not word.mention.again)
    return PhrasebookPair(
        _format_sentence(english),
        _format_sentence(german),
        _word_links(english, german),
        nouns,
        _antecedent_links(english),
    )


def _format_sentence(words: list[AlignedWord]) -> str:
    """Join words to a sentence: a capital at the start, no space before a mark."""
    text = " ".join(word.text for word in words)
    return (text[0].upper() + text[1:]).replace(" ,", ",").replace(" .", ".").replace(" ?", "?")


def _word_links(english: list[AlignedWord], german: list[AlignedWord]) -> tuple[tuple[int, int], ...]:
    """Return the positions of all two words that express the same."""
    places: dict[object, list[int]] = {}
    for position, word in enumerate(german):
        for key in word.keys:
            places.setdefault(key, []).append(position)
    found = {(i, j) for i, word in enumerate(english) for key in word.keys for j in places.get(key, ())}
    return tuple(sorted(found))


def _antecedent_links(english: list[AlignedWord]) -> tuple[tuple[int, int], ...]:
    """Return the positions of each pronoun and of the noun that it takes up: the last of its kind before it."""
    said: dict[Mention, int] = {}
    found = []
    for place, word in enumerate(english):
        if word.mention is None:
            continue
        meant = word.mention._replace(again=False)
        if not word.mention.again:
            said[meant] = place
        elif meant in said:
            found.append((place, said[meant]))
    return tuple(found)


# The splits


def combinations(sentence: SentenceMeaning) -> set[tuple[str, str]]:
    """Return the pairs of content words that belong together in a sentence, in English."""
    found: set[tuple[str, str]] = set()
    for joined in sentence.clauses:
        _add_combinations(joined.clause, found)
    return found


def _add_combinations(clause: Clause, found: set[tuple[str, str]]) -> None:
    """Add the combinations of a clause, and of the clauses inside its phrases."""
    place = None if clause.place is None else clause.place.phrase
    predicate = clause.predicate
    verb = f"{clause.verb.base} {clause.verb.particle}".rstrip()
    for phrase in (clause.subject, clause.direct, clause.receiver, place, predicate and predicate.other):
        if phrase is None or phrase.noun is None:
            continue
        if clause.verb is not BE:
            found.add((verb, phrase.noun.english))
        elif predicate is not None:
            found.add((predicate.adjective.english, phrase.noun.english))
        if isinstance(phrase, NounPhrase) and phrase.adjective is not None:
            found.add((phrase.adjective.english, phrase.noun.english))
        if isinstance(phrase, NounPhrase) and phrase.relative is not None:
            _add_combinations(phrase.relative.clause, found)


@cache
def _split_of_combination(combination: tuple[str, str]) -> str:
    """Return the split that a combination of words is kept for, the same on every machine and in every run."""
    digest = blake2b(" ".join(combination).encode(), digest_size=8).digest()
    percent = int.from_bytes(digest, "big") % 100
    if percent < _HELD_OUT_PERCENT["test"]:
        return "test"
    return "valid" if percent < _HELD_OUT_PERCENT["test"] + _HELD_OUT_PERCENT["valid"] else "train"


def _split_of_sentence(sentence: SentenceMeaning) -> str:
    """Return the split that a sentence belongs to."""
    splits = {_split_of_combination(combination) for combination in combinations(sentence)}
    return next((split for split in ("test", "valid") if split in splits), "train")


# The corpus


def draw_sentences(split: str, seed: int) -> Iterator[SentenceMeaning]:
    """Draw sentences of a split for ever."""
    rng = Random(f"{split} {seed}")
    while True:
        sentence = draw_sentence(rng)
        if _split_of_sentence(sentence) == split:
            yield sentence


def _draw_pairs(split: str, seed: int) -> Iterator[PhrasebookPair]:
    """Write out the sentences of a split that have the right length, none twice."""
    seen = set[str]()
    for drawn in map(render_pair, draw_sentences(split, seed)):
        if drawn.source not in seen and _MIN_WORDS <= len(split_words(drawn.source)) <= _MAX_WORDS:
            seen.add(drawn.source)
            yield drawn


@lru_cache(maxsize=4)
def _training_vocabulary(seed: int) -> frozenset[str]:
    """Return every word, of either language, in the first training pairs."""
    lessons = islice(_draw_pairs("train", seed), _VOCABULARY_PAIRS)
    return frozenset(word for each in lessons for text in (each.source, each.target) for word in split_words(text))


def _has_only_words_of(pair: PhrasebookPair, known: frozenset[str]) -> bool:
    """Tell whether a pair has only known words, so that what it tests is their combination."""
    return known.issuperset(split_words(pair.source)) and known.issuperset(split_words(pair.target))


def _accept_all(_: PhrasebookPair) -> bool:
    """Take any pair."""
    return True


def phrasebook(
    split: str, count: int, *, seed: int = 1, accept: Callable[[PhrasebookPair], bool] = _accept_all
) -> Iterator[PhrasebookPair]:
    """Return `count` different pairs of a split that one keeps, always the same ones for the same arguments."""
    if split not in SPLITS:
        raise UserError(
            f'The phrasebook has the splits {", ".join(SPLITS)}, not "{split}".{did_you_mean(split, list(SPLITS))}'
        )
    drawn = filter(accept, _draw_pairs(split, seed))
    if split == "train":
        return islice(drawn, count)
    return islice((each for each in drawn if _has_only_words_of(each, _training_vocabulary(seed))), count)


def write_phrasebook(folder: Path, sizes: Mapping[str, int], *, seed: int = 1) -> None:
    """Write each split as a file of each language, one sentence a line, its links and its antecedents as "0-0 1-2"."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in sizes.items():
        drawn = list(phrasebook(split, count, seed=seed))
        write_lines(folder / f"{split}.en", (each.source for each in drawn))
        write_lines(folder / f"{split}.de", (each.target for each in drawn))
        write_lines(folder / f"{split}.links", (_format_pharaoh(each.links) for each in drawn))
        write_lines(folder / f"{split}.antecedents", (_format_pharaoh(each.antecedents) for each in drawn))


def _format_pharaoh(links: tuple[tuple[int, int], ...]) -> str:
    """Write pairs of positions as "0-0 1-2"."""
    return " ".join(f"{source}-{target}" for source, target in links)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines with the same line ends on every system."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def min_sentence_count() -> int:
    """Return a lower bound of the sentences there are: "the" or "this" subject, verb in the present, such an object."""
    return sum(
        _count_phrases(verb.subjects) * _count_phrases(verb.objects)
        for verb in VERBS
        if verb.objects and not verb.marks
    )


def _count_phrases(kinds: frozenset[str]) -> int:
    """Count the singular phrases with "the" or "this", with one adjective or none, of some kinds of noun."""
    return sum(2 * (1 + len(adjectives_for(noun.kind))) for noun in nouns_of_kinds(kinds) if noun.kind != "relative")
