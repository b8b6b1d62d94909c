"""Relations between words whose right answer is known, and how often the largest weight of a head is on it.

Weights between tokens are folded into weights between words as in `viewer/line_picture.py`: the mean over the tokens of
the attending word, the sum over those of the attended word. A head is right if its largest weight, among START, END and
the word itself, is on a right word. The rows of decoder and cross-attention belong to the word that is being written.

Shapes: N examples, L layers, H heads, R attending words, C attended words and, last, one column for START or END.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragoman.corpora.phrasebook import PhrasebookPair, split_words
from dragoman.errors import format_count
from dragoman.model_config import AttentionKind
from dragoman.viewer.record import ATTENTION_KINDS, AttentionRecord, AttentionWeights
from dragoman.viewer.words import WordSpan, group_words

_HeadMask = NDArray[np.bool_]
_LayerAndHead = tuple[int, int]  # from 0

_FAR_DISTANCE = 4  # words, from which on a dependency is distant
_MAX_RULE_DISTANCE = 9  # words, of rules of a fixed distance
_Z_95 = 1.96  # standard errors of a 95 % interval
_RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class WordAttention:
    """The attention over one sentence pair by words, with its annotations."""

    texts: tuple[str, str]
    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Mapping[AttentionKind, AttentionWeights]  # L H R C, of each kind that the model has
    gold: PhrasebookPair | None = None  # if it has the same words

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """The gold alignment, empty if there is none."""
        return self.gold.links if self.gold else ()

    def query_words(self, kind: AttentionKind) -> tuple[str, ...]:
        """Return the attending words."""
        return self.source if kind == "encoder" else self.target

    def key_words(self, kind: AttentionKind) -> tuple[str, ...]:
        """Return the attended words."""
        return self.target if kind == "decoder" else self.source

    def nouns(self, kind: AttentionKind) -> tuple[int, ...]:
        """Return the indices of the attended words that are nouns."""
        known = self.gold.nouns if self.gold else ()
        if kind != "decoder":
            return known
        return tuple(sorted({j for i, j in self.links if i in known}))


@dataclass(frozen=True)
class RelationExample:
    """An attending word, the words that are right for it, and the word from which rules count distances."""

    query: int
    correct: frozenset[int]
    anchor: int


def word_attention(record: AttentionRecord, gold: PhrasebookPair | None = None) -> WordAttention:
    """Fold the tokens of a record into words; annotations are kept if they have the same words."""
    source = group_words(record.source_text, record.source_pieces, record.source_spans)
    target = group_words(record.target_text, record.target_pieces, record.target_spans)
    shifted = [WordSpan("", 0, 1, special=True), *(WordSpan("", word.first + 1, word.end + 1) for word in target[:-1])]
    sides: dict[AttentionKind, tuple[list[WordSpan], list[WordSpan]]]
    sides = {"encoder": (source, source), "decoder": (target, shifted), "cross": (target, source)}
    source_words, target_words = (tuple(word.label for word in side if not word.special) for side in (source, target))
    if gold and (source_words, target_words) != (tuple(split_words(gold.source)), tuple(split_words(gold.target))):
        gold = None
    weights = {
        kind: _fold_weights(record.weights(kind), *sides[kind]) for kind in ATTENTION_KINDS if len(record.weights(kind))
    }
    return WordAttention((record.source_text, record.target_text), source_words, target_words, weights, gold)


def _fold_weights(weights: AttentionWeights, queries: Sequence[WordSpan], keys: Sequence[WordSpan]) -> AttentionWeights:
    """Fold weights between tokens (L H T S) into those between words; START and END become the last column."""
    rows = np.stack([weights[:, :, word.first : word.end].mean(2) for word in queries if not word.special], axis=2)
    named = [rows[..., word.first : word.end].sum(-1) for word in keys if not word.special]
    special = [rows[..., word.first : word.end].sum(-1) for word in keys if word.special]
    return np.stack([*named, np.sum(special, axis=0)], axis=-1)


# Relations


def neighbour_at(offset: int) -> Callable[[WordAttention, AttentionKind], Iterator[RelationExample]]:
    """Return the relation of each word to the word at an offset."""

    def find_examples(sentence: WordAttention, kind: AttentionKind) -> Iterator[RelationExample]:
        count = len(sentence.key_words(kind))
        words = range(max(0, -offset), min(count, count - offset))
        return (RelationExample(word, frozenset((word + offset,)), word) for word in words)

    return find_examples


def _repeated_words(sentence: WordAttention, kind: AttentionKind) -> Iterator[RelationExample]:
    """Yield words that occur several times, with the other occurrences; in the decoder, with earlier ones only."""
    names = [name.casefold() for name in sentence.key_words(kind)]
    for word, name in enumerate(names):
        visible = enumerate(names[:word] if kind == "decoder" else names)
        others = frozenset(other for other, label in visible if label == name and other != word)
        if others:
            yield RelationExample(word, others, word)


def distant_parts(sentence: WordAttention, kind: AttentionKind) -> Iterator[RelationExample]:
    """Yield words with distant parts of the same expression, such as "hat … gekauft" and "Does … visit".

    Parts of one expression are aligned with the same word. In the decoder, only earlier parts count.
    """
    for word, others in _distant_partners(sentence.links, side=1 if kind == "decoder" else 0):
        if kind != "decoder" or max(others) < word:
            yield RelationExample(word, others, word)


def _distant_partners(links: Sequence[tuple[int, int]], side: int) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield words of one side with the words aligned with the same word, if all of these are distant."""
    for word in sorted({link[side] for link in links}):
        aligned = {link[1 - side] for link in links if link[side] == word}
        others = frozenset(link[side] for link in links if link[1 - side] in aligned and link[side] != word)
        if others and min(abs(other - word) for other in others) >= _FAR_DISTANCE:
            yield word, others


