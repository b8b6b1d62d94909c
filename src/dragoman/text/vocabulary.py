"""Learning a vocabulary: the five kinds of tokenizer, each as the `tokenizers` library runs it.

Every vocabulary begins with the reserved ids of `tokens.py`. Their names are ordinary entries, not "special tokens"
looked for in text, and no text can spell them: a user who types one gets text.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from dragoman import recipe
from dragoman.errors import UserError
from dragoman.tokens import END, PAD, RESERVED, START, UNKNOWN

# Safe in every kind: the byte alphabet has none of these brackets, a character is shorter, a word holds no space.
# The unknown piece needs no such care (whoever types its sign means it) and is shown as it is named.
NAMES = {PAD: "⟨ pad ⟩", UNKNOWN: "⁇", START: "⟨ start ⟩", END: "⟨ end ⟩"}

# A 50 MB line would stall the learners and teach them nothing new.
LONGEST_LINE = 10_000
# Greedy matching takes quadratic time in a word, and text without spaces is one long word.
LONGEST_WORD = 64

Lines = Iterable[str]


def learn(lines: Lines, how: recipe.Tokenizer, progress: Callable[[int], None] | None = None) -> Engine:
    """Learn a vocabulary from lines of text; `progress` hears how many lines have been read."""
    kind = KINDS[how.kind]
    return kind(well_formed_lines(lines, progress), how)


def learn_bpe(lines: Lines, how: recipe.Tokenizer) -> Engine:
    """Learn byte-pair merges (Sennrich et al. 2016) over the bytes of the text."""
    vocabulary, merges = byte_pairs(lines, how)
    return byte_level(models.BPE(vocab=vocabulary, merges=merges), how)


def learn_wordpiece(lines: Lines, how: recipe.Tokenizer) -> Engine:
    """Learn pieces for greedy longest-match cutting.

    The pieces come from the byte-pair learner. The library's own WordPiece learner is that one too, but breaks ties
    by the order of a hash table, so that no two runs agree.
    """
    vocabulary, _ = byte_pairs(lines, how)
    model = models.WordPiece(
        vocab=vocabulary,
        unk_token=NAMES[UNKNOWN],
        continuing_subword_prefix="",
        max_input_chars_per_word=2 * LONGEST_WORD,
    )
    short = pre_tokenizers.Split(Regex(f".{{1,{LONGEST_WORD}}}"), "isolated")
    return byte_level(model, how, short)


def learn_bytes(lines: Lines, how: recipe.Tokenizer) -> Engine:
    """Take the 256 bytes as they are; the text is only looked at to see that there is some."""
    if not any(True for _ in lines):
        raise nothing_to_learn_from()
    return byte_level(models.BPE(vocab=numbered(sorted(pre_tokenizers.ByteLevel.alphabet())), merges=[]), how)


def learn_characters(lines: Lines, how: recipe.Tokenizer) -> Engine:
    """Take the most frequent characters."""
    normal = normalizer(how)
    counts = Counter[str]()
    for line in lines:
        counts.update(normal.normalize_str(line))
    cut = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return whole_pieces(counts, how, normal, cut, decoders.Fuse())


def learn_words(lines: Lines, how: recipe.Tokenizer) -> Engine:
    """Take the most frequent words of text that is already split at spaces."""
    normal = normalizer(how)
    counts = Counter[str]()
    for line in lines:
        counts.update(word for word in normal.normalize_str(line).split(" ") if word)
    # Without a decoder the library puts single spaces between the words.
    return whole_pieces(counts, how, normal, pre_tokenizers.Split(" ", "removed"), None)


KINDS: dict[str, Callable[[Lines, recipe.Tokenizer], Engine]] = {
    "bpe": learn_bpe,
    "wordpiece": learn_wordpiece,
    "characters": learn_characters,
    "bytes": learn_bytes,
    "words": learn_words,
}


def byte_pairs(lines: Lines, how: recipe.Tokenizer) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the pieces and merges of a byte-level BPE, the same for the same text on every run."""
    learner = byte_level(models.BPE(), how)
    trainer = trainers.BpeTrainer(
        vocab_size=how.size,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[NAMES[token] for token in range(RESERVED)],
        show_progress=False,
    )
    learner.train_from_iterator(some(lines), trainer)
    # Rebuilt from its parts by the caller, because the trainer marks the reserved names as tokens to find in text.
    learned: dict[str, Any] = json.loads(learner.to_str())["model"]
    return learned["vocab"], [(left, right) for left, right in learned["merges"]]


def byte_level(model: models.Model, how: recipe.Tokenizer, *cuts: pre_tokenizers.PreTokenizer) -> Engine:
    """Put a model over bytes into a pipeline that gives back every text exactly (in NFC)."""
    engine = Engine(model)
    # With a space before the line, its first word is the same piece as anywhere else.
    engine.normalizer = normalizers.Sequence([normalizer(how), normalizers.Prepend(" ")])
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    engine.pre_tokenizer = pre_tokenizers.Sequence([bytes_of_words, *cuts]) if cuts else bytes_of_words
    engine.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return engine


def whole_pieces(
    counts: Counter[str],
    how: recipe.Tokenizer,
    normal: normalizers.Normalizer,
    cut: pre_tokenizers.PreTokenizer,
    decoder: decoders.Decoder | None,
) -> Engine:
    """Build a tokenizer that looks each cut piece up; those less frequent than the first `size` are unknown."""
    counts.pop(NAMES[UNKNOWN], None)
    if not counts:
        raise nothing_to_learn_from()
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
    engine = Engine(models.WordLevel(vocab=numbered(ranked[: how.size - RESERVED]), unk_token=NAMES[UNKNOWN]))
    engine.normalizer, engine.pre_tokenizer = normal, cut
    if decoder is not None:
        engine.decoder = decoder
    return engine


def normalizer(how: recipe.Tokenizer) -> normalizers.Normalizer:
    """Return what is done to a text before it is cut: one spelling for each accented letter, perhaps one case."""
    steps = [normalizers.NFC()] + ([normalizers.Lowercase()] if how.lowercase else [])
    return normalizers.Sequence(steps)


def numbered(pieces: Iterable[str]) -> dict[str, int]:
    """Number the pieces, after the reserved ones."""
    names = [NAMES[token] for token in range(RESERVED)]
    return {piece: number for number, piece in enumerate([*names, *pieces])}


def well_formed_lines(lines: Lines, progress: Callable[[int], None] | None) -> Iterator[str]:
    """Yield the beginnings of lines that hold some text."""
    count = 0
    for count, line in enumerate(lines, 1):
        if progress and count % 1000 == 0:
            progress(count)
        if line.strip():
            yield well_formed(line[:LONGEST_LINE])
    if progress and count % 1000:
        progress(count)


def some(lines: Lines) -> Iterator[str]:
    """Yield the lines, and object if there were none."""
    line = None
    for line in lines:
        yield line
    if line is None:
        raise nothing_to_learn_from()


def nothing_to_learn_from() -> UserError:
    """Say that there was no text."""
    return UserError("There is no text to learn a vocabulary from: every line is empty. Check the training files.")


def well_formed(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot write, by U+FFFD; places in the text stay where they are."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
