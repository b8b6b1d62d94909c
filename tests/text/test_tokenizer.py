import gzip
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dragoman import recipe
from dragoman.errors import UserError
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END, PAD, RESERVED_TOKENS, START, UNKNOWN

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
KINDS = ["bpe", "wordpiece", "bytes", "characters", "words"]
LEARNED = ["bpe", "wordpiece", "characters", "words"]  # bytes need no learning
BYTE_LEVEL = ["bpe", "wordpiece", "bytes"]
NASTY = [
    " leading",
    "trailing ",
    "two  spaces",
    " ",
    "   ",
    "\t",
    "tab\tin the middle\t",
    "\u2581 the mark of other tokenizers \u2581",
    "line\u2028separator\u2029and\u0085next",
    "carriage\rreturn\r",
    "NUL \0 and \x01\x1f\x7f",
    "👨\u200d👩\u200d👧 and 🏳️\u200d🌈",
    "\u202eright to left\u202c שלום",
    "\ufeffbyte-order mark",
    "a" + "\u0301" * 1000,
    "e\u0301 n\u0303 \u1100\u1161\u11a8",
    "日本語のテキストは空白なしで書かれる。",
    "\U0010ffff\ufffe\uffff",
    "x" * 5000,
]
TYPED = ["<s>", "</s>", "<pad>", "[UNK]", "[CLS]", "⟨pad⟩", "⟨ pad ⟩", "⟨ start ⟩", "⟨end⟩", "⟨ end ⟩", "<|endoftext|>"]

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@quick
@given(text=st.text())
def test_any_text_comes_back_as_it_was_but_composed(trained, kind, text):
    tokenizer = trained(kind)
    # Python knows an older Unicode than the library; what it calls unassigned may compose there.
    assume(tokenizer.backend.normalizer.normalize_str(text)[1:] == normalize("NFC", text) or not text)
    assert tokenizer.decode(tokenizer.encode(text)) == normalize("NFC", text)


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@pytest.mark.parametrize("text", NASTY)
def test_nasty_text_comes_back_as_it_was(trained, kind, text):
    tokenizer = trained(kind)
    assert tokenizer.decode(tokenizer.encode(text)) == normalize("NFC", text)


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(texts=st.lists(st.text(), max_size=4))
def test_a_batch_is_encoded_as_its_texts_are_one_by_one(trained, kind, texts):
    tokenizer = trained(kind)
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", [*BYTE_LEVEL, "characters"])
@quick
@given(text=st.text())
def test_the_pieces_cover_the_text_from_end_to_end_without_a_gap(trained, kind, lowercase, text):
    pieces = trained(kind, lowercase=lowercase).pieces(text)
    reached = 0
    for piece in pieces:
        assert 0 <= piece.start <= reached
        assert piece.start <= piece.end
        reached = max(reached, piece.end)
    assert reached == len(text)


@quick
@given(text=st.text(st.characters(codec="ascii")))
def test_in_plain_text_a_piece_is_what_stands_at_its_place(trained, text):
    assume(text.isprintable())
    for piece in trained("bpe").pieces(text):
        assert piece.text == text[piece.start : piece.end]


@quick
@given(text=st.text(st.characters(exclude_categories=["Cs", "Mn", "Mc", "Lo"])))
def test_the_pieces_of_words_are_the_words(trained, text):
    assume(normalize("NFC", text) == text)
    pieces = trained("words").pieces(text)
    assert [text[piece.start : piece.end] for piece in pieces] == [word for word in text.split(" ") if word]


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_carry_the_ids_of_encode(trained, kind):
    tokenizer = trained(kind)
    for text in NASTY:
        assert [piece.token for piece in tokenizer.pieces(text)] == tokenizer.encode(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TYPED)
def test_the_name_of_a_reserved_token_typed_by_a_user_stays_text(trained, kind, name):
    tokens = trained(kind).encode(f"{name} a {name}{name}")
    assert not {PAD, START, END} & set(tokens)


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@pytest.mark.parametrize("name", [*TYPED, "⁇"])
def test_no_text_is_unknown_to_bytes(trained, kind, name):
    tokens = trained(kind).encode(name)
    assert min(tokens) >= RESERVED_TOKENS
    assert trained(kind).decode(tokens) == name


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_what_was_never_seen_is_unknown_and_shows_as_a_double_question_mark(trained, kind):
    tokenizer = trained(kind)
    assert tokenizer.encode("ж") == [UNKNOWN]
    assert tokenizer.decode([UNKNOWN]) == "⁇"
    assert tokenizer.pieces("ж")[0].text == "ж"


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_has_no_pieces(trained, kind):
    tokenizer = trained(kind)
    assert tokenizer.encode("") == []
    assert tokenizer.pieces("") == []
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_reserved_ids_do_not_show_in_text(trained, kind):
    tokenizer = trained(kind)
    tokens = tokenizer.encode("snow")
    assert tokenizer.decode([START, *tokens, END, PAD, PAD]) == tokenizer.decode(tokens)


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@quick
@given(data=st.data())
def test_any_ids_that_a_model_may_say_have_a_text(trained, kind, data):
    tokenizer = trained(kind)
    tokens = data.draw(st.lists(st.integers(0, len(tokenizer) - 1)))
    tokenizer.decode(tokens).encode()
    assert all(spelling.isprintable() for spelling in tokenizer.spell(tokens))


