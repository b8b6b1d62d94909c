"""Tokenization of English text in the style of the Penn Treebank: "The dog doesn't run." has six words.

An approximation that is good enough as input of a parser.
"""

import re

_OPENING_QUOTE = re.compile(r"(^|[\s(\[{<])[\"“„]")
_CLOSING_QUOTE = re.compile(r"[\"”]")
_SPACING_RULES = (  # patterns and replacements, applied in this order
    (re.compile(r"(\.{3}|…)"), r" \1 "),
    (re.compile(r"(--+|—|–)"), r" \1 "),
    (re.compile(r"([?!;@#$%&¿¡€£()\[\]{}<>«»])"), r" \1 "),
    (re.compile(r"([,:])(?!\d)"), r" \1 "),  # not in 1,000 and 5:30
    (re.compile(r"(?<!\d)([,:])"), r" \1 "),
    (re.compile(r"(?<=[^\s.])(\.)(?=[\s)\]}'”’]*$)"), r" \1 "),  # only the last full stop ends a sentence
    (re.compile(r"(?i)(?<=\w)(n['’]t)\b"), r" \1"),
    (re.compile(r"(?i)(?<=\w)(['’](?:s|m|d|ll|re|ve))\b"), r" \1"),
    (re.compile(r"(?<=[sS])(['’])(?=\s|$)"), r" \1"),
    (re.compile(r"(?i)\b(can)(not)\b"), r"\1 \2"),
    (re.compile(r"(?i)\b(gon|wan)(na)\b"), r"\1 \2"),
)
_BRACKETS = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
_ADDRESS = re.compile(r"\S+@\S+\.\w+|\w+://\S+|www\.\S+")


def penn_words(text: str) -> list[str]:
    """Split a sentence into words; punctuation, clitics and quotation marks become separate words."""
    words: list[str] = []
    after = 0
    for address in _ADDRESS.finditer(text):
        whole = address[0].rstrip(".,;:!?)\"'")
        words += [*_split_words(text[after : address.start()], last=False), whole]
        after = address.start() + len(whole)
    return [_BRACKETS.get(word, word) for word in words + _split_words(text[after:], last=True)]


def _split_words(text: str, *, last: bool) -> list[str]:
    """Split text without addresses; only in the `last` part of a sentence a final full stop is split off."""
    text = _OPENING_QUOTE.sub(r"\1 `` ", text)
    text = _CLOSING_QUOTE.sub(" '' ", text) + ("" if last else " \0")
    for pattern, replacement in _SPACING_RULES:
        text = pattern.sub(replacement, text)
    return [word for word in text.split() if word != "\0"]
