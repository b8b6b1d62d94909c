"""Running text: read in blocks, cut into chunks, and nothing lost or changed on the way."""

import gzip
import random
import unicodedata

import pytest

from dragoman import recipe
from dragoman.data import running_text
from dragoman.data.running_text import CHUNK_CHARACTERS, RunningText, incomplete_bytes, read_text_blocks, text_chunks
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer

WORDS = [
    "to",
    "be,",
    "naïve",
    "日本語",
    "don't",
    "a\u0301",
    "ᄒ",
    "ᅡ",
    "ᆫ",
    "\u2003",
    "🙂",
    "12.5",
    "\t",
    "\x1c",
    "x" * 30,
]
GAPS = [" ", " ", " ", "  ", "\n", "\n\n", "\n\n\n", " \n", "\n  ", ""]


def random_text(seed, words):
    chance = random.Random(seed)
    return "".join(chance.choice(WORDS) + chance.choice(GAPS) for _ in range(words))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(running_text, "BLOCK_BYTES", 7)


def test_a_file_is_read_exactly_whatever_falls_on_the_border_of_two_blocks(small_blocks, write):
    text = random_text(0, 300)
    assert "".join(read_text_blocks(write("a.txt", text.encode()))) == text


def test_a_packed_file_is_the_same_text(write):
    text = random_text(1, 300)
    plain, packed = write("a.txt", text.encode()), write("b.txt", gzip.compress(text.encode()))
    assert RunningText.from_file(plain).fingerprint() == RunningText.from_file(packed).fingerprint()


def test_carriage_returns_before_line_feeds_are_removed_and_others_are_content(small_blocks, write):
    notices = []
    content = b"\xef\xbb\xbfone\r\ntwo\rthree\r\r\nfour\r"
    assert "".join(read_text_blocks(write("a.txt", content), notices.append)) == "one\ntwo\rthree\r\nfour\r"
    assert [notice.split(": ")[1] for notice in notices] == [
        "the byte-order mark at the start was removed.",
        "lines end in CRLF; the CR was removed.",
    ]


@pytest.mark.parametrize(("block", "expected"), [("ab", 0), ("aé", 0), ("日", 0), ("🙂", 0)])
def test_bytes_of_a_character_that_is_cut_are_counted(block, expected):
    whole = block.encode()
    assert incomplete_bytes(whole) == expected
    last = len(block[-1].encode())
    assert [incomplete_bytes(whole[:-cut]) for cut in range(1, last)] == [last - cut for cut in range(1, last)]


@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe", "wordpiece"])
def test_chunks_are_cut_into_the_tokens_of_the_whole_text(kind, monkeypatch):
    monkeypatch.setattr(running_text, "CHUNK_CHARACTERS", 80)
    text = random_text(2, 2000)
    parts = list(text_chunks([text]))
    tokenizer = Tokenizer.train(parts, recipe.TokenizerConfig(kind=kind, size=400))
    tokens = tokenizer.encode(parts[0]) + [
        token for part in parts[1:] for token in tokenizer.without_prefix_space.encode(part)
    ]
    assert tokens == tokenizer.encode(text)
    assert tokenizer.decode(tokens) == unicodedata.normalize("NFC", text)


def test_chunks_do_not_depend_on_the_blocks_that_the_text_comes_in():
    text = random_text(3, 5000)
    blocks = [text[first : first + 997] for first in range(0, len(text), 997)]
    assert list(text_chunks(blocks)) == list(text_chunks([text]))
    assert "".join(text_chunks(blocks)) == text
    assert max(map(len, text_chunks(blocks))) <= CHUNK_CHARACTERS + running_text.LOOKAHEAD


@pytest.mark.parametrize("letters", ["A", "日本", "한", "e\u0301\u0323"])
def test_an_endless_line_is_cut_where_letters_and_accents_stay_together(letters):
    text = letters * (20 * CHUNK_CHARACTERS // len(letters))
    parts = list(text_chunks([text]))
    assert "".join(parts) == text and len(parts) >= 20
    normal = "".join(unicodedata.normalize("NFC", part) for part in parts)
    assert normal == unicodedata.normalize("NFC", text)


def test_an_endless_line_of_a_file_is_read_in_little_memory(write):
    """One line of 5 MB, in a program that may hold no more than a small part of it at once."""
    import tracemalloc

    file = write("endless.txt", b"no line ends here " * 300_000)
    tracemalloc.start()
    count = RunningText.from_file(file).count_pairs()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == pytest.approx(5_400_000 / CHUNK_CHARACTERS, rel=0.02)
    assert peak < 5_000_000 + 4 * running_text.BLOCK_BYTES


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b" \n\n \n", "only white space"),
        (bytes(range(256)) * 8, "not text; looks like a binary file"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "is a PNG image; expected a text file"),
        ("gr\xfc\xdfe aus K\xf6ln\n".encode("cp1252") * 9, "line 1, byte 2: not UTF-8; looks like Windows-1252"),
    ],
)
def test_what_is_no_text_is_refused_with_the_reason(content, words, write):
    with pytest.raises(UserError, match=words):
        RunningText.from_file(write("a.txt", content)).count_pairs()


def test_a_character_cut_off_at_the_end_of_the_file_is_refused_with_its_line(write):
    with pytest.raises(UserError, match="line 10, byte 45"):
        RunningText.from_file(write("a.txt", ("text\n" * 9 + "é").encode()[:-1])).count_pairs()
