"""Ranges of sentence lengths, counted in words of the source, and how well the sentences of one are translated."""

from collections.abc import Sequence

from dragoman.evaluation.scores import bleu

Lengths = tuple[int, int]  # the least and the most words, both included
Pairs = Sequence[tuple[str, str]]


def within(source: str, lengths: Lengths) -> bool:
    """Say whether a sentence has such a length."""
    return lengths[0] <= len(source.split()) <= lengths[1]


def range_bleu(translations: Sequence[str], pairs: Pairs, lengths: Lengths) -> float:
    """Return BLEU over the sentences of a range of lengths alone."""
    chosen = [place for place, (source, _) in enumerate(pairs) if within(source, lengths)]
    return bleu([translations[place] for place in chosen], [pairs[place][1] for place in chosen])


def written_range(lengths: Lengths) -> str:
    """Write a range as 4–7."""
    least, most = lengths
    return f"{least}–{most}" if least < most else str(least)
