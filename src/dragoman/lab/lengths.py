"""Ranges of sentence lengths, counted in words of the source, and how well the sentences of one are translated."""

from collections.abc import Sequence

from dragoman.evaluation.scores import corpus_bleu

LengthRange = tuple[int, int]  # the least and the most words, both included
_SentencePairs = Sequence[tuple[str, str]]


def is_in_range(source: str, lengths: LengthRange) -> bool:
    """Say whether a sentence has such a length."""
    return lengths[0] <= len(source.split()) <= lengths[1]


def bleu_in_range(translations: Sequence[str], pairs: _SentencePairs, lengths: LengthRange) -> float:
    """Return BLEU over the sentences of a range of lengths alone."""
    chosen = [place for place, (source, _) in enumerate(pairs) if is_in_range(source, lengths)]
    return corpus_bleu([translations[place] for place in chosen], [pairs[place][1] for place in chosen])


def format_range(lengths: LengthRange) -> str:
    """Write a range as 4–7."""
    least, most = lengths
    return f"{least}–{most}" if least < most else str(least)
