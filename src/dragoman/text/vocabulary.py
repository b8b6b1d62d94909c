"""Training of the five kinds of tokenizer with the `tokenizers` library.

Every vocabulary begins with the reserved ids of `tokens.py`. Their names are ordinary entries, not "special tokens"
that are searched for in text, and cannot be produced from text: if a user types one, it is tokenized as text.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from dragoman import recipe
from dragoman.errors import UserError
from dragoman.tokens import END, PAD, RESERVED_TOKENS, START, UNKNOWN

# Impossible in every kind: the byte alphabet does not contain the brackets, a character is shorter, a word contains no
# space. The unknown piece is an exception; it is shown by its name.
RESERVED_NAMES = {PAD: "⟨ pad ⟩", UNKNOWN: "⁇", START: "⟨ start ⟩", END: "⟨ end ⟩"}

# Very long lines slow training down without improving the vocabulary.
_MAX_LINE_CHARACTERS = 10_000
# Greedy matching takes quadratic time in the length of a word, and text without spaces is one long word.
_MAX_WORD_BYTES = 64

_TextLines = Iterable[str]


def learn_vocabulary(
    lines: _TextLines, config: recipe.TokenizerConfig, progress: Callable[[int], None] | None = None
) -> Engine:
    """Train a tokenizer on lines of text; `progress` is called with the number of lines read."""
    kind = _LEARNERS[config.kind]
    return kind(_training_lines(lines, progress), config)


def _learn_bpe(lines: _TextLines, config: recipe.TokenizerConfig) -> Engine:
    """Learn byte-pair merges (Sennrich et al. 2016) over the bytes of the text."""
    return _bpe_engine(*_learn_merges(lines, config), config)


def _learn_wordpiece(lines: _TextLines, config: recipe.TokenizerConfig) -> Engine:
    """Learn pieces for greedy longest-match tokenization.

    The pieces are learned as byte pairs. The library's WordPiece trainer does the same, but breaks ties by the order of
    a hash table and is not reproducible.
    """
    return _wordpiece_engine(_learn_merges(lines, config)[0], config)


def _learn_bytes(lines: _TextLines, config: recipe.TokenizerConfig) -> Engine:
    """Use the 256 bytes as the vocabulary; the text only must not be empty."""
    if not any(True for _ in lines):
        raise _empty_text_error()
    return _bpe_engine(_number_pieces(sorted(pre_tokenizers.ByteLevel.alphabet())), [], config)


def _learn_characters(lines: _TextLines, config: recipe.TokenizerConfig) -> Engine:
    """Use the most frequent characters as the vocabulary."""
    normal = _normalizer(config)
    counts = Counter[str]()
    for line in lines:
        counts.update(normal.normalize_str(line))
    return _characters_engine(_most_frequent(counts, config), config)


def _learn_words(lines: _TextLines, config: recipe.TokenizerConfig) -> Engine:
    """Use the most frequent words of text that is already split at spaces."""
    normal = _normalizer(config)
    counts = Counter[str]()
    for line in lines:
        counts.update(word for word in normal.normalize_str(line).split(" ") if word)
    return _words_engine(_most_frequent(counts, config), config)


_LEARNERS: dict[str, Callable[[_TextLines, recipe.TokenizerConfig], Engine]] = {
    "bpe": _learn_bpe,
    "wordpiece": _learn_wordpiece,
    "characters": _learn_characters,
    "bytes": _learn_bytes,
    "words": _learn_words,
}


def _learn_merges(lines: _TextLines, config: recipe.TokenizerConfig) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the pieces and merges of a byte-level BPE; the result is reproducible."""
    learner = _byte_level_pipeline(models.BPE(), config)
    trainer = trainers.BpeTrainer(
        vocab_size=config.size,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[RESERVED_NAMES[token] for token in range(RESERVED_TOKENS)],
        show_progress=False,
    )
    learner.train_from_iterator(_require_lines(lines), trainer)
    # The caller rebuilds the tokenizer, because the trainer marks the reserved names as special tokens.
    learned: dict[str, Any] = json.loads(learner.to_str())["model"]
    return learned["vocab"], [(left, right) for left, right in learned["merges"]]


def untrained_engines() -> list[Engine]:
    """Return a tokenizer of each kind, with and without lowercase, that has only the reserved tokens."""
    reserved = _number_pieces([])
    configs = [recipe.TokenizerConfig(lowercase=lowercase) for lowercase in (False, True)]
    built = [
        (
            _bpe_engine(reserved, [], config),
            _wordpiece_engine(reserved, config),
            _characters_engine(reserved, config),
            _words_engine(reserved, config),
        )
        for config in configs
    ]
    return [engine for engines in built for engine in engines]


