"""A drawn tree: words on one line, labels above what they span, and all text there as text."""

import re
import xml.etree.ElementTree as ET

import pytest

from dragoman.evaluation.trees import read_tree
from dragoman.viewer.tree_drawing import place_nodes, text_width, tree_page, tree_svg

DOG = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ runs) (ADVP (RB away))) (. .)))"
ODD = "(TOP (NP (JJ <b>&amp;) (NN 漢字) (X 👩‍👩‍👧) (Y e\u0301) (Z \u0007)))"
SVG = "{http://www.w3.org/2000/svg}"


def texts(drawn, kind):
    """Return the texts of a class, each with where it stands."""
    found = ET.fromstring(drawn).iter(f"{SVG}text")
    return [(one.text, float(one.get("x")), float(one.get("y"))) for one in found if one.get("class") == kind]


def test_words_stand_on_one_line_in_their_order_with_the_tags_above_them():
    words, tags = (
        sorted(texts(tree_svg(read_tree(DOG)), "word"), key=lambda one: one[1]),
        texts(tree_svg(read_tree(DOG)), "tag"),
    )
    assert [word for word, *_ in words] == ["The", "dog", "runs", "away", "."]
    assert len({y for *_, y in words}) == 1
    assert {(x, y + 22) for _, x, y in tags} == {(x, y) for _, x, y in words}


def test_every_label_is_there_and_joined_to_what_it_spans():
    drawn = tree_svg(read_tree(DOG))
    assert sorted(label for label, *_ in texts(drawn, "phrase")) == ["ADVP", "NP", "S", "TOP", "VP"]
    assert drawn.count("<polyline ") == 9  # to each bracket but the outermost


@pytest.mark.parametrize("tree", [DOG, ODD, "(A (LONGESTLABEL (B x)) (LONGESTLABEL (B y)))", "(NN dog)"])
def test_no_text_touches_another_on_its_line(tree):
    drawn = tree_svg(read_tree(tree))
    placed_texts = [one for kind in ("word", "tag", "phrase") for one in texts(drawn, kind)]
    for text, x, y in placed_texts:
        for other, at, level in placed_texts:
            apart = (text_width(text) + text_width(other)) / 2
            assert (x, y) == (at, level) or y != level or abs(x - at) >= apart


def test_a_drawing_says_what_it_is():
    root = ET.fromstring(tree_svg(read_tree(DOG)))
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.find(f"{SVG}title").text == "Parse tree: The dog runs away ."
    assert root.find(f"{SVG}desc").text == DOG


def test_markup_in_words_stays_text_and_what_xml_forbids_is_replaced():
    words = [word for word, *_ in texts(tree_svg(read_tree(ODD)), "word")]
    assert sorted(words) == sorted(["<b>&amp;", "漢字", "👩‍👩‍👧", "e\u0301", "\ufffd"])
    assert "<b>" not in tree_page([read_tree(ODD)])


def test_a_page_has_every_tree_and_allows_nothing_from_outside():
    written = tree_page([read_tree(DOG), read_tree("(TOP (NN dog))")], "Two <trees>")
    assert written.count("<svg ") == 2
    assert "<title>Two &lt;trees&gt;</title>" in written
    assert "default-src &#x27;none&#x27;" in written or "default-src 'none'" in written
    assert not re.search(r"(src|href)=", written)


def test_a_tree_may_be_as_deep_as_it_likes():
    deep = read_tree("(A " * 3000 + "(NN dog)" + ")" * 3000)
    assert len(place_nodes(deep)) == 3001
    assert tree_svg(deep).count("<text ") == 3002
