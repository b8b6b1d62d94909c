"""The weights and tokenizers of a run directory: safetensors and tokenizer.json files, read and written."""

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dragoman.errors import UserError
from dragoman.memory import require_memory
from dragoman.models.weights import current_name
from dragoman.run import FORMAT_VERSION, Run
from dragoman.storage import apply_umask, atomic_file, fsync, open_regular, write_atomically
from dragoman.tensor_header import (
    StoredTensor,
    check_header_size,
    check_tensors_match,
    parse_facts,
    stored_tensors,
)
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


HeaderCheck = Callable[[Path, Mapping[str, StoredTensor], Mapping[str, str]], None]  # file, its tensors and metadata


def read_tensors(path: Path, check: HeaderCheck | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors, by their present names, and their metadata; raise an error if the file is damaged.

    `check` is called before any tensor is read, and raises if the file is not the expected one.
    """
    try:
        with open_regular(path) as opened:  # the library opens the path itself, whatever it leads to
            header_bytes, file_bytes = int.from_bytes(opened.read(8), "little"), os.fstat(opened.fileno()).st_size
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; training has not saved weights yet, or the file was removed.") from None
    if not _is_utf8(path):
        raise UserError(f"{path}: the safetensors library only opens paths that are valid UTF-8; rename the directory.")
    require_memory(file_bytes, str(path))
    try:
        check_header_size(header_bytes)
        with safe_open(path, framework="pt") as file:
            metadata = parse_facts(file.metadata() or {})
            _check_format(metadata, path)
            found = stored_tensors(file)
            if check is not None:
                check(path, {current_name(name): tensor for name, tensor in found.items()}, metadata)
            return {current_name(name): file.get_tensor(name) for name in found}, metadata
    except (SafetensorError, OSError, ValueError, RuntimeError, MemoryError) as error:
        raise UserError(f"{path} is damaged or not a safetensors file ({error}); restore it or train again.") from None


def _check_format(metadata: Mapping[str, str], path: Path) -> None:
    if metadata.get("format", FORMAT_VERSION) != FORMAT_VERSION:
        raise UserError(
            f"{path} has format {metadata['format'][:40]!r}, but this version of Dragoman reads {FORMAT_VERSION!r}; "
            "restore the file, or use the version of Dragoman that wrote it."
        )


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def copy_weights(tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: Path) -> None:
    """Copy the tensors of a file into the weights of a model; raise if they do not match, or are not finite."""
    check_tensors_match(tensors, weights, path)
    with torch.no_grad():
        for name, weight in weights.items():
            if not torch.isfinite(tensors[name]).all():
                raise UserError(f"{path}: {name} contains non-finite values; restore the file, or train again.")
            weight.copy_(tensors[name])
