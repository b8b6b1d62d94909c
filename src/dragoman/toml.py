"""Reading TOML with clear errors, and writing TOML values."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.errors import UserError, did_you_mean_path

_BARE_FLOAT = re.compile(r"[+-]?(\.\d+|\d+\.)([eE][+-]?\d+)?")  # a number that is not valid TOML
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; raise UserError if it cannot be read."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        hint = did_you_mean_path(path) or f" Run `dragoman init translate > {path}` to create one."
        raise UserError(f"{path}: no such file.{hint}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; save the recipe as UTF-8.") from None
    except ValueError as error:  # a TOMLDecodeError, or an integer of thousands of digits
        raise UserError(f"{path}: not valid TOML: {error}.") from None
    except RecursionError:
        raise UserError(f"{path}: not a recipe: its values are nested too deeply.") from None


def parse_value(raw: str, *, is_text: bool) -> Any:
    """Parse a value as TOML if possible; where text is expected, a name like 2024 needs no quotation marks."""
    try:
        table = tomllib.loads(f"value = {raw}")
    except (ValueError, RecursionError):
        return float(raw) if not is_text and _BARE_FLOAT.fullmatch(raw) else raw
    value = table.pop("value")
    return raw if table or (is_text and not isinstance(value, str)) else value


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