def _bpe_engine(vocabulary: dict[str, int], merges: list[tuple[str, str]], config: recipe.TokenizerConfig) -> Engine:
    return _byte_level_pipeline(models.BPE(vocab=vocabulary, merges=merges), config)


def _wordpiece_engine(vocabulary: dict[str, int], config: recipe.TokenizerConfig) -> Engine:
    model = models.WordPiece(
        vocab=vocabulary,
        unk_token=RESERVED_NAMES[UNKNOWN],
        continuing_subword_prefix="",
        max_input_chars_per_word=2 * _MAX_WORD_BYTES,
    )
    short = pre_tokenizers.Split(Regex(f".{{1,{_MAX_WORD_BYTES}}}"), "isolated")
    return _byte_level_pipeline(model, config, short)


def _characters_engine(vocabulary: dict[str, int], config: recipe.TokenizerConfig) -> Engine:
    engine = _lookup_engine(vocabulary, config, pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"))
    engine.decoder = decoders.Fuse()
    return engine


def _words_engine(vocabulary: dict[str, int], config: recipe.TokenizerConfig) -> Engine:
    # Without a decoder the library joins the words with single spaces.
    return _lookup_engine(vocabulary, config, pre_tokenizers.Split(" ", "removed"))


def _byte_level_pipeline(
    model: models.Model, config: recipe.TokenizerConfig, *cuts: pre_tokenizers.PreTokenizer
) -> Engine:
    """Return a byte-level tokenizer that reproduces every text exactly (in NFC)."""
    engine = Engine(model)
    # With a space before the line, its first word has the same piece as elsewhere.
    engine.normalizer = normalizers.Sequence([_normalizer(config), normalizers.Prepend(" ")])
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    engine.pre_tokenizer = pre_tokenizers.Sequence([bytes_of_words, *cuts]) if cuts else bytes_of_words
    engine.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return engine


def _lookup_engine(
    vocabulary: dict[str, int], config: recipe.TokenizerConfig, cut: pre_tokenizers.PreTokenizer
) -> Engine:
    """Return a tokenizer that looks up whole pieces."""
    engine = Engine(models.WordLevel(vocab=vocabulary, unk_token=RESERVED_NAMES[UNKNOWN]))
    engine.normalizer, engine.pre_tokenizer = _normalizer(config), cut
    return engine


def _most_frequent(counts: Counter[str], config: recipe.TokenizerConfig) -> dict[str, int]:
    """Return the ids of the `size` most frequent pieces; all others are unknown."""
    counts.pop(RESERVED_NAMES[UNKNOWN], None)
    if not counts:
        raise _empty_text_error()
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
    return _number_pieces(ranked[: config.size - RESERVED_TOKENS])


def _normalizer(config: recipe.TokenizerConfig) -> normalizers.Normalizer:
    """Return the normalizer: NFC and, if configured, lowercase."""
    steps = [normalizers.NFC()] + ([normalizers.Lowercase()] if config.lowercase else [])
    return normalizers.Sequence(steps)


def _number_pieces(pieces: Iterable[str]) -> dict[str, int]:
    """Return the ids of the pieces, after the reserved ones."""
    names = [RESERVED_NAMES[token] for token in range(RESERVED_TOKENS)]
    return {piece: number for number, piece in enumerate([*names, *pieces])}


def _training_lines(lines: _TextLines, progress: Callable[[int], None] | None) -> Iterator[str]:
    """Yield the lines that are not blank, truncated to the maximum length."""
    count = 0
    for count, line in enumerate(lines, 1):
        if progress and count % 1000 == 0:
            progress(count)
        if line.strip():
            yield replace_surrogates(line[:_MAX_LINE_CHARACTERS])
    if progress and count % 1000:
        progress(count)


def _require_lines(lines: _TextLines) -> Iterator[str]:
    """Yield the lines; raise an error if there were none."""
    line = None
    for line in lines:
        yield line
    if line is None:
        raise _empty_text_error()


def _empty_text_error() -> UserError:
    return UserError("The training text is empty, so no vocabulary can be learned. Check the training files.")


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD; positions in the text do not change."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text


def _byte_alphabet() -> dict[str, int]:
    """Return the byte of each letter of the byte-level alphabet.

    Printable bytes are their own letters; the others are mapped, in order, to letters after the first 256.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = {letter: ord(letter) for letter in letters if ord(letter) < 256}
    moved = [number for number in range(256) if chr(number) not in plain]
    return plain | dict(zip(letters[len(plain) :], moved, strict=True))


BYTE_VALUES = _byte_alphabet()
