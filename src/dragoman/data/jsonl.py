"""Pairs in JSON Lines: one object per line, with the texts at two keys or in an object "translation"."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragoman.data.lines import Entry, OnFileNotice, put_on_one_line, read_lines
from dragoman.errors import UserError
from dragoman.text.languages import Languages, choose_names

_NESTED_KEY = "translation"  # of data sets of Hugging Face: {"translation": {"en": "…", "fr": "…"}}


def read_jsonl(file: Path, languages: Languages | None, on_notice: OnFileNotice | None = None) -> Iterator[Entry]:
    """Yield the pairs of a file; without `languages`, two keys that are language codes tell source and target."""
    keys: Languages | None = None
    for number, line in enumerate(read_lines(file, on_notice), 1):
        if not line.strip():
            continue
        where = f"{file}: line {number:,}"
        table = _parse_object(line, where)
        if keys is None:
            keys = choose_names(list(table), languages, where, "key")
            if on_notice and not languages:
                on_notice(f'{file}: source is "{keys[0]}" and target is "{keys[1]}".')
        yield number, _text_at(table, keys[0], where), _text_at(table, keys[1], where)
    if keys is None:
        raise UserError(f"{file}: there are only empty lines; expected one JSON object per line.")


def _parse_object(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where} is not JSON ({error.msg} at character {error.colno:,}); expected one object per line, such as "
            '{"en": "…", "fr": "…"}.'
        ) from None
    except (ValueError, RecursionError):  # an integer of thousands of digits; thousands of brackets
        raise UserError(f'{where} is not usable JSON; expected an object such as {{"en": "…", "fr": "…"}}.') from None
    if isinstance(value, list):
        raise UserError(f"{where} is a JSON array; expected one object per line. Convert the file with `jq -c '.[]'`.")
    if not isinstance(value, dict):
        raise UserError(f'{where} is {_shorten(value)}; expected an object such as {{"en": "…", "fr": "…"}}.')
    nested = value.get(_NESTED_KEY)
    return nested if isinstance(nested, dict) else value


def _text_at(table: dict[str, Any], key: str, where: str) -> str:
    if key not in table:
        raise UserError(f'{where} has no key "{key}"; it has {", ".join(map(_shorten, table)) or "none"}.')
    text = table[key]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UserError(f'{where}: "{key}" is {_shorten(text)}; expected text.')
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(text[error.start]):04x}"
        raise UserError(f'{where}: "{key}" contains {code}, half of a character. Repair or remove the line.') from None
    return put_on_one_line(text)


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 40 else text[:39] + "…"
