"""Texts are split into sentences and joined again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.server.details import merge_details
from dragoman.server.languages import guess_languages, language_name
from dragoman.server.libretranslate import split_html
from dragoman.text.sentences import split_sentences

TEXTS = st.text(st.one_of(st.sampled_from('a. \n\r\t!?。“"<>&;'), st.characters(codec="utf-8")))


@given(TEXTS, st.booleans())
def test_sentences_and_gaps_make_up_the_text(text, split):
    layout = split_sentences(text, lines_only=not split)
    taken = "".join(part for pair in zip(layout.gaps, (*layout.sentences, ""), strict=True) for part in pair)
    assert taken == text
    assert all(sentence == sentence.strip() != "" for sentence in layout.sentences)


@given(TEXTS)
def test_line_breaks_are_kept_whatever_the_translations_are(text):
    layout = split_sentences(text)
    written = layout.fill(["Übersetzung." for _ in layout.sentences])
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
    assert list(split_sentences(text).sentences) == sentences


def test_the_target_language_decides_about_spaces():
    assert split_sentences("One. Two.").fill(["他走了。", "她来了。"]) == "他走了。她来了。"
    assert split_sentences("他走了。她来了。").fill(["He left.", "She came."]) == "He left. She came."
    assert split_sentences("One.\n  Two.").fill(["他。", "她。"]) == "他。\n  她。"


def test_tags_are_kept_and_translations_are_escaped():
    page = split_html('<p class="a.b">One &amp; two. Three!</p><!-- One. --><pre>x. Y</pre> a < b')
    assert list(page.sentences) == ["One & two.", "Three!", "a < b"]
    written = page.fill(["<b>", "Drei", "c"])
    assert written == '<p class="a.b">&lt;b&gt; Drei</p><!-- One. --><pre>x. Y</pre> c'


@given(TEXTS)
def test_any_html_keeps_its_tags(text):
    page = split_html(text)
    assert all(tag in page.fill(page.sentences) for tag in page.tags)


@pytest.mark.parametrize(
    ("source", "target", "pairs", "run", "codes"),
    [
        ("data/train.en.gz", "data/train.de.gz", None, "x", ("en", "de")),
        (None, None, "news.cs-en.tsv", "x", ("cs", "en")),
        ("a.txt", "b.txt", None, "multi30k-fr-de", ("fr", "de")),
        ("a.txt", "b.txt", None, "x", ("source", "target")),
    ],
)
def test_languages_are_read_from_file_names(source, target, pairs, run, codes):
    assert guess_languages(source, target, pairs, run) == codes
    assert language_name("pt-BR") == "Portuguese"


def test_details_of_equal_sentences_are_shifted_one_after_the_other():
    """Both sentences were once found at the position of the first."""
    details = {
        "tokens": [{"piece": "Ja", "start": 0, "end": 2}],
        "source_words": [(0, 3)],
        "target_words": [(0, 2)],
        "alignment": [(0, 0)],
    }
    merged = merge_details([("Yes", "Ja", details), ("Yes", "Ja", details)], "Yes Yes", "Ja Ja")
    assert [(token["start"], token["end"]) for token in merged["tokens"]] == [(0, 2), (3, 5)]
    assert merged["source_words"] == [[0, 3], [4, 7]]
    assert merged["alignment"] == [[0, 0], [1, 1]]
