"""Treebanks in, words and brackets for the model, and trees out again."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.lines import read_lines
from dragoman.errors import UserError
from dragoman.evaluation.trees import Tree, read_tree
from dragoman.recipe import TokenizerConfig as HowToCut
from dragoman.tasks.parse import ParsingTask, word_start_counts
from dragoman.tasks.treebank import Treebank, attach_words, clean_tree, linearise_tree
from dragoman.text.tokenizer import Tokenizer
from dragoman.tokens import END

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
DOG = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ runs)) (. .)))"

labels = st.text(st.characters(exclude_characters="() \t\n\v\f\r", exclude_categories=["Cs"]), min_size=1, max_size=4)
trees = st.recursive(
    st.builds(lambda label, word: Tree(label, word=word), labels, labels),
    lambda inside: st.builds(Tree, labels | st.just(""), st.lists(inside, min_size=1, max_size=4).map(tuple)),
    max_leaves=12,
).filter(lambda tree: not tree.word)


@pytest.fixture
def treebank(tmp_path):
    """Write a file of trees."""

    def write(*lines):
        path = tmp_path / "trees"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return Treebank(path)

    return write


def test_a_tree_is_written_without_its_words_and_closing_brackets_say_what_they_close():
    assert " ".join(linearise_tree(read_tree(DOG))) == "(TOP (S (NP DT NN )NP (VP VBZ )VP . )S )TOP"


@settings(max_examples=60, deadline=None)
@given(tree=trees)
def test_every_tree_comes_back_from_its_words_and_brackets(tree):
    assert attach_words(tree.words, list(linearise_tree(tree))) == tree


@pytest.mark.parametrize(
    "brackets",
    [
        "(A NN )A",
        "(A NN NN NN )A",
        "(A NN NN )B",
        "(A NN NN",
        "NN NN )A",
        "(A NN )A (A NN )A",
        "(A NN (B )B NN )A",
        "NN NN",
    ],
)
def test_what_is_no_tree_over_two_words_is_none(brackets):
    assert attach_words(["the", "dog"], brackets.split(" ")) is None
    assert ParsingTask().from_model_output("the dog", brackets) == ""


CLEANED = {
    "(TOP (S (NP-SBJ-1 (DT The) (NN dog)) (VP=2 (VBZ runs))))": "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ runs))))",
    "( (S (NP (-NONE- *)) (VP (VB go) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))))": "(TOP (S (VP (VB go))))",
    "(S (-LRB- -LRB-) (PRP$ its))": "(S (-LRB- -LRB-) (PRP$ its))",
    "(NN dog)": "(TOP (NN dog))",
}


@pytest.mark.parametrize(("given", "learned"), CLEANED.items())
def test_trees_are_learned_without_empty_elements_function_tags_and_indices(given, learned):
    assert str(clean_tree(read_tree(given))) == learned


def test_trees_may_go_over_several_lines_or_share_one(treebank):
    bank = treebank("( (S", "   (VB run) ) )", "", "(S (VB go)) (S (VB stop))")
    assert bank.count_pairs() == 3
    assert list(bank.pairs()) == [("run", "(TOP (S VB )S )TOP"), ("go", "(S VB )S"), ("stop", "(S VB )S")]


def test_what_is_left_out_is_said_once(treebank):
    bank = treebank("(S (NP-SBJ (NN dog)))", "(S (NP-SBJ (NN cat)))", "(S (-NONE- *))")
    assert bank.count_pairs() == 2
    (notice,) = bank.notices()
    assert (
        "function tags and indices are removed; for example, (S (NP-SBJ (NN dog))) becomes (S (NP (NN dog)))" in notice
    )
    assert treebank(DOG).notices() == ()


REFUSED = {
    "unbalanced": (
        ["(S (VB go))", "(S (VB go)", "(S (VB go))"],
        "trees: line 2: the tree that begins here is not closed",
    ),
    "too many": (["(S (VB go)))"], 'trees: line 1: unmatched ")".'),
    "empty": (["(S (VB go))", "(S )"], 'trees: line 2: the bracket "(S)" is empty.'),
    "a space in a word": (["(S (VB go on))"], 'trees: line 1: the bracket "(VB go on)" contains 2 words'),
    "a word that cannot be seen": (["(S (VB go))", "(S (VB \u00a0))"], "trees: line 2: a word of"),
    "text": (["The dog runs ."], "is outside of all brackets"),
    "nothing": ([""], "contains no trees; expected brackets like"),
}


@pytest.mark.parametrize(("lines", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_treebank_is_refused_with_file_and_line(treebank, lines, words):
    with pytest.raises(UserError) as refused:
        treebank(*lines).count_pairs()
    assert words in str(refused.value)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.skipif(not (SHARED / "wsj-sample").exists(), reason=f"no WSJ sample in {SHARED}")
@pytest.mark.parametrize("part", ["dev", "train"])
def test_the_original_wsj_sample_comes_out_as_its_clean_files(part):
    folder = SHARED / "wsj-sample"
    original = [str(tree) for _, tree in Treebank(folder / f"{part}.orig.mrg.gz").trees()]
    assert original == list(read_lines(folder / f"{part}.clean.trees.gz"))


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("The  dog\truns .", "The dog runs ."),
        ("f(x) ( ) [", "f-LRB-x-RRB- -LRB- -RRB- ["),
        (" \u00a0 ", ""),
        ("a \u2003 b", "a b"),
        ("x\ud800", "x\ufffd"),
        ("", ""),
    ],
)
def test_words_are_what_stands_between_spaces(typed, read):
    assert ParsingTask().to_model_input(typed) == read
    assert ParsingTask().to_model_input(read) == read


TEXT = ["the dog runs .", "a cat sat on the mat"]
SENTENCES = [
    "the", "the dog", "x y z", "e\u0301 \u0301 é", "漢字 👩\u200d👧 Ġ ⟨", "a\u00a0b \u2003c d\u3000 e", "⁇ ⁇", ". . .",
    "\u200b \ufeff",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "words", "characters", "bytes"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_words_are_counted_exactly_by_the_pieces_of_any_tokenizer(kind, lowercase):
    tokenizer = Tokenizer.train(TEXT, HowToCut(kind=kind, size=300, lowercase=lowercase))
    counts = word_start_counts(tokenizer)
    found = [int(counts[[*tokenizer.encode(text), END]].sum()) for text in SENTENCES]
    assert found == [len(text.split(" ")) for text in SENTENCES]


def test_characters_without_a_space_cannot_count_words():
    with pytest.raises(UserError, match="The source vocabulary has no space"):
        word_start_counts(Tokenizer.train(["dog", "cat"], HowToCut(kind="characters", size=300)))


def test_examples_are_the_words_of_a_treebank_and_its_trees(treebank):
    bank = treebank(DOG, "( (S (NP-SBJ (-NONE- *)) (VP (VB go))))")
    examples = ParsingTask().read_examples(None, str(bank), print)
    assert [example.source for example in examples] == ["The dog runs .", "go"]
    assert examples[1].references == ("(TOP (S (VP (VB go))))",)
    scored = ParsingTask().score(examples, [example.references[0] for example in examples])
    assert [(one.name, one.number) for one in scored][:3] == [
        ("F1", "100.00"),
        ("precision", "100.00"),
        ("recall", "100.00"),
    ]


def test_a_text_must_have_the_words_of_its_trees(treebank, tmp_path):
    source = tmp_path / "words"
    source.write_text("The dog runs .\nThe cat runs .\n")
    bank = treebank(DOG, DOG)
    with pytest.raises(UserError, match=r'line 2: the words "The cat runs ." differ from those of tree 2'):
        ParsingTask().read_examples(str(source), str(bank), print)
    source.write_text("The dog runs .\n")
    with pytest.raises(UserError, match=r"has 1 line but .* has 2 trees"):
        ParsingTask().read_examples(str(source), str(bank), print)
    with pytest.raises(UserError, match="--reference is missing"):
        ParsingTask().read_examples(None, None, print)
