"""The tokenizer: strings to ids and back. Its file, `tokenizer.json`, is in the format of the `tokenizers` library."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tokenizers import Tokenizer as Engine

from dragoman import recipe
from dragoman.errors import UserError
from dragoman.storage import read_regular
from dragoman.text.tokenizer_file import MAX_FILE_BYTES, TokenizerFileError, has_byte_level_decoder, parse_tokenizer
from dragoman.text.vocabulary import BYTE_VALUES, RESERVED_NAMES, learn_vocabulary, replace_surrogates
from dragoman.tokens import RESERVED_TOKENS, UNKNOWN

_Returned = TypeVar("_Returned")
_Parameters = ParamSpec("_Parameters")


def _with_library_errors(method: Callable[_Parameters, _Returned]) -> Callable[_Parameters, _Returned]:
    """Return a method whose calls of the Rust library raise a UserError where the library fails or panics."""

    @wraps(method)
    def wrapped(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Returned:
        try:
            return method(*args, **kwargs)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # panics do not derive from Exception; other failures are a plain Exception
            if isinstance(error, Exception) and type(error) is not Exception:
                raise
            raise UserError(f"The tokenizer failed on a text ({error}). {_RESTORE_HINT}") from None

    return wrapped


@dataclass(frozen=True)
class TextPiece:
    """A piece of a text: its id, its text, and its span of characters in the text."""

    token: int
    text: str
    start: int
    end: int


class Tokenizer:
    """Converts text to token ids and back."""

    def __init__(self, backend: Engine) -> None:
        self.backend = backend

    @classmethod
    def train(
        cls, lines: Iterable[str], config: recipe.TokenizerConfig, progress: Callable[[int], None] | None = None
    ) -> "Tokenizer":
        """Train a tokenizer on lines of text; `progress` is called with the number of lines read."""
        return cls(learn_vocabulary(lines, config, progress))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a tokenizer file."""
        path = Path(path)
        try:
            text = read_regular(path, max_bytes=MAX_FILE_BYTES).decode()
        except FileNotFoundError:
            raise UserError(f"{path}: no such file. Training writes it into the run directory.") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}).") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 at byte {error.start}. {_RESTORE_HINT}") from None
        return cls.from_json(text, where=str(path))

    @classmethod
    def from_json(cls, text: str, where: str = "tokenizer.json") -> "Tokenizer":
        """Return the tokenizer of a `tokenizer.json`; `where` is its name for error messages."""
        try:
            # The library gets what was checked: it may read a text with a key that occurs twice differently.
            tokenizer = cls(Engine.from_str(json.dumps(parse_tokenizer(text))))
            tokenizer._self_test()
        except TokenizerFileError as error:
            raise UserError(f"{where}: {error}. {_RESTORE_HINT}") from None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # panics of the Rust library do not derive from Exception
            raise UserError(f"{where}: not a working tokenizer ({error}). {_RESTORE_HINT}") from None
        return tokenizer

    def _self_test(self) -> None:
        """Try every operation once, so that a damaged file raises here."""
        tokens = [piece.token for piece in self.pieces(_TEST_TEXT)]
        if tokens != self.encode_batch([_TEST_TEXT])[0] or not self.decode(tokens) or not all(self.spell(tokens)):
            raise ValueError("the self-test failed")

    def __len__(self) -> int:
        return int(self.backend.get_vocab_size())

    @_with_library_errors
    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without START and END."""
        return list(self.backend.encode(replace_surrogates(text)).ids)

    @_with_library_errors
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts, on all cores."""
        return [
            encoding.ids for encoding in self.backend.encode_batch_fast([replace_surrogates(text) for text in texts])
        ]

    @_with_library_errors
    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of token ids; UNKNOWN becomes "⁇", other reserved ids are skipped."""
        visible = [int(token) for token in tokens if token >= RESERVED_TOKENS or token == UNKNOWN]
        return str(self.backend.decode(visible, skip_special_tokens=False))

    @_with_library_errors
    def pieces(self, text: str) -> list[TextPiece]:
        """Return the pieces of a text with their spans, which together cover the text."""
        encoding = self.backend.encode(replace_surrogates(text))
        spans = [(int(start), int(end)) for start, end in encoding.offsets]
        if not self.is_word_level:
            spans = _close_gaps(spans, len(text))
        pieces = [
            TextPiece(token, text[start:end] if token == UNKNOWN else self.spellings[token], start, end)
            for token, (start, end) in zip(encoding.ids, spans, strict=True)
        ]
        return _strip_added_space(pieces) if self.is_byte_level else pieces

    def spans(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Return the span of each token in the decoded text; a character of several byte tokens belongs to the last."""
        text = self.decode(tokens)
        ends = [_common_prefix_length(text, self.decode(tokens[:n])) for n in range(1, len(tokens) + 1)]
        return list(zip([0, *ends], ends, strict=False))

    def spell(self, tokens: Iterable[int]) -> list[str]:
        """Return the readable piece of each id; a leading space marks the start of a word."""
        return [self.spellings[token] for token in tokens]

    def to_json(self) -> str:
        """Return the tokenizer as JSON, in the format of the `tokenizers` library."""
        return str(self.backend.to_str(pretty=True)) + "\n"

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the tokenizer file."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @cached_property
    def spellings(self) -> list[str]:
        """All pieces of the vocabulary, in readable form."""
        spelled = _spell_bytes if self.is_byte_level else _spell_text
        readable = [spelled(self.with_spaces(piece)) for piece in self.vocabulary_pieces[RESERVED_TOKENS:]]
        return [RESERVED_NAMES[token].replace(" ", "") for token in range(RESERVED_TOKENS)] + readable

    @cached_property
    def vocabulary_pieces(self) -> list[str]:
        """All pieces of the vocabulary, as in the file."""
        return sorted(self.backend.get_vocab(), key=self.backend.get_vocab().__getitem__)

    @cached_property
    def without_prefix_space(self) -> "Tokenizer":
        """The same tokenizer for the inside of a text: it does not prepend a space."""
        normalizer = {**self.definition["normalizer"]}
        normalizer["normalizers"] = [step for step in normalizer["normalizers"] if step["type"] != "Prepend"]
        return Tokenizer(Engine.from_str(json.dumps({**self.definition, "normalizer": normalizer})))

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether the pieces consist of bytes rather than characters."""
        return has_byte_level_decoder(self.definition)

    @cached_property
    def has_space_marks(self) -> bool:
        """Whether pieces have "▁" for a space, as those of SentencePiece."""
        return '"Metaspace"' in json.dumps(self.definition["decoder"])

    def with_spaces(self, piece: str) -> str:
        """Return a piece of the vocabulary with spaces for the marks of SentencePiece."""
        return piece.replace(_SPACE_MARK, " ") if self.has_space_marks else piece

    @cached_property
    def is_word_level(self) -> bool:
        """Whether the pieces are words, separated by spaces that are not kept."""
        return not self.is_byte_level and self.definition["decoder"] is None

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The content of the tokenizer file."""
        return dict(json.loads(self.backend.to_str()))


