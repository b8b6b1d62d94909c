"""Texts are split into sentences and joined again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.recipe import DataConfig
from dragoman.server.details import merge_details
from dragoman.server.languages import guess_languages
from dragoman.server.libretranslate import split_html
from dragoman.text.languages import language_name

TEXTS = st.text(st.one_of(st.sampled_from('a. \n\r\t!?。“"<>&;'), st.characters(codec="utf-8")))


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
    ("data", "run", "codes"),
    [
        ({"source": "data/train.en.gz", "target": "data/train.de.gz"}, "x", ("en", "de")),
        ({"pairs": "news.cs-en.tsv"}, "x", ("cs", "en")),
        ({"pairs": "news.cs-en.csv", "languages": ("en", "cs")}, "x", ("en", "cs")),
        ({"corpora": [{"file": "a.tmx", "languages": ["en", "de"]}, {"file": "b.cs-en.tsv"}]}, "x", ("en", "de")),
        ({"source": "a.txt", "target": "b.txt"}, "multi30k-fr-de", ("fr", "de")),
        ({"source": "a.txt", "target": "b.txt"}, "x", ("source", "target")),
    ],
)
def test_languages_are_read_from_the_recipe_or_from_file_names(data, run, codes):
    assert guess_languages(DataConfig.model_validate(data), run) == codes
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
    assert merged["source_words"] == [(0, 3), (4, 7)]
    assert merged["alignment"] == [(0, 0), (1, 1)]
