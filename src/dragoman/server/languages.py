"""The languages of a run by the names of its files."""

import re
from pathlib import PurePath

from dragoman.text.languages import LANGUAGE_NAMES

_LANGUAGE_PAIR = re.compile(r"(?<![a-z])([a-z]{2,3})[-_.]([a-z]{2,3})(?![a-z])")


def guess_languages(source: str | None, target: str | None, pairs: str | None, run: str) -> tuple[str, str]:
    """Return the language codes in file names: `train.en` and `train.de`, `news.cs-en.tsv`, or the run's own name."""
    left, right = _language_suffix(source), _language_suffix(target)
    if left and right and left != right:
        return left, right
    for text in (PurePath(pairs or "").name, run):
        for first, second in _LANGUAGE_PAIR.findall(text.lower()):
            if first in LANGUAGE_NAMES and second in LANGUAGE_NAMES and first != second:
                return first, second
    return "source", "target"


def _language_suffix(path: str | None) -> str | None:
    suffix = PurePath((path or "").removesuffix(".gz")).suffix.removeprefix(".").lower()
    return suffix if suffix in LANGUAGE_NAMES or suffix in ("source", "target") else None
