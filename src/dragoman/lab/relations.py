"""What a word may look at: relations between words whose right answer is known, and how often a head finds it.

Pieces are folded into words as in `viewer/line_picture.py`: of those that look the mean, of those that are looked at
the sum. A head is right where the heaviest of all places, START and END and the word itself among them, is the right
one. The rows of decoder and cross attention belong to the word that is being written.

Shapes: N examples, L layers, H heads, R words that look, C words looked at and, last, one column for START or END.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragoman.corpora.phrasebook import PhrasebookPair
from dragoman.corpora.phrasebook import split_words as counted
from dragoman.viewer.record import ATTENTION_KINDS, AttentionKind, AttentionRecord, AttentionWeights
from dragoman.viewer.words import WordSpan, group_words

_BoolArray = NDArray[np.bool_]
_HeadIndex = tuple[int, int]  # a layer and a head, from 0

_FAR_DISTANCE = 4  # words between which a dependency is called far
_MAX_RULE_DISTANCE = 9  # that a rule of a fixed distance may reach
_Z_95 = 1.96  # standard errors to either side: 95 %
_RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class WordAttention:
    """One sentence pair as a model read it, by words, with what is known about it."""

    texts: tuple[str, str]
    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Mapping[AttentionKind, AttentionWeights]  # L H R C of each kind that the model has
    gold: PhrasebookPair | None = None  # if its words are counted like ours

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Return which words translate each other, if that is known."""
        return self.gold.links if self.gold else ()

    def key_words(self, kind: AttentionKind) -> tuple[str, ...]:
        """Return the words that are looked at."""
        return self.target if kind == "decoder" else self.source

    def nouns(self, kind: AttentionKind) -> tuple[int, ...]:
        """Return which of the words that are looked at are nouns."""
        known = self.gold.nouns if self.gold else ()
        if kind != "decoder":
            return known
        return tuple(sorted({j for i, j in self.links if i in known}))


@dataclass(frozen=True)
class RelationExample:
    """A word that looks, the words it would be right to look at, and the place that rules count from."""

    query: int
    correct: frozenset[int]
    anchor: int


def word_attention(record: AttentionRecord, gold: PhrasebookPair | None = None) -> WordAttention:
    """Fold the pieces of a record into words; the gold counts if it has as many of them."""
    source = group_words(record.source_text, record.source_pieces, record.source_spans)
    target = group_words(record.target_text, record.target_pieces, record.target_spans)
    found = {kind: record.weights(kind) for kind in ATTENTION_KINDS if len(record.weights(kind))}
    read = [WordSpan("", 0, 1, special=True), *(WordSpan("", word.first + 1, word.end + 1) for word in target[:-1])]
    sides: dict[AttentionKind, tuple[list[WordSpan], list[WordSpan]]]
    sides = {"encoder": (source, source), "decoder": (target, read), "cross": (target, source)}
    said, written = (tuple(word.label for word in side if not word.special) for side in (source, target))
    fits = gold is not None and (list(said), list(written)) == (counted(gold.source), counted(gold.target))
    weights = {kind: _fold_weights(array, *sides[kind]) for kind, array in found.items()}
    return WordAttention((record.source_text, record.target_text), said, written, weights, gold if fits else None)


def _fold_weights(weights: AttentionWeights, queries: Sequence[WordSpan], keys: Sequence[WordSpan]) -> AttentionWeights:
    """Turn weights between pieces (L H T S) into those between words; what is not a word becomes the last column."""
    rows = np.stack([weights[:, :, word.first : word.end].mean(2) for word in queries if not word.special], axis=2)
    named = [rows[..., word.first : word.end].sum(-1) for word in keys if not word.special]
    special = [rows[..., word.first : word.end].sum(-1) for word in keys if word.special]
    return np.stack([*named, np.sum(special, axis=0)], axis=-1)


# Relations


def neighbour_at(offset: int) -> Callable[[WordAttention, AttentionKind], Iterator[RelationExample]]:
    """Return the relation of each word to the one so many words further on."""

    def found(one: WordAttention, kind: AttentionKind) -> Iterator[RelationExample]:
        count = len(one.key_words(kind))
        seen = (place for place in range(count) if 0 <= place + offset < count)
        return (RelationExample(place, frozenset((place + offset,)), place) for place in seen)

    return found


