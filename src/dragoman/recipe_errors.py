"""Error messages for recipes: pydantic's validation errors in the names and values of the recipe's author.

`root` is the recipe's class, a tree of config classes.
"""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from dragoman.errors import did_you_mean
from dragoman.model_config import DEFAULT_ARCHITECTURE, MODEL_CONFIGS, renamed_setting
from dragoman.presets import TASKS
from dragoman.toml import display_value

_ConfigClass = type[BaseModel]

_TYPE_WORDS = {int: "a whole number", float: "a number", str: "text in quotation marks", bool: "true or false"}
_RENAMED_DATA_KEYS = {"labelled": "corpora", "valid_labelled": "valid_corpora"}
_MAX_LINES, _MAX_CHARACTERS = 20, 500  # of a message: a recipe may have any number of errors, and values of any length
_LIMIT_WORDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def find_field(root: _ConfigClass, path: Sequence[str], architecture: Any = None) -> FieldInfo | None:
    """Return the field at a path like ("model", "layers"), or None; if given, of this architecture's settings."""
    if not path:
        return None
    if len(path) == 1:
        return root.model_fields.get(path[0])
    classes = section_classes(root, path[0])
    if path[0] == "model" and architecture in MODEL_CONFIGS:
        classes = [MODEL_CONFIGS[architecture]]
    fields = [section.model_fields[path[1]] for section in classes if path[1] in section.model_fields]
    return fields[0] if len(path) == 2 and fields else None


def section_classes(root: _ConfigClass, name: str) -> list[_ConfigClass]:
    """Return the config class of a section; of a union, all of them."""
    field = root.model_fields.get(name)
    kind = None if field is None else field.annotation
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [option for option in options if _is_config_class(option)]


