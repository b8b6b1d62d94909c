import pytest

from dragoman.recipe import TokenizerConfig as Settings
from dragoman.text.tokenizer import Tokenizer

TEXT = "Größer als 🙂 é, sagt “sie”…"


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "bytes", "characters"])
def test_the_spans_of_tokens_cover_the_decoded_text_in_order(kind):
    tokenizer = Tokenizer.train([TEXT, "als sie sagt"], Settings(kind=kind, size=300))
    tokens = tokenizer.encode(TEXT)
    spans = tokenizer.spans(tokens)
    text = tokenizer.decode(tokens)
    assert len(spans) == len(tokens)
    assert "".join(text[start:stop] for start, stop in spans) == text == TEXT


def test_tokens_that_nobody_would_have_cut_so_have_their_places_too():
    tokenizer = Tokenizer.train(["sie sagt", "sie", "sagt"], Settings(kind="bpe", size=300))
    cut = [tokenizer.spellings.index(letter) for letter in ("s", "i", "e")]
    assert tokenizer.spans(cut) == [(0, 1), (1, 2), (2, 3)]
