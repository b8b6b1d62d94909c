"""Texts are taken apart and put together again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.server.languages import guessed, name_of
from dragoman.server.markup import taken_apart
from dragoman.server.texts import laid_out

TEXTS = st.text(st.one_of(st.sampled_from('a. \n\r\t!?。“"<>&;'), st.characters(codec="utf-8")))


@given(TEXTS, st.booleans())
def test_nothing_is_lost_between_the_sentences(text, split):
    layout = laid_out(text, split=split)
    taken = "".join(part for pair in zip(layout.gaps, (*layout.sentences, ""), strict=True) for part in pair)
    assert taken == text
    assert all(sentence == sentence.strip() != "" for sentence in layout.sentences)


@given(TEXTS)
def test_line_breaks_stay_whatever_the_translations_are(text):
    layout = laid_out(text)
    written = layout.filled(["Übersetzung." for _ in layout.sentences])
    assert written.count("\n") == text.count("\n")
    assert [not line.strip() for line in written.split("\n")] == [not line.strip() for line in text.split("\n")]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Hello there. It is me.", ["Hello there.", "It is me."]),
        ("Mr. Smith met J. R. Tolkien on 3. May. He left.", ["Mr. Smith met J. R. Tolkien on 3. May.", "He left."]),
        ("z. B. Das hier, d.h. Alles.", ["z. B. Das hier, d.h. Alles."]),
        ('"Stop!" "Why?" He ran.', ['"Stop!"', '"Why?"', "He ran."]),
        ("他走了。她来了。", ["他走了。", "她来了。"]),
        ("One line\nanother", ["One line", "another"]),
        ("Version 2.5 is out... and so on.", ["Version 2.5 is out... and so on."]),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text, sentences):
    assert list(laid_out(text).sentences) == sentences


def test_spaces_follow_the_language_that_is_written():
    assert laid_out("One. Two.").filled(["他走了。", "她来了。"]) == "他走了。她来了。"
    assert laid_out("他走了。她来了。").filled(["He left.", "She came."]) == "He left. She came."
    assert laid_out("One.\n  Two.").filled(["他。", "她。"]) == "他。\n  她。"


def test_tags_stay_and_text_becomes_text():
    page = taken_apart('<p class="a.b">One &amp; two. Three!</p><!-- One. --><pre>x. Y</pre> a < b')
    assert list(page.sentences) == ["One & two.", "Three!", "a < b"]
    written = page.filled(["<b>", "Drei", "c"])
    assert written == '<p class="a.b">&lt;b&gt; Drei</p><!-- One. --><pre>x. Y</pre> c'


@given(TEXTS)
def test_any_html_comes_back_with_its_tags(text):
    page = taken_apart(text)
    assert all(tag in page.filled(page.sentences) for tag in page.tags)


@pytest.mark.parametrize(
    ("source", "target", "pairs", "run", "codes"),
    [
        ("data/train.en.gz", "data/train.de.gz", None, "x", ("en", "de")),
        (None, None, "news.cs-en.tsv", "x", ("cs", "en")),
        ("a.txt", "b.txt", None, "multi30k-fr-de", ("fr", "de")),
        ("a.txt", "b.txt", None, "x", ("source", "target")),
    ],
)
def test_the_names_of_files_tell_the_languages(source, target, pairs, run, codes):
    assert guessed(source, target, pairs, run) == codes
    assert name_of("pt-BR") == "Portuguese"
