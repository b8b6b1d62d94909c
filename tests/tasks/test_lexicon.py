import gzip

import pytest

from dragoman.errors import UserError
from dragoman.recipe import CorpusConfig, DataConfig
from dragoman.tasks.lexicon import Lexicon, join_letters, open_lexicons, spell_word
from dragoman.tasks.word_tasks import InflectionTask, PronunciationTask

WORDS, FORMS = PronunciationTask.layout, InflectionTask.layout


@pytest.fixture
def lexicon(tmp_path):
    """Write lines to a file and return the lexicon in it."""

    def made(*lines, layout=WORDS, name="words.tsv", label=""):
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        return Lexicon(((label, tmp_path / name),), layout)

    return made


def test_a_word_is_read_in_letters_and_its_pronunciation_in_phones(lexicon):
    assert list(lexicon("chat\tʃ a", "eau\to").pairs()) == [("c h a t", "ʃ a"), ("e a u", "o")]


def test_several_lines_of_a_word_are_all_kept(lexicon):
    words = lexicon("read\tR IY D", "read\tR EH D")
    assert list(words.pairs()) == [("r e a d", "R IY D"), ("r e a d", "R EH D")]
    assert words.count_pairs() == 2


def test_the_same_line_twice_counts_once_and_is_told(lexicon):
    words = lexicon("read\tR IY D", "the\tDH AH", "read\tR  IY D ", "read\tR EH D", "the\tDH AH")
    assert words.count_pairs() == 3
    assert words.notices() == (f"{words}: 2 duplicate lines ignored.",)
    assert lexicon("the\tDH AH", "the\tDH AH").notices()[0].endswith(": 1 duplicate line ignored.")


def test_cmudict_as_it_is_published_is_understood(lexicon):
    words = lexicon(
        ";;; # CMUdict",
        "A  AH0",
        "A(2)  EY1",
        "(PAREN  P ER0 EH1 N",
        "AALBORG(1)  AO1 L B AO0 R G",
        "d'or D AO1 R # foreign",
    )
    assert list(words.pairs()) == [
        ("A", "AH0"), ("A", "EY1"), ("( P A R E N", "P ER0 EH1 N"), ("A A L B O R G", "AO1 L B AO0 R G"),
        ("d ' o r", "D AO1 R"),
    ]  # fmt: skip


def test_a_packed_file_is_read_like_a_plain_one(tmp_path, lexicon):
    with gzip.open(tmp_path / "words.gz", "wt") as file:
        file.write("eau\to\n")
    packed = Lexicon((("", tmp_path / "words.gz"),), WORDS)
    assert list(packed.pairs()) == [("e a u", "o")]
    assert packed.fingerprint() == lexicon("eau\to").fingerprint()


def test_lemma_form_and_tags_become_a_question_and_a_form(lexicon):
    table = lexicon("gehen\tging\tV;PST;3;SG", "teilen\tteil aus\tV; IMP", layout=FORMS)
    assert list(table.pairs()) == [
        ("V; PST; 3; SG; g e h e n", "g i n g"), ("V; IMP; t e i l e n", "t e i l ␣ a u s")
    ]  # fmt: skip


def corpus(label, path):
    return CorpusConfig(label=label, file=str(path))


def test_labels_stand_before_the_words_of_their_files(tmp_path):
    for name, line in (("fre", "eau\to"), ("ger", "Au\taʊ")):
        (tmp_path / name).write_text(line + "\n")
    data = DataConfig(
        corpora=tuple(corpus(name, tmp_path / name) for name in ("fre", "ger")),
        valid_corpora=(corpus("ger", tmp_path / "ger"),),
    )
    train, valid = open_lexicons(data, WORDS)
    assert list(train.pairs()) == [("<fre> e a u", "o"), ("<ger> A u", "aʊ")]
    assert list(valid.pairs()) == [("<ger> A u", "aʊ")]


@pytest.mark.parametrize("word", ["eau", "a b", "ba\u0303", "don't", "한국", "\u00a0x", "😀"])
def test_spelling_a_word_and_joining_its_letters_gives_the_word_in_its_usual_form(word):
    import unicodedata

    assert join_letters(spell_word(word)) == unicodedata.normalize("NFC", word).replace("\u00a0", " ")


def test_an_accent_is_a_letter_of_its_own_but_part_of_a_phone_however_the_file_writes_it(lexicon):
    composed, apart = lexicon("\u00e9\t\u00e3 b"), lexicon("e\u0301\ta\u0303 b", name="apart")
    assert list(composed.pairs()) == list(apart.pairs()) == [("e \u0301", "\u00e3 b")]


def test_empty_lines_and_carriage_returns_are_no_entries(lexicon):
    words = lexicon("eau\to\r", "", "  ", "chat\tʃ a\r")
    assert list(words.pairs()) == [("e a u", "o"), ("c h a t", "ʃ a")]
    assert "CRLF" in words.notices()[0]


REFUSED = {
    "no tab": (WORDS, ["eau\to", "chat ʃ a"], r"words.tsv: line 2 has no tab between word and phones: 'chat ʃ a'"),
    "nothing but a word": (WORDS, ["eau"], "line 1 has no tab between word and phones: 'eau'"),
    "too many tabs": (
        WORDS,
        ["eau\to\tx"],
        r"line 1 has 3 columns; expected 2 columns separated by tabs \(word, phones\)",
    ),
    "no word": (WORDS, ["eau\to", "\to"], "line 2 has an empty column word"),
    "no pronunciation": (WORDS, ["eau\t "], "line 1 has an empty column phones"),
    "no phones in CMUdict's manner": (WORDS, ["A  AH0", "B"], "line 2 has no tab"),
    "no tags": (FORMS, ["gehen\tging"], "line 1 has 2 columns; expected 3 columns .*lemma, form, tags"),
    "empty tags": (FORMS, ["gehen\tging\t"], "line 1 has an empty column tags"),
    "a table without tabs": (FORMS, ["gehen ging V;PST"], "line 1 has no tab between lemma and form"),
    "comments only": (WORDS, [";;; nothing"], "no entries; expected word, phones on each line"),
    "an empty file": (WORDS, [], "the file is empty"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_entry_is_refused_with_file_and_line(case, lexicon):
    layout, lines, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        lexicon(*lines, layout=layout).count_pairs()


def test_a_long_line_is_not_repeated_whole(lexicon):
    with pytest.raises(UserError) as refused:
        lexicon("x" * 5000).count_pairs()
    assert len(str(refused.value)) < 300


UNNAMED = {
    "nothing": ({}, "has no training lexicon"),
    "an unknown label": (
        {"corpora": (corpus("fre", "a.tsv"),), "valid_corpora": (corpus("ger", "b.tsv"),)},
        'b.tsv: the validation label "ger" is not in the training data; expected one of fre',
    ),
    "no label to validate with": (
        {"corpora": (corpus("fre", "a.tsv"),), "valid_file": "b.tsv"},
        "b.tsv: the validation file has no label, but the training files have labels",
    ),
    "a label only to validate with": (
        {"file": "a.tsv", "valid_corpora": (corpus("ger", "b.tsv"),)},
        'b.tsv: the validation file has the label "ger", but the training file has no label',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNNAMED)
def test_files_that_a_recipe_does_not_name_well_are_refused(case):
    settings, words = UNNAMED[case]
    with pytest.raises(UserError, match=words):
        open_lexicons(DataConfig(**settings), WORDS)
