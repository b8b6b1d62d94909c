"""The tokenizer: strings to ids and back, and nothing about models or files of data.

What it does to a text is written in one JSON file that the `tokenizers` library reads by itself.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import pre_tokenizers

from dragoman import recipe
from dragoman.errors import UserError
from dragoman.text.vocabulary import RESERVED_NAMES, learn_vocabulary, replace_surrogates
from dragoman.tokens import RESERVED_TOKENS, UNKNOWN

MAX_FILE_BYTES = 256 << 20  # bytes; a vocabulary of a million pieces takes a tenth of it


@dataclass(frozen=True)
class TextPiece:
    """A piece of a text: its id, what it spells, and the characters of the text that it stands for."""

    token: int
    text: str
    start: int
    end: int


class Tokenizer:
    """Cut text into pieces, number them, and put text together again."""

    def __init__(self, backend: Engine) -> None:
        self.backend = backend

    @classmethod
    def train(
        cls, lines: Iterable[str], config: recipe.TokenizerConfig, progress: Callable[[int], None] | None = None
    ) -> "Tokenizer":
        """Learn a vocabulary from lines of text; `progress` hears how many lines have been read."""
        return cls(learn_vocabulary(lines, config, progress))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a tokenizer file."""
        path = Path(path)
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise UserError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, so no tokenizer that we wrote.")
            text = path.read_bytes().decode()
        except FileNotFoundError:
            raise UserError(f"{path}: no such file. Training writes it into the run directory.") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}).") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 at byte {error.start}. {_RESTORE_HINT}") from None
        return cls.from_json(text, where=str(path))

    @classmethod
    def from_json(cls, text: str, where: str = "tokenizer.json") -> "Tokenizer":
        """Rebuild a tokenizer from what `to_json` wrote; refuse anything else."""
        wrong = _find_file_error(text)
        if wrong:
            raise UserError(f"{where}: {wrong}. {_RESTORE_HINT}")
        try:
            tokenizer = cls(Engine.from_str(text))
            tokenizer._self_test()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library's panics are no Exceptions
            raise UserError(f"{where}: not a working tokenizer ({error}). {_RESTORE_HINT}") from None
        return tokenizer

    def _self_test(self) -> None:
        """Do everything once, so that a damaged file fails here rather than in the middle of the work."""
        tokens = [piece.token for piece in self.pieces(_TEST_TEXT)]
        if tokens != self.encode_batch([_TEST_TEXT])[0] or not self.decode(tokens) or not all(self.spell(tokens)):
            raise ValueError("it loses text")

    def __len__(self) -> int:
        return int(self.backend.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text's pieces, without START and END."""
        return list(self.backend.encode(replace_surrogates(text)).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts, on all cores."""
        return [
            encoding.ids for encoding in self.backend.encode_batch_fast([replace_surrogates(text) for text in texts])
        ]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text that the ids spell; the unknown piece shows as "⁇", other reserved ids do not show."""
        shown = [int(token) for token in tokens if token >= RESERVED_TOKENS or token == UNKNOWN]
        return str(self.backend.decode(shown, skip_special_tokens=False))

    def pieces(self, text: str) -> list[TextPiece]:
        """Cut the text and say where each piece came from; between them the pieces cover all that was read."""
        encoding = self.backend.encode(replace_surrogates(text))
        spans = [(int(start), int(end)) for start, end in encoding.offsets]
        if not self.is_word_level:
            spans = _close_gaps(spans, len(text))
        found = [
            TextPiece(token, text[start:end] if token == UNKNOWN else self.spellings[token], start, end)
            for token, (start, end) in zip(encoding.ids, spans, strict=True)
        ]
        return _strip_added_space(found) if self.is_byte_level else found

    def spans(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Return where in the decoded text each token stands; of a character's bytes the last one has it."""
        text = self.decode(tokens)
        ends = [_common_prefix_length(text, self.decode(tokens[:n])) for n in range(1, len(tokens) + 1)]
        return list(zip([0, *ends], ends, strict=False))

    def spell(self, tokens: Iterable[int]) -> list[str]:
        """Return each id as a person would read it; a space in front tells the start of a word."""
        return [self.spellings[token] for token in tokens]

    def to_json(self) -> str:
        """Return all that is needed to rebuild the tokenizer, as the `tokenizers` library writes it."""
        return str(self.backend.to_str(pretty=True)) + "\n"

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the tokenizer file."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @cached_property
    def spellings(self) -> list[str]:
        """Every piece of the vocabulary, readable."""
        spelled = _spell_bytes if self.is_byte_level else _spell_text
        readable = [spelled(piece) for piece in self.vocabulary_pieces[RESERVED_TOKENS:]]
        return [RESERVED_NAMES[token].replace(" ", "") for token in range(RESERVED_TOKENS)] + readable

    @cached_property
    def vocabulary_pieces(self) -> list[str]:
        """Every piece of the vocabulary, as the file has it."""
        return sorted(self.backend.get_vocab(), key=self.backend.get_vocab().__getitem__)

    @cached_property
    def without_prefix_space(self) -> "Tokenizer":
        """The same tokenizer for what stands inside a text: it puts no space before it."""
        normalizer = {**self.definition["normalizer"]}
        normalizer["normalizers"] = [step for step in normalizer["normalizers"] if step["type"] != "Prepend"]
        return Tokenizer(Engine.from_str(json.dumps({**self.definition, "normalizer": normalizer})))

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether the pieces are made of bytes rather than characters."""
        return bool(self.definition["model"]["type"] != "WordLevel")

    @cached_property
    def is_word_level(self) -> bool:
        """Whether the pieces are words, between which spaces are not kept."""
        return not self.is_byte_level and self.definition["decoder"] is None

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The tokenizer file as a tree."""
        return dict(json.loads(self.backend.to_str()))


_RESTORE_HINT = "Restore the tokenizer.json that was trained with the model, or train again."
_KNOWN_MODELS = ("BPE", "WordPiece", "WordLevel")
_TEST_TEXT = " a\tA 1é́⟨ pad ⟩\n"


def _find_file_error(text: str) -> str | None:
    """Say why the JSON is none of ours, before the library sees it."""
    try:
        tree = json.loads(text)
        model, vocabulary = tree["model"], tree["model"]["vocab"]
        ids = sorted(vocabulary.values())
    except RecursionError:
        return "not a tokenizer: nested too deeply"
    except ValueError as error:
        return f"not valid JSON ({error})"
    except (KeyError, TypeError, AttributeError):
        return "not a tokenizer: no vocabulary in it"
    if model.get("type") not in _KNOWN_MODELS:
        return f"a tokenizer of type {model.get('type')!r}; ours are {', '.join(_KNOWN_MODELS)}"
    if ids != list(range(len(ids))) or any(type(number) is not int for number in ids):
        return "the ids of its vocabulary are not 0, 1, 2 … without gaps"
    if any(vocabulary.get(name) != token for token, name in RESERVED_NAMES.items()):
        return (
            f"its first {RESERVED_TOKENS} pieces are not {', '.join(RESERVED_NAMES.values())}, so another program "
            "made it"
        )
    if model["type"] != "WordLevel" and not BYTE_VALUES.keys() <= vocabulary.keys():
        return "its vocabulary lacks some of the 256 bytes"
    unexpected = [key for key in ("added_tokens", "truncation", "padding", "post_processor") if tree.get(key)]
    unexpected += [key for key in ("dropout",) if model.get(key)]
    return f"it sets {unexpected[0]}, which ours never do" if unexpected else None


def _common_prefix_length(text: str, other: str) -> int:
    """Return how many characters two strings begin with alike; the last ones of the other may be half a character."""
    return next(
        (i for i, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), min(len(text), len(other))
    )


def _close_gaps(spans: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Stretch each span to the next one: composing an accent (NFC) leaves the accent's own place to nobody."""
    following = [start for start, _ in spans[1:]] + [length]
    return [(start, max(end, after)) for (start, end), after in zip(spans, following, strict=False)]


def _strip_added_space(pieces: list[TextPiece]) -> list[TextPiece]:
    """Take the space that was put before the line out of the first piece, which may be left with nothing."""
    if not pieces:
        return []
    first, *others = pieces
    text = first.text.removeprefix(" ")
    return [TextPiece(first.token, text, first.start, first.end if text else first.start), *others]


def _byte_alphabet() -> dict[str, int]:
    """Return which byte each letter of the byte-level alphabet stands for.

    Printable bytes stand for themselves; the others were moved, in their order, to letters behind the first 256.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = {letter: ord(letter) for letter in letters if ord(letter) < 256}
    moved = [number for number in range(256) if chr(number) not in plain]
    return plain | dict(zip(letters[len(plain) :], moved, strict=True))


BYTE_VALUES = _byte_alphabet()


def _spell_bytes(piece: str) -> str:
    """Return a byte-level piece as text; bytes that are only part of a character show as ⟨E2⟩."""
    return _spell_text(bytes(BYTE_VALUES[letter] for letter in piece).decode("utf-8", "surrogateescape"))


def _spell_text(piece: str) -> str:
    """Return a piece with what cannot be seen, except spaces, written out."""
    return "".join(letter if letter.isprintable() else _escape_character(letter) for letter in piece)


def _escape_character(letter: str) -> str:
    """Write an invisible character as ⟨U+200D⟩, and an escaped byte as ⟨E2⟩."""
    number = ord(letter)
    return f"⟨{number - 0xDC00:02X}⟩" if 0xDC80 <= number <= 0xDCFF else f"⟨U+{number:04X}⟩"
