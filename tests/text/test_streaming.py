"""Text as it is written: together it is what the tokenizer decodes, and no part of it is half a character."""

import random

import pytest

from dragoman.text.streaming import StreamingDecoder, text_until_stop

TEXTS = ["A dog runs through the snow.", "läuft 🙂 日本語\n\n  zwei", " begins with a space", "", "⁇ what"]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "bytes", "characters", "words"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_pieces_are_together_what_the_tokenizer_decodes(trained, kind, text):
    tokenizer = trained(kind)
    tokens = tokenizer.encode(text)
    writing = StreamingDecoder(tokenizer)
    assert "".join([*map(writing.add, tokens), writing.end()]) == tokenizer.decode(tokens)


def test_a_text_that_is_gone_on_with_keeps_the_space_before_its_first_word(trained):
    tokenizer = trained("bpe")
    whole = tokenizer.encode("A dog runs")
    first = len(tokenizer.encode("A dog"))
    writing = StreamingDecoder(tokenizer, is_continuation=True)
    assert "".join(map(writing.add, whole[first:])) == " runs"


def test_a_character_is_shown_when_its_last_byte_is_there(trained):
    tokenizer = trained("bytes")
    writing = StreamingDecoder(tokenizer)
    assert [writing.add(token) for token in tokenizer.encode("é🙂")] == ["", "", "é", "", "", "", "🙂"]
    assert writing.add(tokenizer.encode("🙂")[1]) == ""
    assert writing.end() == "\ufffd"


@pytest.mark.parametrize("seed", range(20))
def test_text_up_to_a_stop_does_not_depend_on_the_pieces_it_comes_in(seed):
    chance = random.Random(seed)
    text = "".join(chance.choice("ab\n") for _ in range(200))
    stop = "".join(chance.choice("ab\n") for _ in range(chance.randint(1, 7)))
    pieces, rest = [], text
    while rest:
        size = chance.randint(1, 5)
        pieces, rest = [*pieces, rest[:size]], rest[size:]
    shown = list(text_until_stop(stop, pieces))
    assert "".join(shown) == text.split(stop)[0]
    assert not any(stop in "".join(shown[:n]) for n in range(len(shown)))


def test_without_a_stop_everything_is_shown_at_once():
    assert list(text_until_stop("", ["a", "b"])) == ["a", "b", ""]
