"""What a safetensors file contains, read and compared with what is expected before any of its tensors is."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from dragoman.errors import UserError

_MAX_HEADER_BYTES = 8 << 20  # the header of 200 layers has 2 MB
_MAX_DIMENSIONS = 8
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


class SizedTensor(Protocol):
    """A tensor, or what is known about one in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def dtype(self) -> torch.dtype: ...  # noqa: D102


@dataclass(frozen=True)
class StoredTensor:
    """Shape and type of a tensor in a file."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def check_header_size(size: int) -> None:
    """Raise ValueError if a header is too long to be one of ours."""
    if size > _MAX_HEADER_BYTES:
        raise ValueError(f"its header has {size:,} bytes, more than {_MAX_HEADER_BYTES:,}")


def stored_tensors(file: Any) -> dict[str, StoredTensor]:
    """Return the tensors of an open safetensors file by name; raise ValueError for a type or shape of no model."""
    tensors = {}
    for name in file.keys():  # noqa: SIM118
        part = file.get_slice(name)
        shape, dtype = tuple(part.get_shape()), part.get_dtype()
        if dtype not in _DTYPES or len(shape) > _MAX_DIMENSIONS:
            raise ValueError(f"{name[:100]!r} is a tensor of type {dtype} with {len(shape)} dimensions")
        tensors[name] = StoredTensor(shape, _DTYPES[dtype])
    return tensors


def check_tensors_match(found: Mapping[str, SizedTensor], expected: Mapping[str, SizedTensor], path: Path) -> None:
    """Raise UserError if the tensors of a file differ from a model's weights in name, shape or type."""
    missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or unknown:
        raise UserError(
            f"{path} does not match the model in recipe.toml: {len(missing)} tensors are missing{_example(missing)}, "
            f"{len(unknown)} are unknown{_example(unknown)}. Restore the file, or train again."
        )
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape:
            raise UserError(
                f"{path}: {name} has shape {list(found[name].shape)}, but the model in recipe.toml needs "
                f"{list(tensor.shape)}. Restore the file or the recipe."
            )
        if found[name].dtype != tensor.dtype:
            raise UserError(
                f"{path}: {name} has type {found[name].dtype}, but the model needs {tensor.dtype}. Restore the file."
            )


def _example(names: list[str]) -> str:
    return f" ({names[0][:100]})" if names else ""


def parse_facts(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the facts in the metadata of a file; raise ValueError if they are not in a form that we write."""
    facts = dict(metadata)
    content = json.loads(facts.pop("dragoman", "{}"))
    if not isinstance(content, dict):
        raise ValueError("its metadata is not a table")
    return facts | {str(name): str(value) for name, value in content.items()}


def whole_number(facts: Mapping[str, str], name: str, minimum: int, maximum: int, path: Path) -> int:
    """Return a fact that is a whole number, 0 if it is missing or unknown; raise UserError unless it is in range."""
    text = facts.get(name, "") or "0"
    number = int(text) if re.fullmatch("[0-9]{1,18}", text) else -1
    if number and not minimum <= number <= maximum:
        raise UserError(
            f"{path}: its {name} is {text[:40]!r}; it must be a whole number from {minimum:,} to {maximum:,}. "
            "Restore the file, or train again."
        )
    return number


def whole_numbers(facts: Mapping[str, str], name: str) -> list[int]:
    """Return a fact that is a list of whole numbers, without what is not one."""
    return [int(number) for number in facts.get(name, "").split()[:1000] if re.fullmatch("[0-9]{1,18}", number)]


def share(facts: Mapping[str, str], name: str, path: Path) -> float:
    """Return a fact that is a share of a whole, 0 if it is missing; raise UserError unless it is from 0 to 1."""
    text = facts.get(name, "") or "0"
    if not re.fullmatch(r"0(\.[0-9]{1,9})?|1(\.0{1,9})?", text):
        raise UserError(
            f"{path}: its {name} is {text[:40]!r}; it must be a number from 0 to 1. Restore the file, or train again."
        )
    return float(text)