def is_informative(pair: PhrasebookPair) -> bool:
    """Return whether a pair has a pronoun with its antecedent or an expression with distant parts."""
    return bool(pair.anaphora) or any(any(_distant_partners(pair.links, side)) for side in (0, 1))


def antecedents(sentence: WordAttention, kind: AttentionKind) -> Iterator[RelationExample]:
    """Yield personal pronouns with their antecedents; in German, only pronouns aligned with a single word."""
    translations: dict[int, list[int]] = {}
    for i, j in sentence.links:
        translations.setdefault(i, []).append(j)
    for pronoun, noun in sentence.gold.anaphora if sentence.gold else ():
        written, nouns = translations.get(pronoun, []), frozenset(translations.get(noun, []))
        if kind == "encoder":
            yield RelationExample(pronoun, frozenset((noun,)), pronoun)
        elif len(written) == 1 and kind == "cross":
            yield RelationExample(written[0], frozenset((noun,)), pronoun)
        elif len(written) == 1 and nouns and max(nouns) < written[0]:
            yield RelationExample(written[0], nouns, written[0])


def _translated_words(sentence: WordAttention, _: AttentionKind) -> Iterator[RelationExample]:
    """Yield target words with the source words that they translate."""
    for word in range(len(sentence.target)):
        right = frozenset(i for i, j in sentence.links if j == word)
        if right:
            yield RelationExample(word, right, word)


@dataclass(frozen=True)
class Relation:
    """A relation between words that heads of one kind may attend to."""

    name: str
    kind: AttentionKind
    find_examples: Callable[[WordAttention, AttentionKind], Iterator[RelationExample]]
    figure: int | None = None  # of the paper that shows such a head
    is_fixed_distance: bool = False  # a rule of position is always right


ANTECEDENT = "the antecedent of a pronoun"
FAR_PART = f"the other part of an expression, {_FAR_DISTANCE} or more words away"
RELATIONS = (
    Relation("the previous word", "encoder", neighbour_at(-1), 5, is_fixed_distance=True),
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
    Relation("the source word being translated", "cross", _translated_words),
    Relation(ANTECEDENT, "cross", antecedents, 4),
)


# Accuracy of heads, and of rules that do not use attention


