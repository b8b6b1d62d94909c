"""The languages of a run, from its recipe or by the names of its files."""

import re
from pathlib import PurePath

from dragoman.recipe import DataConfig
from dragoman.text.languages import LANGUAGE_NAMES, Languages

_LANGUAGE_PAIR = re.compile(r"(?<![a-z])([a-z]{2,3})[-_.]([a-z]{2,3})(?![a-z])")


def guess_languages(config: DataConfig, run: str) -> Languages:
    """Return the languages that a recipe names, or the codes in the names of its files (`train.en` and `train.de`,
    `news.cs-en.tsv`), or in the run's own name."""
    named = {languages for languages in (config.languages, *(part.languages for part in config.corpora)) if languages}
    if len(named) == 1:
        return named.pop()
    left, right = _language_suffix(config.source), _language_suffix(config.target)
    if left and right and left != right:
        return left, right
    for text in (PurePath(config.pairs or "").name, run):
        for first, second in _LANGUAGE_PAIR.findall(text.lower()):
            if first in LANGUAGE_NAMES and second in LANGUAGE_NAMES and first != second:
                return first, second
    return "source", "target"


def _language_suffix(path: str | None) -> str | None:
    suffix = PurePath((path or "").removesuffix(".gz")).suffix.removeprefix(".").lower()
    return suffix if suffix in LANGUAGE_NAMES or suffix in ("source", "target") else None
