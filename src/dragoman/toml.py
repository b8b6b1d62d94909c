"""Reading TOML with clear errors, and writing TOML values.

Reading is bounded: a file may come from anybody, and the library takes quadratic time and memory for a key of many
dotted parts, and recurses into nested arrays.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.errors import UserError, did_you_mean_path

_BARE_FLOAT = re.compile(r"[+-]?(\.\d+|\d+\.)([eE][+-]?\d+)?")  # a number that is not valid TOML
MAX_BYTES = 1 << 18  # of a recipe, which has some thousand
MAX_DEPTH = 8  # of nested arrays and tables, and parts of a key; a recipe has three

# What determines the depth of a TOML text: single characters, and, to be skipped, whole strings and comments.
_LEXEME = re.compile(
    r'''"""(?:[^"\\]++|\\[\s\S]|"(?!""))*+"{3,5}|"(?:[^"\\\n]++|\\.)*+"'''
    r"""|'{3}(?:[^']++|'(?!''))*+'{3,5}|'[^'\n]*+'|\#[^\n]*+|[.=,\n\[\]{}"']"""
)
_UNCLOSED, _EMPTY = ("'", '"'), ("''", '""')
_OPENING, _CLOSING, _KEY_ENDS = frozenset("[{"), frozenset("]}"), frozenset("\n=,[]{}")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


class _NestedTooDeeplyError(ValueError):
    pass


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; raise UserError if it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        hint = did_you_mean_path(path) or f" Run `dragoman init translate > {path}` to create one."
        raise UserError(f"{path}: no such file.{hint}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None
    return parse_toml(content, str(path))


def parse_toml(content: bytes, origin: str) -> dict[str, Any]:
    """Parse the content of a TOML file; `origin` is its name for error messages."""
    if len(content) > MAX_BYTES:
        raise UserError(f"{origin}: not a recipe: larger than {MAX_BYTES >> 10} KiB.")
    try:
        return _bounded_loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"{origin}: not UTF-8 at byte {error.start}; save the recipe as UTF-8.") from None
    except _NestedTooDeeplyError as error:
        raise UserError(f"{origin}: not a recipe: {error}.") from None
    except ValueError as error:  # a TOMLDecodeError, or an integer of thousands of digits
        raise UserError(f"{origin}: not valid TOML: {error}.") from None


def parse_value(raw: str, *, is_text: bool) -> Any:
    """Parse a value as TOML if possible; where text is expected, a name like 2024 needs no quotation marks."""
    try:
        table = _bounded_loads(f"value = {raw}")
    except ValueError:
        return float(raw) if not is_text and _BARE_FLOAT.fullmatch(raw) else raw
    value = table.pop("value")
    return raw if table or (is_text and not isinstance(value, str)) else value


def _bounded_loads(text: str) -> dict[str, Any]:
    """Parse TOML whose keys and values are not nested too deeply; raise ValueError otherwise."""
    _check_depth(text)
    return tomllib.loads(text)


def _check_depth(text: str) -> None:
    """Raise at the first key of too many parts, and the first array or table that is nested too deeply.

    The scan ends at a string that is not closed, where the parser ends too.
    """
    depth = dots = 0
    for match in _LEXEME.finditer(text):
        lexeme = match[0]
        if lexeme in _UNCLOSED or (lexeme in _EMPTY and text[match.end() : match.end() + 1] == lexeme[0]):
            return
        if lexeme in _OPENING:
            depth += 1
        elif lexeme in _CLOSING:
            depth = max(0, depth - 1)
        dots = dots + 1 if lexeme == "." else 0 if lexeme in _KEY_ENDS else dots
        if dots >= MAX_DEPTH or depth > MAX_DEPTH:
            line = text.count("\n", 0, match.start()) + 1
            found = "a key has more than {} parts" if dots else "its values are nested more than {} levels deep"
            raise _NestedTooDeeplyError(f"{found.format(MAX_DEPTH)} (at line {line})")


def toml_value(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(_escape_character(c) for c in value) + '"'
    if isinstance(value, tuple | list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if hasattr(value, "model_dump"):  # a nested config
        value = value.model_dump()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items() if item is not None) + "}"
    return str(value)


def display_value(value: Any) -> str:
    """Return a value as the user would write it."""
    return "unset" if value is None else toml_value(value)


def _escape_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character.isprintable() else f"\\U{ord(character):08x}"