@dataclass(frozen=True, eq=False)
class HeadHits:
    """The examples that each head gets right."""

    hits: _HeadMask  # N L H
    weight: NDArray[np.float32]  # N L H: on the right words

    @property
    def best_head(self) -> _LayerAndHead:
        """The layer and head that is right most often."""
        accuracy = self.hits.mean(0)
        layer, head = np.unravel_index(int(accuracy.argmax()), accuracy.shape)
        return int(layer), int(head)


def score_heads(relation: Relation, sentences: Iterable[WordAttention]) -> HeadHits | None:
    """Score every head of a relation's kind on every example; return None if there are no examples."""
    right, weight = [], []
    for sentence in sentences:
        examples = list(relation.find_examples(sentence, relation.kind))
        weights = sentence.weights.get(relation.kind)
        if not examples or weights is None:
            continue
        rows = weights[:, :, [example.query for example in examples]]  # L H N C
        targets = np.zeros((len(examples), rows.shape[-1]), dtype=np.bool_)
        for number, example in enumerate(examples):
            targets[number, list(example.correct)] = True
        picked = targets[np.arange(len(examples)), rows.argmax(-1)]  # L H N
        right.append(np.moveaxis(picked, -1, 0))
        weight.append(np.moveaxis((rows * targets).sum(-1), -1, 0))
    return HeadHits(np.concatenate(right), np.concatenate(weight)) if right else None


_AttentionRule = Callable[[WordAttention, AttentionKind, int], int | None]  # the attended word for a word, if any


def _at_distance(offset: int) -> _AttentionRule:
    """Return the rule that attends to the word at an offset."""
    return lambda _one, _kind, anchor: anchor + offset


def _noun_before(rank: int) -> _AttentionRule:
    """Return the rule that attends to the nearest preceding noun (rank 1) or the second nearest."""

    def rule(sentence: WordAttention, kind: AttentionKind, anchor: int) -> int | None:
        before = [word for word in sentence.nouns(kind) if word < anchor]
        return before[-rank] if len(before) >= rank else None

    return rule


def _first_noun(sentence: WordAttention, kind: AttentionKind, _anchor: int) -> int | None:
    """Attend to the first noun."""
    return next(iter(sentence.nouns(kind)), None)


def _describe_offset(offset: int) -> str:
    """Name a fixed distance."""
    if not offset:
        return "the same position"
    return f"{format_count(abs(offset), 'word')} {'before' if offset < 0 else 'after'}"


# Rules that know positions only, and rules that also know the nouns.
POSITION_RULES = {
    _describe_offset(offset): _at_distance(offset) for offset in range(-_MAX_RULE_DISTANCE, _MAX_RULE_DISTANCE + 1)
}
NOUN_RULES: dict[str, _AttentionRule] = {
    "the nearest preceding noun": _noun_before(1),
    "the second nearest preceding noun": _noun_before(2),
    "the first noun": _first_noun,
}


def rule_hits(rule: _AttentionRule, relation: Relation, sentences: Iterable[WordAttention]) -> _HeadMask:
    """Return for each example (N) whether a rule is right."""
    return np.array(
        [
            rule(sentence, relation.kind, example.anchor) in example.correct
            for sentence in sentences
            if relation.kind in sentence.weights
            for example in relation.find_examples(sentence, relation.kind)
        ],
        dtype=np.bool_,
    )


def best_rule(rules: Mapping[str, _AttentionRule], relation: Relation, sentences: Sequence[WordAttention]) -> str:
    """Return the name of the rule that is right most often."""
    return max(rules, key=lambda name: float(rule_hits(rules[name], relation, sentences).mean()))


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share."""
    share, spread = right / count, _Z_95 * _Z_95 / count
    middle = (share + spread / 2) / (1 + spread)
    half = _Z_95 * math.sqrt(share * (1 - share) / count + spread / count / 4) / (1 + spread)
    low, high = middle - half, middle + half
    return low if right else 0.0, high if right < count else 1.0


def bootstrap_difference(ours: _HeadMask, theirs: _HeadMask, seed: int = 1) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the difference of two shares on the same examples."""
    chance = np.random.default_rng(seed)
    apart = ours.astype(np.float64) - theirs
    means = [apart[chance.integers(0, len(apart), len(apart))].mean() for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
