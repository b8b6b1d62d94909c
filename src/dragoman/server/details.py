"""Merges translations of the parts of a text, and their details: tokens, words and word alignment."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dragoman.server.stage import Look, looking
from dragoman.text.sentences import SegmentedText

_DETAILS = ("tokens", "source_words", "target_words", "alignment")


def merge_sentences(text: SegmentedText, sentences: Sequence[dict[str, Any]], look: Look = None) -> dict[str, Any]:
    """Return the translation of a text that consists of these translations of its sentences."""
    if len(sentences) == 1 and not any(text.gaps):
        return sentences[0]
    merged: dict[str, Any] = {
        "text": text.fill([sentence["text"] for sentence in sentences]),
        "score": sum(sentence["score"] for sentence in sentences) / max(1, len(sentences)),
        "log_probability": sum(sentence["log_probability"] for sentence in sentences),
        "truncated": any(sentence["truncated"] for sentence in sentences),
    }
    if sentences and "pictures" in sentences[0]:
        merged["pictures"] = [picture for sentence in sentences for picture in sentence["pictures"]]
    if sentences and all("tokens" in sentence for sentence in sentences):
        parts = [(source, part["text"], part) for source, part in zip(text.sentences, sentences, strict=True)]
        merged |= merge_details(looking(parts, look), text.fill(text.sentences), merged["text"])
    return merged


def merge_details(
    parts: Iterable[tuple[str, str, Mapping[str, Any]]], source: str, target: str
) -> dict[str, list[Any]]:
    """Return the details of a whole text: those of its parts, with offsets and indices shifted to the whole.

    A part is its source, its target, and its details with offsets from the start of the part.
    """
    merged: dict[str, list[Any]] = {name: [] for name in _DETAILS}
    source_end = target_end = 0
    for part_source, part_target, details in parts:
        source_shift, source_end = _locate(part_source, source, source_end)
        target_shift, target_end = _locate(part_target, target, target_end)
        first_source, first_target = len(merged["source_words"]), len(merged["target_words"])
        merged["tokens"] += [
            {**token, "start": max(0, token["start"] + target_shift), "end": max(0, token["end"] + target_shift)}
            for token in details["tokens"]
        ]
        # Tuples: unlike lists they cost the garbage collector, which stops all threads, nothing.
        merged["source_words"] += [(start + source_shift, end + source_shift) for start, end in details["source_words"]]
        merged["target_words"] += [(start + target_shift, end + target_shift) for start, end in details["target_words"]]
        merged["alignment"] += [(left + first_source, right + first_target) for left, right in details["alignment"]]
    return merged


def _locate(part: str, whole: str, start: int) -> tuple[int, int]:
    """Return the offset of a part in the whole text and the end of the part, which is searched from `start` on."""
    stripped = part.strip()
    position = max(start, whole.find(stripped, start))
    return position - (len(part) - len(part.lstrip())), position + len(stripped)
