"""The weights and tokenizers of a run directory: safetensors and tokenizer.json files, read and written."""

import errno
import json
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dragoman.errors import UserError
from dragoman.models.weights import current_name
from dragoman.run import FORMAT_VERSION, Run
from dragoman.storage import apply_umask, atomic_file, fsync, open_regular, write_atomically
from dragoman.text.tokenizer import Tokenizer


def read_tokenizers(run: Run, joint: bool) -> tuple[Tokenizer, Tokenizer]:
    """Read the source and the target tokenizer; with `joint` they are one."""
    tokenizers = [Tokenizer.load(path) for path in run.tokenizer_files(joint)]
    return tokenizers[0], tokenizers[-1]


def write_tokenizers(run: Run, source: Tokenizer, target: Tokenizer, joint: bool) -> None:
    """Write the source and the target tokenizer; with `joint` they are one."""
    run.require_in_place()
    for path, tokenizer in zip(run.tokenizer_files(joint), [source, target], strict=False):
        write_atomically(path, tokenizer.to_json().encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and their metadata into a safetensors file, and wait until it is on disk."""
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path, dict(metadata))
    except SafetensorError as error:  # usually a full disk
        code = re.search(r"\(os error (\d+)\)", str(error))
        raise OSError(int(code[1]) if code else errno.EIO, f"{path} could not be written: {error}") from None
    apply_umask(path)
    fsync(path)


def write_weights(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write the weights of a run atomically; equal weights and metadata give equal bytes."""
    content = json.dumps({"format": FORMAT_VERSION, **metadata})  # safetensors writes several entries in any order
    with atomic_file(path) as temporary:
        write_tensors(temporary, tensors, {"dragoman": content})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors, by their present names, and their metadata; raise an error if the file is damaged."""
    try:
        open_regular(path).close()  # the library opens the path itself, whatever it leads to
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; training has not saved weights yet, or the file was removed.") from None
    if not _is_utf8(path):
        raise UserError(f"{path}: the safetensors library only opens paths that are valid UTF-8; rename the directory.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            content = json.loads(metadata.pop("dragoman", "{}"))
            metadata |= {str(name): str(value) for name, value in content.items()}
            tensors = {current_name(name): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged or not a safetensors file ({error}); restore it or train again.") from None
    if metadata.get("format", FORMAT_VERSION) != FORMAT_VERSION:
        raise UserError(
            f"{path} has format {metadata['format']!r}, but this version of Dragoman reads {FORMAT_VERSION!r}; restore "
            "the file, or use the version of Dragoman that wrote it."
        )
    return tensors, metadata


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def copy_weights(tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: Path) -> None:
    """Copy the tensors of a file into the weights of a model, after `check_weights_match`."""
    check_weights_match(tensors, weights, path)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(tensors[name])


def check_weights_match(tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise if the tensors of a file differ from a model's weights in name, shape or type, or are not finite."""
    missing, unknown = sorted(weights.keys() - tensors.keys()), sorted(tensors.keys() - weights.keys())
    if missing or unknown:
        raise UserError(
            f"{path} does not match the model in recipe.toml: {len(missing)} tensors are missing{_example(missing)}, "
            f"{len(unknown)} are unknown{_example(unknown)}. Restore the file, or train again."
        )
    for name, weight in weights.items():
        tensor = tensors[name]
        if tensor.shape != weight.shape:
            raise UserError(
                f"{path}: {name} has shape {list(tensor.shape)}, but the model in recipe.toml needs "
                f"{list(weight.shape)}. Restore the file or the recipe."
            )
        if tensor.dtype != weight.dtype:
            raise UserError(
                f"{path}: {name} has type {tensor.dtype}, but the model needs {weight.dtype}. Restore the file."
            )
        if not torch.isfinite(tensor).all():
            raise UserError(f"{path}: {name} contains non-finite values; restore the file, or train again.")


def _example(names: list[str]) -> str:
    return f" ({names[0]})" if names else ""