def _repeated_words(sentence: WordAttention, kind: AttentionKind) -> Iterator[RelationExample]:
    """Yield the words that occur twice, with the other places; in the decoder only earlier ones can be seen."""
    names = [name.casefold() for name in sentence.key_words(kind)]
    for place, name in enumerate(names):
        seen = enumerate(names[:place] if kind == "decoder" else names)
        others = frozenset(other for other, label in seen if label == name and other != place)
        if others:
            yield RelationExample(place, others, place)


def distant_parts(sentence: WordAttention, kind: AttentionKind) -> Iterator[RelationExample]:
    """Yield words with those, far away, that make one expression with them: "hat … gekauft", "Does … visit".

    They are known by the other language, in which one word says both. In the decoder only what was said can be seen.
    """
    for place, others in _distant_partners(sentence.links, side=1 if kind == "decoder" else 0):
        if kind != "decoder" or max(others) < place:
            yield RelationExample(place, others, place)


def _distant_partners(links: Sequence[tuple[int, int]], side: int) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield the words of one side whose partners in meaning are all far away, with these partners."""
    for place in sorted({link[side] for link in links}):
        meant = {link[1 - side] for link in links if link[side] == place}
        others = frozenset(link[side] for link in links if link[1 - side] in meant and link[side] != place)
        if others and min(abs(other - place) for other in others) >= _FAR_DISTANCE:
            yield place, others


def is_informative(pair: PhrasebookPair) -> bool:
    """Say whether a pair has a personal pronoun with its antecedent, or an expression whose parts are far apart."""
    return bool(pair.anaphora) or any(any(_distant_partners(pair.links, side)) for side in (0, 1))


def antecedents(sentence: WordAttention, kind: AttentionKind) -> Iterator[RelationExample]:
    """Yield personal pronouns with what they stand for; in German where the pronoun is a word by itself there too."""
    there: dict[int, list[int]] = {}
    for i, j in sentence.links:
        there.setdefault(i, []).append(j)
    for pronoun, noun in sentence.gold.anaphora if sentence.gold else ():
        written, nouns = there.get(pronoun, []), frozenset(there.get(noun, []))
        if kind == "encoder":
            yield RelationExample(pronoun, frozenset((noun,)), pronoun)
        elif len(written) == 1 and kind == "cross":
            yield RelationExample(written[0], frozenset((noun,)), pronoun)
        elif len(written) == 1 and nouns and max(nouns) < written[0]:
            yield RelationExample(written[0], nouns, written[0])


def _translated_words(sentence: WordAttention, _: AttentionKind) -> Iterator[RelationExample]:
    """Yield the words of the target with those of the source that they translate."""
    for place in range(len(sentence.target)):
        right = frozenset(i for i, j in sentence.links if j == place)
        if right:
            yield RelationExample(place, right, place)


@dataclass(frozen=True)
class Relation:
    """Something that a head of one kind may be there for."""

    name: str
    kind: AttentionKind
    find_examples: Callable[[WordAttention, AttentionKind], Iterator[RelationExample]]
    figure: int | None = None  # of the paper, that shows such a head
    is_fixed_distance: bool = False  # whether it is a distance, which a rule of position meets by definition


ANTECEDENT = "the antecedent of a pronoun"
FAR_PART = f"the other part of an expression, {_FAR_DISTANCE} or more words away"
RELATIONS = (
    Relation("the word before", "encoder", neighbour_at(-1), 5, is_fixed_distance=True),
    Relation("the next word", "encoder", neighbour_at(1), 5, is_fixed_distance=True),
    Relation("the word itself", "encoder", neighbour_at(0), is_fixed_distance=True),
    Relation("the same word elsewhere", "encoder", _repeated_words),
    Relation(FAR_PART, "encoder", distant_parts, 3),
    Relation(ANTECEDENT, "encoder", antecedents, 4),
    Relation("the word just read", "decoder", neighbour_at(-1), 5, is_fixed_distance=True),
    Relation("the word before the one just read", "decoder", neighbour_at(-2), 5, is_fixed_distance=True),
    Relation("the same word elsewhere", "decoder", _repeated_words),
    Relation(FAR_PART, "decoder", distant_parts, 3),
    Relation(ANTECEDENT, "decoder", antecedents, 4),
    Relation("the word that is translated", "cross", _translated_words),
    Relation(ANTECEDENT, "cross", antecedents, 4),
)


# How often a head is right, and how often a rule that knows no weights


@dataclass(frozen=True, eq=False)
class HeadHits:
    """Which examples each head gets right."""

    hits: _BoolArray  # N L H
    weight: NDArray[np.float32]  # N L H: the weight on what is right

    @property
    def best_head(self) -> _HeadIndex:
        """Return the head that is right most often."""
        accuracy = self.hits.mean(0)
        layer, head = np.unravel_index(int(accuracy.argmax()), accuracy.shape)
        return int(layer), int(head)


def score_heads(relation: Relation, sentences: Iterable[WordAttention]) -> HeadHits | None:
    """Mark every head of a relation's kind on every example; None if there is not one."""
    right, weight = [], []
    for one in sentences:
        examples = list(relation.find_examples(one, relation.kind))
        weights = one.weights.get(relation.kind)
        if not examples or weights is None:
            continue
        rows = weights[:, :, [example.query for example in examples]]  # L H N C
        wanted = np.zeros((len(examples), rows.shape[-1]), dtype=np.bool_)
        for number, example in enumerate(examples):
            wanted[number, list(example.correct)] = True
        picked = wanted[np.arange(len(examples)), rows.argmax(-1)]  # L H N
        right.append(np.moveaxis(picked, -1, 0))
        weight.append(np.moveaxis((rows * wanted).sum(-1), -1, 0))
    return HeadHits(np.concatenate(right), np.concatenate(weight)) if right else None


