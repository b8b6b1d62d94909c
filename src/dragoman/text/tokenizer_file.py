"""What a tokenizer.json may contain: a vocabulary, and one of the pipelines that training writes.

The format of the `tokenizers` library is a small language: a file may ask for regular expressions that never end, for
replacements that fill the memory, or for a decoder that writes anything into every output. Files of models come from
anybody, so that everything but the vocabulary must be exactly what Dragoman would write itself.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers

from dragoman.text.vocabulary import BYTE_VALUES, RESERVED_NAMES, untrained_engines
from dragoman.tokens import RESERVED_TOKENS, UNKNOWN

MAX_FILE_BYTES = 96 << 20  # of a file; one of a million pieces with their merges has 70 MB
_MAX_PIECES = 1_000_000  # the limit of the recipe
_MAX_PIECE_LETTERS = 1 << 17  # training cuts lines at 10,000 characters, each of which has at most 12 bytes
# Python needs up to 100 bytes for each value of a JSON text. Characters that separate values are counted before it is
# parsed, also those in strings.
_MAX_VALUES = 5 * _MAX_PIECES
_LEARNED = ("vocab", "merges")  # the parts of a model that differ between two tokenizers of a kind
_PIPELINE = ("model", "normalizer", "pre_tokenizer", "decoder")
_UNUSED = ("added_tokens", "truncation", "padding", "post_processor")


class TokenizerFileError(ValueError):
    """What is wrong with a tokenizer file, as the end of a sentence."""


def parse_tokenizer(text: str) -> dict[str, Any]:
    """Return the content of a tokenizer file; raise TokenizerFileError unless it is one that we would write."""
    tree = _parse_json(text)
    try:
        model = tree["model"]
        vocabulary = _vocabulary(model)
        ids = sorted(vocabulary.values())
    except (KeyError, TypeError, AttributeError, IndexError):
        raise TokenizerFileError("not a tokenizer: it has no vocabulary") from None
    known = {pipeline["model"]["type"] for pipeline in allowed_pipelines()}
    if model.get("type") not in known:
        found = str(model.get("type"))[:40]
        raise TokenizerFileError(
            f"unsupported tokenizer type {found!r}; supported types are {', '.join(sorted(known))}"
        )
    if ids != list(range(len(ids))) or any(type(number) is not int for number in ids):
        raise TokenizerFileError("the ids of its vocabulary are not consecutive from 0")
    if any(vocabulary.get(name) != token for token, name in RESERVED_NAMES.items()):
        raise TokenizerFileError(
            f"its first {RESERVED_TOKENS} tokens are not {', '.join(RESERVED_NAMES.values())}, so it was not written "
            "by Dragoman"
        )
    _check_pipeline(tree)
    if has_byte_level_decoder(tree):
        _check_bytes(vocabulary)
    _check_sizes(model, vocabulary)
    return tree


def has_byte_level_decoder(definition: Mapping[str, Any]) -> bool:
    """Return whether the pieces of a tokenizer consist of bytes rather than characters."""
    return '"ByteLevel"' in json.dumps(definition.get("decoder"))


def _parse_json(text: str) -> dict[str, Any]:
    if sum(map(text.count, "[{,")) > _MAX_VALUES:
        raise TokenizerFileError(f"not a tokenizer: it has more than {_MAX_VALUES:,} values")
    try:
        tree = json.loads(text)
    except RecursionError:
        raise TokenizerFileError("not a tokenizer: nested too deeply") from None
    except ValueError as error:  # of a JSONDecodeError, or an integer of thousands of digits
        raise TokenizerFileError(f"not valid JSON ({error})") from None
    if not isinstance(tree, dict):
        raise TokenizerFileError("not a tokenizer: it has no vocabulary")
    return tree


def _vocabulary(model: dict[str, Any]) -> dict[str, int]:
    """Return the ids of the pieces; those of a Unigram model are their positions."""
    vocabulary = model["vocab"]
    if model.get("type") == "Unigram":
        return {row[0]: number for number, row in enumerate(vocabulary) if len(row) == 2}
    if not isinstance(vocabulary, dict):
        raise TypeError
    return vocabulary


def _check_sizes(model: Mapping[str, Any], vocabulary: Mapping[str, int]) -> None:
    merges = model.get("merges", [])
    if len(vocabulary) > _MAX_PIECES or not isinstance(merges, list) or len(merges) > len(vocabulary):
        raise TokenizerFileError(
            f"it has {len(vocabulary):,} pieces; a tokenizer has at most {_MAX_PIECES:,}, and fewer merges than pieces"
        )
    if max(map(len, vocabulary)) > _MAX_PIECE_LETTERS:
        raise TokenizerFileError(f"a piece of its vocabulary is longer than {_MAX_PIECE_LETTERS:,} letters")


def _check_bytes(vocabulary: Mapping[str, int]) -> None:
    if not BYTE_VALUES.keys() <= vocabulary.keys():
        raise TokenizerFileError("its vocabulary does not contain all 256 bytes")
    if not set().union(*(vocabulary.keys() - RESERVED_NAMES.values())) <= BYTE_VALUES.keys():
        raise TokenizerFileError("pieces of its vocabulary do not consist of bytes")


def _check_pipeline(tree: Mapping[str, Any]) -> None:
    """Raise unless everything but the vocabulary is what training writes for one kind of tokenizer."""
    unexpected = [key for key in _UNUSED if tree.get(key)]
    unexpected += [key for key in ("dropout",) if tree["model"].get(key)]
    if unexpected:
        raise TokenizerFileError(f"it sets {unexpected[0]}, which is not supported")
    unknown = tree.keys() - allowed_pipelines()[0].keys()
    if unknown:
        raise TokenizerFileError(f"it has a part {min(unknown)[:40]!r}, which Dragoman does not write")
    found = _without_vocabulary(tree)
    fitting = list(allowed_pipelines())
    for part in _PIPELINE:
        fitting = [pipeline for pipeline in fitting if _is_within(found.get(part), pipeline[part])]
        if not fitting:
            raise TokenizerFileError(f"its {part} has settings that Dragoman does not write")


def _is_within(found: Any, expected: Any) -> bool:
    """Return whether a part of a file is the expected one; another version of the library may have fewer settings."""
    if isinstance(found, dict) and isinstance(expected, dict):
        has_type = found.get("type") == expected.get("type")
        return has_type and all(key in expected and _is_within(found[key], expected[key]) for key in found)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(_is_within, found, expected))
    return type(found) is type(expected) and bool(found == expected)


@cache
def allowed_pipelines() -> tuple[dict[str, Any], ...]:
    """Return the tokenizers that training writes, without their vocabularies; and SentencePiece's Unigram model."""
    unigram = Engine(models.Unigram([(RESERVED_NAMES[token], 0.0) for token in range(RESERVED_TOKENS)], UNKNOWN, False))
    unigram.pre_tokenizer, unigram.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return tuple(_without_vocabulary(json.loads(engine.to_str())) for engine in [*untrained_engines(), unigram])


def _without_vocabulary(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {**tree, "model": {key: value for key, value in tree["model"].items() if key not in _LEARNED}}
