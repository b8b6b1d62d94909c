"""What else is known about one translation: where its pieces stand in the text, and which words belong together."""

from collections.abc import Sequence
from typing import Any

from dragoman.decoding.hypothesis import Hypothesis
from dragoman.tasks.translator import Translator
from dragoman.viewer.alignment import Link, alignments, preferred, text_words
from dragoman.viewer.record import AttentionRecord
from dragoman.viewer.words import Word

Span = tuple[int, int]


def details(
    translator: Translator, text: str, parts: Sequence[str], written: Sequence[Hypothesis], whole: str
) -> dict[str, Any]:
    """Return the pieces, the words and the links of a translation that was made part by part."""
    told: dict[str, list[Any]] = {"tokens": [], "source_words": [], "target_words": [], "alignment": []}
    at = [0, 0]
    for part, one in zip(parts, written, strict=True):
        target = translator.target_tokenizer.decode(one.tokens)
        at = [max(0, text.find(part.strip(), at[0])), max(0, whole.find(target.strip(), at[1]))]
        shifts = at[0] - indent(part), at[1] - indent(target)
        told["tokens"] += pieces(translator, one, shifts[1])
        if part.strip() and one.tokens:
            link(told, translator, part, target, shifts)
    return told


def pieces(translator: Translator, one: Hypothesis, shift: int) -> list[dict[str, Any]]:
    """Return the pieces of a part, with their places in the whole."""
    tokenizer = translator.target_tokenizer
    spans = tokenizer.spans(one.tokens)
    return [
        {"piece": piece, "start": max(0, start + shift), "end": max(0, end + shift)}
        for piece, (start, end) in zip(tokenizer.spell(one.tokens), spans, strict=True)
    ]


def link(told: dict[str, list[Any]], translator: Translator, part: str, target: str, shifts: Span) -> None:
    """Add the words of a part and the links between them."""
    record = translator.look(part, target=target)
    source_words, target_words = text_words(record)
    before = len(told["source_words"]), len(told["target_words"])
    told["source_words"] += spans(source_words, shifts[0])
    told["target_words"] += spans(target_words, shifts[1])
    for one in links_of(record):
        told["alignment"].append([one.source + before[0], one.target + before[1]])


def links_of(record: AttentionRecord) -> Sequence[Link]:
    """Return which words belong together, by the method that suits the model, if it looks at the source at all."""
    methods = alignments(record)
    return methods[preferred(record)].links if methods else ()


def spans(words: Sequence[Word], shift: int) -> list[Span]:
    """Return where words stand."""
    return [(word.span[0] + shift, word.span[1] + shift) if word.span else (0, 0) for word in words]


def indent(text: str) -> int:
    """Return how many spaces a text begins with."""
    return len(text) - len(text.lstrip())