_SPACE_MARK = "▁"
_RESTORE_HINT = "Restore the tokenizer.json that was trained with the model, or train again."
_TEST_TEXT = " a\tA 1é́⟨ pad ⟩\n"


def _common_prefix_length(text: str, other: str) -> int:
    """Return the length of the common prefix; the last characters of the other may be incomplete."""
    if text.startswith(other):
        return len(other)
    return next(
        (i for i, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), min(len(text), len(other))
    )


def _close_gaps(spans: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Extend each span to the next one: NFC composes accents and leaves their positions uncovered."""
    following = [start for start, _ in spans[1:]] + [length]
    return [(start, max(end, after)) for (start, end), after in zip(spans, following, strict=False)]


def _strip_added_space(pieces: list[TextPiece]) -> list[TextPiece]:
    """Remove the prepended space from the first piece, which may become empty."""
    if not pieces:
        return []
    first, *rest = pieces
    text = first.text.removeprefix(" ")
    return [TextPiece(first.token, text, first.start, first.end if text else first.start), *rest]


def _spell_bytes(piece: str) -> str:
    """Return a byte-level piece as text; bytes of an incomplete character become ⟨E2⟩."""
    return _spell_text(bytes(BYTE_VALUES[letter] for letter in piece).decode("utf-8", "surrogateescape"))


def _spell_text(piece: str) -> str:
    """Return a piece with invisible characters, except spaces, escaped."""
    return "".join(letter if letter.isprintable() else _escape_character(letter) for letter in piece)


def _escape_character(letter: str) -> str:
    """Return ⟨U+200D⟩ for an invisible character, and ⟨E2⟩ for an escaped byte."""
    number = ord(letter)
    return f"⟨{number - 0xDC00:02X}⟩" if 0xDC80 <= number <= 0xDCFF else f"⟨U+{number:04X}⟩"