def _is_config_class(kind: Any) -> TypeGuard[_ConfigClass]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def format_errors(
    root: _ConfigClass,
    error: ValidationError,
    default_origin: str,
    table: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> str:
    """Return one line per error: the origin of the value, what was found and what was expected."""
    lines: dict[str, None] = {}  # ordered and unique: two wrong elements of one list are one error
    architecture = _value_at(table, ("model", "architecture")) or DEFAULT_ARCHITECTURE
    for item in error.errors():
        location = tuple(map(str, item["loc"]))
        path = tuple(part for part in location if location[0] != "model" or part not in MODEL_CONFIGS)[:2]
        if item["type"] == "union_tag_invalid":
            path = ("model", "architecture")
        origin = "--set" if _is_overridden(root, path, overrides) else default_origin
        lines |= {_shorten(f"{origin}: {text}"): None for text in _format_error(root, item, path, table, architecture)}
        if len(lines) > _MAX_LINES:
            return "\n".join([*list(lines)[:_MAX_LINES], f"{default_origin}: there are more errors."])
    return "\n".join(lines)


def _shorten(line: str) -> str:
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"


def _is_overridden(root: _ConfigClass, path: Sequence[Any], overrides: Mapping[str, Any]) -> bool:
    """Return whether the value at a path comes from an override alone."""
    value = _value_at(overrides, path)
    is_partial_section = isinstance(value, Mapping) and len(path) == 1 and bool(section_classes(root, path[0]))
    return value is not None and not is_partial_section


def _format_error(
    root: _ConfigClass, item: Any, path: Sequence[str], table: Mapping[str, Any], architecture: Any
) -> list[str]:
    if path in (("data", "corpora"), ("data", "valid_corpora")) and len(item["loc"]) > 2:
        return [_format_corpus_error(root, item)]
    kind, field, value = item["type"], find_field(root, path, architecture), _value_at(table, path)
    section = f"[{path[0]}] " if path else ""
    renamed = renamed_setting(path[1], value) if len(path) == 2 and path[0] == "model" else None
    if renamed:
        return [f"{section}{path[1]} = {display_value(value)} was replaced by {renamed}."]
    if kind == "union_tag_invalid":
        hint = did_you_mean(str(value), MODEL_CONFIGS)
        return [f"[model] architecture is {display_value(value)}; it must be one of {_joined(MODEL_CONFIGS)}.{hint}"]
    if kind == "extra_forbidden":
        return [_format_unknown_setting(root, path, architecture)]
    if len(path) < 2 and (field is None or section_classes(root, path[0])):
        if kind == "value_error":
            return [f"{section}{line}." for line in str(item["ctx"]["error"]).split("\n")]
        return [f"{section}must be a table of settings; found {display_value(item['input'])}."]
    assert field is not None, f"pydantic reports an error in a setting that does not exist: {path}"
    wrong = f"{section if path[1:] else ''}{path[-1]} is {display_value(value)}"
    hint = (
        did_you_mean(value, TASKS if path == ("task",) else _choices(field.annotation))
        if isinstance(value, str)
        else ""
    )
    if kind == "value_error":
        return [f"{wrong}; {item['ctx']['error']}.{hint}"]
    return [
        f"{wrong}; it must be {_describe_type(field.annotation, field.metadata)}{_integer_hint(value, kind)}.{hint}"
    ]


def _format_corpus_error(root: _ConfigClass, item: Any) -> str:
    _, name, index, *rest = item["loc"]
    position = f"[[data.{name}]] {index + 1}"
    if not rest:
        return f"{position} must be a table of settings; found {display_value(item['input'])}."
    field = find_field(root, ("data", name))
    assert field is not None, f"there is no [data] {name}"
    settings = get_args(field.annotation)[0].model_fields
    if item["type"] == "extra_forbidden":
        hint = did_you_mean(rest[0], settings)
        return f'{position} has no setting "{rest[0]}"; expected {", ".join(settings)}.{hint}'
    kind = settings[rest[0]].annotation
    expected = item["ctx"]["error"] if item["type"] == "value_error" else f"it must be {_describe_type(kind)}"
    return f"{position}: {rest[0]} is {display_value(item['input'])}; {expected}."


def _format_unknown_setting(root: _ConfigClass, path: Sequence[str], architecture: Any) -> str:
    *parents, name = path
    if parents == ["data"] and name in _RENAMED_DATA_KEYS:
        new = _RENAMED_DATA_KEYS[name]
        return f"[data] {name} was replaced by [[data.{new}]] tables, each with a label and a file."
    homes = [
        part
        for part in root.model_fields
        if any(name in config_class.model_fields for config_class in section_classes(root, part))
    ]
    if parents == ["model"] and "model" in homes:
        others = [other for other, config in MODEL_CONFIGS.items() if name in config.model_fields]
        return f'[model] has no setting "{name}" for architecture "{architecture}"; it belongs to {_joined(others)}.'
    top = ["preset", *root.model_fields]
    if homes:
        hint = f" It belongs in {' or '.join(f'[{part}]' for part in homes)}."
    elif parents and name in top:
        hint = " It belongs at the top, above the first table."
    elif parents == ["model"] and architecture in MODEL_CONFIGS:
        hint = did_you_mean(name, list(MODEL_CONFIGS[architecture].model_fields))
    else:
        sections = section_classes(root, parents[0]) if parents else []
        hint = did_you_mean(name, [key for section in sections for key in section.model_fields] if parents else top)
    return f'{f"[{parents[0]}]" if parents else "the recipe"} has no setting "{name}".{hint}'


def _describe_type(kind: Any, limits: Sequence[Any] = ()) -> str:
    """Return in words which values a type and its limits allow."""
    parts = get_args(kind)
    if get_origin(kind) is Annotated:
        return _describe_type(parts[0], getattr(parts[1], "metadata", ()))
    if get_origin(kind) is Literal:
        return f"{'one of ' if len(parts) > 1 else ''}{_joined(parts)}"
    if get_origin(kind) is tuple and parts[-1] is Ellipsis:
        if _is_config_class(parts[0]):
            return f"a list of tables with settings such as {', '.join(parts[0].model_fields)}"
        return f"a list of values, each {_describe_type(parts[0])}"
    if get_origin(kind) is tuple:
        return f"a list of {len(parts)} values, each {_describe_type(parts[0])}"
    if type(None) in parts:
        return _describe_type(parts[0], limits)
    bounds = {name: getattr(limit, name) for limit in limits for name in _LIMIT_WORDS if hasattr(limit, name)}
    words = " and ".join(f"{_LIMIT_WORDS[name]} {bound}" for name, bound in bounds.items())
    noun = "a finite number" if kind is float and not bounds.keys() & {"le", "lt"} else _TYPE_WORDS[kind]
    return f"{noun}, {words}" if words else noun


def _choices(kind: Any) -> list[str]:
    """Return the texts that a Literal type allows, alone or in a union; empty for other types."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [value for option in options if get_origin(option) is Literal for value in get_args(option)]


def _joined(values: Any) -> str:
    return ", ".join(map(display_value, values))


def _integer_hint(value: Any, error: str) -> str:
    """Return how to write a number like 1e5, which is a float in TOML, as an integer."""
    return f" (write {value:.0f})" if error == "int_type" and isinstance(value, float) and value.is_integer() else ""


def _value_at(tree: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a path of nested tables; None if there is none."""
    value: Any = tree if path else None
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
