"""What is wrong with a recipe, in the names and values of who wrote it: pydantic finds it, and here it is said.

`root` is the recipe's type, a tree of settings.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeGuard, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from dragoman.errors import did_you_mean
from dragoman.toml import display_value

_ConfigClass = type[BaseModel]

_TYPE_WORDS = {int: "a whole number", float: "a number", str: "text in quotation marks", bool: "true or false"}
_LIMIT_WORDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def find_field(root: _ConfigClass, path: Sequence[str]) -> FieldInfo | None:
    """Return the field behind a path like ("model", "layers"), or nothing if there is none."""
    branch = root
    for parent in path[:-1]:
        part = branch.model_fields.get(parent)
        if part is None or not _is_config_class(part.annotation):
            return None
        branch = part.annotation
    return branch.model_fields.get(path[-1]) if path else None


def _is_config_class(kind: Any) -> TypeGuard[_ConfigClass]:
    """Say whether a type is a part of the recipe with settings of its own."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def format_errors(
    root: _ConfigClass,
    error: ValidationError,
    default_origin: str,
    table: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> str:
    """Return pydantic's complaints as our sentences, all of them, one a line, each with where its value is from."""
    lines: dict[str, None] = {}  # in order and once: two wrong elements of one list are one mistake
    for item in error.errors():
        origin = "--set" if _is_overridden(root, item["loc"][:2], overrides) else default_origin
        lines |= {f"{origin}: {sentence}": None for sentence in _format_error(root, item, table)}
    return "\n".join(lines)


def _is_overridden(root: _ConfigClass, path: Sequence[Any], overrides: Mapping[str, Any]) -> bool:
    """Say whether what stands at a path is an override's alone; a branch is, if the whole of it was replaced."""
    field, value = find_field(root, path), _value_at(overrides, path)
    mixed = isinstance(value, Mapping) and field is not None and _is_config_class(field.annotation)
    return value is not None and not mixed


def _format_error(root: _ConfigClass, item: Any, table: Mapping[str, Any]) -> list[str]:
    """Say what is wrong in one place of a recipe, in the user's own names and values."""
    path: tuple[str, ...] = item["loc"][:2]  # deeper lie only the elements of a list
    kind, field = item["type"], find_field(root, path)
    if kind == "extra_forbidden":
        return [_format_unknown_setting(root, path)]
    if field is None or _is_config_class(field.annotation):
        place = f"[{path[0]}] " if path else ""
        if kind == "value_error":
            return [f"{place}{line}." for line in str(item["ctx"]["error"]).split("\n")]
        return [f"{place}must be a table of settings; found {display_value(item['input'])}."]
    value = _value_at(table, path)
    wrong = f"{f'[{path[0]}] ' if path[1:] else ''}{path[-1]} is {display_value(value)}"
    if kind == "value_error":
        return [f"{wrong}; {item['ctx']['error']}."]
    return [f"{wrong}; it must be {_describe_type(field.annotation, field.metadata)}{_integer_hint(value, kind)}."]


def _format_unknown_setting(root: _ConfigClass, path: Sequence[str]) -> str:
    """Say that there is no such setting, and where it belongs or what it is most like."""
    *parents, name = path
    branches = {
        part: field.annotation for part, field in root.model_fields.items() if _is_config_class(field.annotation)
    }
    homes = [f"[{part}]" for part, branch in branches.items() if name in branch.model_fields]
    top = ["preset", *root.model_fields]
    if homes:
        hint = f" It belongs in {' or '.join(homes)}."
    elif parents and name in top:
        hint = " It belongs at the top, above the first table."
    else:
        hint = did_you_mean(name, list(branches[parents[0]].model_fields) if parents else top)
    return f'{f"[{parents[0]}]" if parents else "the recipe"} has no setting "{name}".{hint}'


def _describe_type(kind: Any, limits: Sequence[Any] = ()) -> str:
    """Say in words what a setting of this type, within these limits, may be."""
    parts = get_args(kind)
    if get_origin(kind) is Annotated:
        return _describe_type(parts[0], getattr(parts[1], "metadata", ()))
    if get_origin(kind) is Literal:
        return f"{'one of ' if len(parts) > 1 else ''}{', '.join(map(display_value, parts))}"
    if get_origin(kind) is tuple and parts[-1] is Ellipsis:
        return f"a list, each {_describe_type(parts[0])}"
    if get_origin(kind) is tuple:
        return f"a list of {len(parts)} values, each {_describe_type(parts[0])}"
    if type(None) in parts:
        return _describe_type(parts[0], limits)
    bounds = {name: getattr(limit, name) for limit in limits for name in _LIMIT_WORDS if hasattr(limit, name)}
    words = " and ".join(f"{_LIMIT_WORDS[name]} {bound}" for name, bound in bounds.items())
    noun = "a finite number" if kind is float and not bounds.keys() & {"le", "lt"} else _TYPE_WORDS[kind]
    return f"{noun}, {words}" if words else noun


def _integer_hint(value: Any, error: str) -> str:
    """Say how to write a number like 1e5, which is not a whole one to TOML."""
    return f" (write {value:.0f})" if error == "int_type" and isinstance(value, float) and value.is_integer() else ""


def _value_at(tree: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return what stands at a path of nested tables; None where it leads nowhere."""
    here: Any = tree if path else None
    for key in path:
        here = here.get(key) if isinstance(here, Mapping) else None
    return here