_AttentionRule = Callable[[WordAttention, AttentionKind, int], int | None]  # from a place to the place to look at


def _at_distance(offset: int) -> _AttentionRule:
    """Return the rule that looks a fixed number of words away."""
    return lambda _one, _kind, anchor: anchor + offset


def _noun_before(rank: int) -> _AttentionRule:
    """Return the rule that looks at the nearest noun before, or the second nearest."""

    def found(one: WordAttention, kind: AttentionKind, anchor: int) -> int | None:
        before = [place for place in one.nouns(kind) if place < anchor]
        return before[-rank] if len(before) >= rank else None

    return found


def _first_noun(sentence: WordAttention, kind: AttentionKind, _anchor: int) -> int | None:
    """Look at the first noun."""
    return next(iter(sentence.nouns(kind)), None)


def _describe_offset(offset: int) -> str:
    """Name a fixed distance."""
    if not offset:
        return "the same place"
    return f"{abs(offset)} word{'s' if abs(offset) > 1 else ''} {'back' if offset < 0 else 'on'}"


# What a rule can know that sees places alone, and what one can that is told which words are nouns.
POSITION_RULES = {
    _describe_offset(offset): _at_distance(offset) for offset in range(-_MAX_RULE_DISTANCE, _MAX_RULE_DISTANCE + 1)
}
NOUN_RULES: dict[str, _AttentionRule] = {
    "the nearest noun before": _noun_before(1),
    "the second nearest noun before": _noun_before(2),
    "the first noun": _first_noun,
}


def rule_hits(rule: _AttentionRule, relation: Relation, sentences: Iterable[WordAttention]) -> _BoolArray:
    """Return for each example (N) whether a rule finds what is right."""
    return np.array(
        [
            rule(one, relation.kind, example.anchor) in example.correct
            for one in sentences
            if relation.kind in one.weights
            for example in relation.find_examples(one, relation.kind)
        ],
        dtype=np.bool_,
    )


def best_rule(rules: Mapping[str, _AttentionRule], relation: Relation, sentences: Sequence[WordAttention]) -> str:
    """Return the name of the rule that is right most often."""
    return max(rules, key=lambda name: float(rule_hits(rules[name], relation, sentences).mean()))


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    share, spread = right / count, _Z_95 * _Z_95 / count
    middle = (share + spread / 2) / (1 + spread)
    half = _Z_95 * math.sqrt(share * (1 - share) / count + spread / count / 4) / (1 + spread)
    low, high = middle - half, middle + half
    return low if right else 0.0, high if right < count else 1.0


def bootstrap_difference(ours: _BoolArray, theirs: _BoolArray, seed: int = 1) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two shares on the same examples, by resampling these."""
    chance = np.random.default_rng(seed)
    apart = ours.astype(np.float64) - theirs
    means = [apart[chance.integers(0, len(apart), len(apart))].mean() for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
