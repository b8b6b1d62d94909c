"""`dragoman parse` and `dragoman evaluate` with a parser that has learned a handful of trees."""

import json
import xml.etree.ElementTree as ET

import pytest

import dragoman
from dragoman.evaluation.trees import read_tree
from dragoman.recipe import Recipe

pytestmark = pytest.mark.slow

TREES = [
    f"(TOP (S (NP (DT {article}) (NN {noun})) (VP (VBZ {verb})) (. .)))"
    for article, noun, verb in [
        ("the", "dog", "runs"),
        ("a", "cat", "sits"),
        ("the", "cat", "runs"),
        ("a", "dog", "sits"),
    ]
]
DOG = "the dog runs ."
SMALL = {
    "tokenizer": {"size": 300},
    "model": {"layers": 1, "width": 32, "inner_width": 64, "heads": 2, "dropout": 0.0, "norm": "pre"},
    "training": {
        "steps": 80, "batch_tokens": 256, "schedule": "constant", "rate": 0.01, "warmup": 10, "label_smoothing": 0.0,
        "validate_every": 80, "checkpoint_every": 80, "average": 1, "keep": 1, "threads": 1,
    },
    "decoding": {"beam": 3, "extra_length": 30},
}  # fmt: skip


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    file = tmp_path_factory.mktemp("trees") / "few.trees"
    file.write_text("".join(f"{tree}\n" for tree in TREES))
    return file


@pytest.fixture(scope="module")
def parser(treebank, tmp_path_factory):
    """A run that has learned the trees by heart."""
    files = {"file": str(treebank), "valid_file": str(treebank)}
    run = str(tmp_path_factory.mktemp("runs") / "parser")
    return dragoman.train(Recipe.from_table({"task": "parse", "run": run, "data": files, **SMALL})).folder


def test_one_tree_comes_out_for_each_line_and_an_empty_line_stays_empty(command, parser):
    outcome = command("parse", parser, stdin=f"{DOG}\n\nwords (never) seen 漢字\n".encode())
    first, second, third = outcome.out.split("\n")[:3]
    assert (outcome.code, first, second) == (0, TREES[0], "")
    assert read_tree(third).words == ["words", "-LRB-never-RRB-", "seen", "漢字"]


def test_text_is_cut_into_words_if_asked(command, parser):
    assert command("parse", parser, "--tokenize", "the dog runs.").out == f"{TREES[0]}\n"


def test_the_best_few_come_with_scores_or_as_json(command, parser):
    lines = command("parse", parser, DOG, "--n-best", 2, "--scores").out.splitlines()
    scores = [float(line.split("\t")[0]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    (ranked,) = map(json.loads, command("parse", parser, DOG, "--json").out.splitlines())
    assert ranked[0]["text"] == TREES[0]


def test_trees_are_indented_or_drawn(command, parser, tmp_path):
    assert command("parse", parser, DOG, "--format", "indented").out.startswith(
        "(TOP\n  (S\n    (NP (DT the) (NN dog))"
    )
    drawing, page = tmp_path / "tree.svg", tmp_path / "trees.html"
    assert command("parse", parser, DOG, "--format", "svg", "-o", drawing).out == ""
    assert "Parse tree: the dog runs ." in ET.parse(drawing).getroot().get("aria-label")
    command("parse", parser, DOG, "a cat", "--format", "html", "-o", page)
    assert page.read_text().count("<svg ") == 2


def test_what_does_not_go_together_is_refused(command, parser, trained):
    assert "--format svg draws one tree, got 2" in command("parse", parser, DOG, DOG, "--format", "svg").err
    assert (
        "--scores and --json require --format brackets"
        in command("parse", parser, DOG, "--format", "html", "--json").err
    )
    assert "is a translator; use `dragoman translate`" in command("parse", trained, DOG).err
    assert "is a parser; use `dragoman parse`" in command("translate", parser, DOG).err
    both = command("evaluate", parser, "--hypotheses", "a", "--reference", "a")
    assert "needs --reference (gold trees) and either a RUN" in both.err
    assert (
        "was trained for task parse; remove --task generate." in command("evaluate", parser, "--task", "generate").err
    )


def test_a_run_is_scored_on_the_words_of_a_treebank(command, parser, treebank, tmp_path):
    found = tmp_path / "found.trees"
    outcome = command("evaluate", parser, "--reference", treebank, "--output", found)
    assert (outcome.code, outcome.err) == (0, "")
    assert "F1                    100.00" in outcome.out
    assert found.read_text() == treebank.read_text()
    report = json.loads(command("evaluate", parser, "--reference", treebank, "--json", "--sentences", "--beam", 1).out)
    assert (report["all"]["scored"], len(report["sentences"])) == (4, 4)


def test_trees_with_other_words_than_the_text_are_refused(command, parser, treebank, tmp_path):
    words = tmp_path / "words"
    words.write_text("the dog runs .\na cat sits .\nthe dog runs .\na dog sits .\n")
    refused = command("evaluate", parser, "--reference", treebank, "--source", words)
    assert refused.code == 2
    assert 'words: line 3: the words "the dog runs ." differ from those of tree 3' in refused.err


def test_the_card_and_python_speak_of_a_parser(parser):
    assert "A parser trained with Dragoman" in (parser / "README.md").read_text()
    assert dragoman.load(parser).parse([DOG, ""]) == [TREES[0], ""]


def test_a_parser_of_which_no_tree_can_be_scored_is_said_to_need_training(command, parser, tmp_path):
    """A wrong tag makes a word of a punctuation mark, and then the words of the trees differ."""
    reference = tmp_path / "reference.trees"
    reference.write_text("(TOP (S (NP (. the) (. dog)) (VP (VBZ runs)) (. .)))\n")
    result = command("evaluate", parser, "--reference", reference)
    assert result.code == 2
    assert "no sentence can be scored; line 1: it has" in result.err and "train it longer." in result.err
