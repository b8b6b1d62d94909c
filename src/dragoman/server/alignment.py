"""What else is known about one translation: where its pieces stand in the text, and which words belong together."""

from collections.abc import Sequence
from typing import Any

from dragoman.decoding.hypothesis import Hypothesis
from dragoman.tasks.translator import Translator
from dragoman.viewer.alignment import WordLink, all_alignments, preferred_method, source_and_target_words
from dragoman.viewer.record import AttentionRecord
from dragoman.viewer.words import WordSpan

_CharacterSpan = tuple[int, int]


def translation_details(
    translator: Translator, text: str, segments: Sequence[str], hypotheses: Sequence[Hypothesis], translation: str
) -> dict[str, Any]:
    """Return the pieces, the words and the links of a translation that was made part by part."""
    told: dict[str, list[Any]] = {"tokens": [], "source_words": [], "target_words": [], "alignment": []}
    at = [0, 0]
    for part, one in zip(segments, hypotheses, strict=True):
        target = translator.target_tokenizer.decode(one.tokens)
        at = [max(0, text.find(part.strip(), at[0])), max(0, translation.find(target.strip(), at[1]))]
        shifts = at[0] - _indent_width(part), at[1] - _indent_width(target)
        told["tokens"] += _token_spans(translator, one, shifts[1])
        if part.strip() and one.tokens:
            _add_word_alignment(told, translator, part, target, shifts)
    return told


def _token_spans(translator: Translator, hypothesis: Hypothesis, shift: int) -> list[dict[str, Any]]:
    """Return the pieces of a part, with their places in the whole."""
    tokenizer = translator.target_tokenizer
    spans = tokenizer.spans(hypothesis.tokens)
    return [
        {"piece": piece, "start": max(0, start + shift), "end": max(0, end + shift)}
        for piece, (start, end) in zip(tokenizer.spell(hypothesis.tokens), spans, strict=True)
    ]


def _add_word_alignment(
    result: dict[str, list[Any]], translator: Translator, segment: str, target: str, shifts: _CharacterSpan
) -> None:
    """Add the words of a part and the links between them."""
    record = translator.inspect(segment, target=target)
    source_words, target_words = source_and_target_words(record)
    before = len(result["source_words"]), len(result["target_words"])
    result["source_words"] += _shifted_spans(source_words, shifts[0])
    result["target_words"] += _shifted_spans(target_words, shifts[1])
    for one in _word_links(record):
        result["alignment"].append([one.source + before[0], one.target + before[1]])


def _word_links(record: AttentionRecord) -> Sequence[WordLink]:
    """Return which words belong together, by the method that suits the model, if it looks at the source at all."""
    methods = all_alignments(record)
    return methods[preferred_method(record)].links if methods else ()


def _shifted_spans(words: Sequence[WordSpan], shift: int) -> list[_CharacterSpan]:
    """Return where words stand."""
    return [(word.span[0] + shift, word.span[1] + shift) if word.span else (0, 0) for word in words]


def _indent_width(text: str) -> int:
    """Return how many spaces a text begins with."""
    return len(text) - len(text.lstrip())
