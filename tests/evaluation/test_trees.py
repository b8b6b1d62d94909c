"""Bracketed trees are read, written and read again; what is no tree is refused with its line and a remedy."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.errors import UserError
from dragoman.evaluation.trees import (
    Tree,
    indent_tree,
    read_tree,
    read_trees,
    treebank_sentences,
    well_formed_treebank_sentences,
)

DOG = "(S (NP-SBJ (DT the) (NN dog)) (VP (VBZ runs)) (. .))"
DEEP = 20_000

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\v\f\r()"), min_size=1, max_size=4)
leaves = st.builds(Tree, names, word=names)
trees = st.recursive(
    leaves,
    lambda some: st.builds(Tree, names | st.just(""), st.lists(some, min_size=1, max_size=3).map(tuple)),
    max_leaves=12,
)


def read(text: str) -> list[Tree]:
    return list(read_trees(text.split("\n"), "a.mrg"))


def test_a_tree_has_labels_brackets_and_words():
    tree = read_tree(DOG)
    assert tree.label == "S"
    assert [child.label for child in tree.children] == ["NP-SBJ", "VP", "."]
    assert tree.children[0].children == (Tree("DT", word="the"), Tree("NN", word="dog"))
    assert tree.words == ["the", "dog", "runs", "."]


@pytest.mark.parametrize(
    "text",
    [
        DOG,
        f"( {DOG})",
        f"(TOP {DOG})",
        f"(ROOT {DOG})",
        "(NP (-LRB- -LRB-) (NN a\\/b) (-RRB- -RRB-) (-NONE- *T*-1) (`` ``) ('' '') (: ;))",
        "(NP (NN 東京) (NN no\u00a0break) (NN line\u2028separator) (NN next\u0085line))",
    ],
)
def test_what_is_read_is_written_as_it_was(text):
    assert str(read_tree(text)) == text


def test_several_trees_stand_on_a_line_or_one_stands_over_several():
    assert read(f"{DOG} {DOG}\n\n  (S\n  (NP (DT\tthe)\n (NN dog) )(VP\r\n(VBZ runs)))") == [
        read_tree(DOG),
        read_tree(DOG),
        read_tree("(S (NP (DT the) (NN dog)) (VP (VBZ runs)))"),
    ]


def test_an_indented_tree_has_a_bracket_below_the_one_it_is_in_and_words_side_by_side():
    assert indent_tree(read_tree(f"( {DOG})")).split("\n") == [
        "(",
        "  (S",
        "    (NP-SBJ (DT the) (NN dog))",
        "    (VP (VBZ runs))",
        "    (. .)))",
    ]
    assert indent_tree(read_tree("(NN dog)")) == "(NN dog)"


@settings(deadline=None, max_examples=30)
@given(trees)
def test_any_tree_is_read_back_from_one_line_and_from_several(tree):
    assert read_tree(str(tree)) == tree
    assert read(indent_tree(tree)) == [tree]


@settings(deadline=None, max_examples=30)
@given(st.lists(trees, min_size=1, max_size=4))
def test_trees_of_a_file_stay_apart_and_in_order(several):
    assert read("\n".join(map(str, several))) == several
    assert [text for _, text in treebank_sentences("\n".join(map(indent_tree, several)).split("\n"))] == [
        *map(str, several)
    ]


@settings(deadline=None, max_examples=30)
@given(st.text("() ab\n", max_size=40))
def test_whatever_is_read_is_trees_or_a_sentence_to_the_user(text):
    """Nothing else is raised, and what was read can be written and read again."""
    with suppress(UserError):
        found = read(text)
        assert read("\n".join(map(str, found))) == found


def test_equal_trees_are_one_key_and_different_ones_are_not():
    assert read_tree(DOG) == read_tree(indent_tree(read_tree(DOG)))
    assert len({read_tree(DOG), read_tree(DOG), read_tree("(NN dog)")}) == 2
    assert read_tree("(NN dog)") != "(NN dog)"
    assert repr(read_tree("(NN dog)")) == "<Tree (NN dog)>"


def test_a_tree_may_be_as_deep_as_it_likes():
    text = "(S " * DEEP + "(NN dog)" + ")" * DEEP
    tree = read_tree(text)
    assert str(tree) == text
    assert tree == read_tree(text)
    assert hash(tree) == hash(read_tree(text))
    assert tree.words == ["dog"]
    assert indent_tree(read_tree("(S " * 500 + "(NN dog)" + ")" * 500)).count("\n") == 499


REFUSED = {
    "not closed": ("(NN a)\n(S (NN b)\n", 'line 2: the tree that begins here is not closed; a ")" is missing'),
    "twice not closed": ("(S (NP (NN b)", 'line 1: the tree that begins here is not closed; 2 ")" are missing'),
    "only opened": ("\n\n(", "line 3: the tree that begins here is not closed"),
    "closed too often": ("(NN a)\n(S (NN b)))", 'line 2: unmatched ")". Remove it, or add the missing "('),
    "empty": ("(NN a)\n()", 'line 2: the bracket "()" is empty. Remove it, or write a label and a word'),
    "empty with a label": ("(S\n(NP))", 'line 2: the bracket "(NP)" is empty.'),
    "two words": ("(NN New York)", 'line 1: the bracket "(NN New York)" contains 2 words, expected one.'),
    "text outside": ("(NN a)\ndog (NN b)", 'line 2: "dog" is outside of all brackets. Give it its own bracket'),
    "a word before brackets": ("(NP the (NN dog))", 'line 1: "the" is next to brackets in (NP …).'),
    "a word after brackets": ("(NP (DT the)\ndog)", 'line 2: "dog" is next to brackets in (NP …).'),
    "a long word": (f"{'x' * 99}", f'line 1: "{"x" * 40}…" is outside'),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_tree_is_refused_with_its_file_and_line(text, words):
    with pytest.raises(UserError) as caught:
        read(text)
    assert str(caught.value).startswith(f"a.mrg: {words}")


@pytest.mark.parametrize(("text", "count"), [("", 0), (" ", 0), ("(NN a) (NN b)", 2)])
def test_where_one_tree_is_expected_there_is_one(text, count):
    with pytest.raises(UserError, match=f"Expected one tree, found {count}"):
        read_tree(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("NN", (), "New York"), '"New York" contains a space; labels and words of a tree must not'),
        (("N N", (), "dog"), '"N N" contains a space'),
        (("-LRB-", (), "("), '"(" contains a bracket; write -LRB- for "("'),
        (("NP", ()), 'The bracket "NP" must contain either one word or brackets'),
        (("NP", (Tree("NN", word="dog"),), "dog"), 'The bracket "NP" must contain either one word or brackets'),
        (("", (), "dog"), 'The word "dog" has no label; expected, for example, (NN dog).'),
    ],
)
def test_a_tree_that_could_not_be_read_back_cannot_be_made(arguments, words):
    with pytest.raises(UserError) as caught:
        Tree(*arguments)
    assert words in str(caught.value)


def test_a_line_is_a_sentence_even_if_it_has_no_tree_or_two():
    lines = ["(NN a)", "", "(NN b) (NN c)"]
    assert treebank_sentences(lines) == [(1, "(NN a)"), (2, ""), (3, "(NN b) (NN c)")]


def test_a_tree_over_several_lines_is_a_sentence_too():
    lines = ["( (S", "    (NN a)", "    (NN b)))", "", "(NN c)"]
    assert treebank_sentences(lines) == [(1, "( (S (NN a) (NN b)))"), (5, "(NN c)")]


def test_a_malformed_line_stays_a_sentence_of_its_own():
    """The first lacks the bracket that the second has too many; two sentences were expected, so it is not one tree."""
    lines = ["(S (NN a)", "(NN b))"]
    assert treebank_sentences(lines) == [(1, "(S (NN a) (NN b))")]
    assert treebank_sentences(lines, expected=2) == [(1, "(S (NN a)"), (2, "(NN b))")]
    assert treebank_sentences(["(NN a)", "(NN", "(NN c)"]) == [(1, "(NN a)"), (2, "(NN"), (3, "(NN c)")]


@pytest.mark.parametrize(
    ("text", "line"),
    [("(NN a)\n(NN b\n(NN c)\n(NN d)", 2), ("(S\n (NN a))\n(S\n (NP\n (NN b))\n(S\n (NN c))", 3)],
    ids=["one a line", "over several lines"],
)
def test_what_is_malformed_is_found_in_files_of_either_kind(text, line):
    with pytest.raises(UserError, match=f"a.mrg: line {line}: the tree that begins here is not closed"):
        well_formed_treebank_sentences(text.split("\n"), "a.mrg")