def test_a_lone_surrogate_is_read_as_the_replacement_character(trained):
    tokenizer = trained("bpe")
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"
    assert tokenizer.pieces("a\ud800b")[-1].end == 3


def test_the_first_word_of_a_line_is_the_same_piece_as_elsewhere(trained):
    tokenizer = trained("bpe")
    assert tokenizer.encode("snow snow") == tokenizer.encode("snow") * 2


def test_the_pieces_of_a_word_are_readable(trained):
    pieces = trained("bpe").pieces("snow e\u0301")
    assert "".join(piece.text for piece in pieces) == "snow ⟨C3⟩⟨A9⟩"
    assert [(piece.start, piece.end) for piece in pieces[-2:]] in ([(4, 6), (5, 7)], [(5, 6), (5, 7)])


def test_spelling_names_the_reserved_ids(trained):
    assert trained("bpe").spell(range(RESERVED_TOKENS)) == ["⟨pad⟩", "⁇", "⟨start⟩", "⟨end⟩"]


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case_is_folded_on_request_only(trained, kind):
    assert trained(kind).encode("a RUNS") != trained(kind).encode("A runs")
    assert trained(kind, lowercase=True).encode("a RUNS") == trained(kind, lowercase=True).encode("A runs")


def test_words_are_joined_by_single_spaces(trained):
    tokenizer = trained("words")
    assert tokenizer.decode(tokenizer.encode("  A dog   runs ")) == "A dog runs"


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_the_most_frequent_come_first_and_ties_in_the_order_of_their_code_points(kind):
    config = recipe.TokenizerConfig.model_validate({"kind": kind, "size": 8})
    tokenizer = Tokenizer.train(["c c c e b d a".replace(" ", "" if kind == "characters" else " ")], config)
    assert tokenizer.spell(range(RESERVED_TOKENS, len(tokenizer))) == ["c", "a", "b", "d"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_is_never_larger_than_asked_for(kind):
    lines = [f"word{number} {chr(0x4E00 + number)}" for number in range(1000)] * 2
    assert len(Tokenizer.train(lines, recipe.TokenizerConfig.model_validate({"kind": kind, "size": 300}))) <= 300


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_vocabulary_too_small_for_all_bytes_is_refused(kind):
    with pytest.raises(UserError, match="needs at least 260"):
        recipe.Recipe.from_table({"tokenizer": {"kind": kind, "size": 259}})


def test_a_small_text_gives_a_vocabulary_as_large_as_it_can():
    assert 260 < len(Tokenizer.train(["the the the"], recipe.TokenizerConfig())) < 300


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [[], [""], ["", "  ", "\t"]])
def test_no_text_teaches_no_vocabulary(kind, lines):
    with pytest.raises(UserError, match="The training text is empty"):
        Tokenizer.train(lines, recipe.TokenizerConfig.model_validate({"kind": kind}))


@pytest.mark.parametrize("kind", LEARNED)
def test_an_error_while_reading_the_text_is_not_swallowed(kind):
    def lines():
        yield "some text"
        raise UserError("train.en: line 2: not UTF-8")

    with pytest.raises(UserError, match="line 2"):
        Tokenizer.train(lines(), recipe.TokenizerConfig.model_validate({"kind": kind}))


@pytest.mark.parametrize("kind", LEARNED)
def test_progress_hears_of_every_line_in_the_end(kind):
    heard: list[int] = []
    Tokenizer.train(["some text"] * 2500, recipe.TokenizerConfig.model_validate({"kind": kind}), heard.append)
    assert heard == [1000, 2000, 2500]


def test_wordpiece_matches_a_long_word_in_short_parts(trained):
    """The time of greedy matching is quadratic in the length of a word, so words are split after 64 bytes."""
    parts = trained("wordpiece").backend.pre_tokenizer.pre_tokenize_str("ab" * 10_000)
    assert max(len(part) for part, _ in parts) <= 64


@pytest.mark.parametrize("kind", BYTE_LEVEL)
def test_a_long_word_comes_back_as_it_was(trained, kind):
    assert trained(kind).decode(trained(kind).encode("ab" * 100_000)) == "ab" * 100_000


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason=f"no data sets in {SHARED}")
@pytest.mark.parametrize("kind", BYTE_LEVEL)
def test_every_line_of_multi30k_comes_back(kind):
    files = [
        SHARED / "multi30k" / f"{part}.{language}.gz"
        for part in ("train", "val")
        for language in ("en", "de", "fr", "cs")
    ]
    texts = {file: gzip.decompress(file.read_bytes()).decode().split("\n") for file in files}
    tokenizer = Tokenizer.train(
        texts[files[0]][:3000] + texts[files[1]][:3000], recipe.TokenizerConfig.model_validate({"kind": kind})
    )
    for lines in texts.values():
        some = lines if kind == "bpe" else lines[:2000]
        assert [tokenizer.decode(tokens) for tokens in tokenizer.encode_batch(some)] == [
            normalize("NFC", x) for x in some
        ]
