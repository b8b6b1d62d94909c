"""`dragoman evaluate --task parse`: trees made elsewhere are scored, and what cannot be is refused with its line."""

import json
from pathlib import Path

import pytest

EVALB = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "evalb"

RIGHT = ["(S (NP (D the) (N dog)) (VP (V runs)) (. .))", "(S (NP (N dogs)) (VP (V run)))", "(S (V run))"]
# The first has one bracket of three wrong, the second is another sentence, the third has no tree.
FOUND = ["(S (NP (D the)) (X (N dog) (VP (V runs))))", "(S (NP (N cats)) (VP (V run)))", ""]


@pytest.fixture
def evaluated(command, tmp_path, monkeypatch):
    """Score these lines, the parser's and the right ones, in files of these names."""
    monkeypatch.chdir(tmp_path)

    def asked(found, right, *options):
        for name, lines in (("found", found), ("right", right)):
            Path(name).write_text("\n".join(lines) + "\n")
        return command("evaluate", "--task", "parse", "--hypotheses", "found", "--reference", "right", *options)

    return asked


def test_a_table_has_all_sentences_and_the_short_ones_and_says_what_counted(evaluated):
    outcome = evaluated(FOUND, RIGHT)
    assert outcome.code == 0
    assert outcome.out.split("\n") == [
        "                         all  up to 40 words",
        "sentences                  3               3",
        "errors                     1               1",
        "skipped                    1               1",
        "scored                     1               1",
        "precision              50.00           50.00",
        "recall                 66.67           66.67",
        "F1                     57.14           57.14",
        "exact match             0.00            0.00",
        "average crossing        1.00            1.00",
        "no crossing             0.00            0.00",
        "two or less crossing  100.00          100.00",
        "tagging accuracy      100.00          100.00",
        "",
        "labelled brackets; without TOP -NONE- , : `` '' .; ADVP = PRT",
        "",
    ]


def test_what_was_not_scored_is_said_with_its_line_beside_the_result(evaluated):
    assert evaluated(FOUND, RIGHT).err.splitlines() == [
        'found: line 2: not scored (error): word 1 is "cats", but the reference has "dogs".',
        "found: line 3: not scored (skipped): it has no scored words.",
    ]


def test_every_sentence_can_be_listed(evaluated):
    listing = evaluated(FOUND, RIGHT, "--sentences").out.split("\n\n")[0].split("\n")
    assert [line.split()[:9] for line in listing[1:]] == [
        ["1", "4", "scored", "66.67", "50.00", "2", "3", "4", "1"],
        ["2", "2", "error", "0.00", "0.00", "0", "0", "0", "0"],
        ["3", "1", "skipped", "0.00", "0.00", "0", "0", "0", "0"],
    ]


def test_json_has_the_same_numbers_unrounded(evaluated):
    found = json.loads(evaluated(FOUND, RIGHT, "--json", "--sentences").out)
    assert found["all"]["recall"] == 200 / 3
    assert found["all"]["errors"] == found["short"]["skipped"] == 1
    assert [sentence["status"] for sentence in found["sentences"]] == ["scored", "error", "skipped"]
    assert found["not_scored"][0]["line"] == 2
    assert "." in found["rules"]["deleted"]


def test_trees_over_several_lines_are_scored_against_trees_on_one(evaluated):
    spread = ["(S", "  (NP (D the) (N dog))", "  (VP (V runs))", "  (. .))", "", RIGHT[1], RIGHT[2]]
    assert json.loads(evaluated(spread, RIGHT, "--json").out)["all"]["exact_match"] == 100
    assert json.loads(evaluated(RIGHT, spread, "--json").out)["all"]["exact_match"] == 100


def test_an_empty_line_counts_where_a_tree_was_expected_and_not_after_the_last(evaluated):
    found = json.loads(evaluated([*RIGHT[:2], "", "", ""], RIGHT, "--json").out)["all"]
    assert (found["sentences"], found["skipped"], found["exact_match"]) == (3, 1, 100)


def test_a_parameter_file_says_what_counts(evaluated, tmp_path):
    (tmp_path / "my.prm").write_text("## mine\nDELETE_LABEL X\nDELETE_LABEL .\nEQ_WORD cats dogs\nCUTOFF_LEN 1\n")
    outcome = evaluated(FOUND, RIGHT, "--parameters", "my.prm")
    assert "up to 1 word" in outcome.out
    assert "labelled brackets; without X .; cats = dogs" in outcome.out
    assert outcome.err == "found: line 3: not scored (skipped): it has no scored words.\n"


REFUSED = {
    "fewer trees": (FOUND[:2], RIGHT, "found has 2 sentences but right has 3; both must have the same sentences in"),
    "a broken reference": (FOUND, ["(S (V run))", "(S (V run)", "(S (V run))"], "right: line 2: the tree that begins"),
    "a broken file over several lines": (
        ["(S", "(V run))", "(S", "(NP", "(V run))"], ["(S (V run))"] * 2, "found: line 3: the tree that begins here",
    ),
    "text for trees": (["run"] * 3, ["(S (V run))"] * 3, 'no sentence can be scored; line 1: "run" is outside'),
    "trees of other sentences": (
        [f"(S (V {n}))" for n in range(12)], ["(S (V run))"] * 12,
        'found: 12 of 12 sentences do not match their reference; line 1: word 1 is "0", but the reference has',
    ),
    "text for references": (RIGHT, ["the dog runs ."] * 3, 'right: line 1: "the" is outside of all brackets.'),
}  # fmt: skip


@pytest.mark.parametrize(("found", "right", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_files_that_cannot_be_compared_are_refused(evaluated, found, right, words):
    refused = evaluated(found, right)
    assert refused.code == 2
    assert words in refused.err
    assert refused.out == ""


def test_eleven_errors_pass_as_they_do_with_evalb(evaluated):
    lines = [f"(S (V {n}))" for n in range(11)] + ["(S (V run))"]
    outcome = evaluated(lines, ["(S (V run))"] * 12)
    assert (outcome.code, len(outcome.err.splitlines())) == (0, 11)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["RUN", "--hypotheses", "a", "--reference", "a"], "RUN: no such run directory."),
        (["--hypotheses", "a", "--reference", "a", "--against", "RUN"], "--against is not supported for --task parse"),
        (["--hypotheses", "a"], "Parsing needs --reference (gold trees) and either a RUN"),
        (["--reference", "a"], "Parsing needs --reference"),
        (["--hypotheses", "a", "--reference", "a", "--source", "a"], "--source is not supported for --task parse"),
        (["--hypotheses", "a", "--reference", "a", "--worst", "3"], "--worst is not supported for --task parse"),
        (["--hypotheses", "a", "--reference", "a", "--beam", "3"], "--beam is not supported for --task parse"),
        (["--hypotheses", "a", "--reference", "a", "--length-penalty", "1"], "--length-penalty is not supported for"),
        (["--hypotheses", "a", "--reference", "a", "--output", "b"], "--output is not supported for --task parse"),
        (["--hypotheses", "a", "--reference", "missing"], "missing: no such file."),
        (["--hypotheses", "missing", "--reference", "a"], "missing: no such file."),
        (["--hypotheses", "a", "--reference", "a", "--parameters", "b.prm"], "b.prm: no such file."),
        (["--hypotheses", "a", "--reference", "a", "--parameters", "a"], 'a: line 1: unknown parameter "(S"'),
        (["--task", "parsing", "--hypotheses", "a"], 'Unknown task "parsing"; expected one of translate, pronounce'),
        (
            ["--task", "translate", "--parameters", "a"],
            "--parameters is not supported for --task translate; remove it.",
        ),
        (["--task", "translate", "--sentences"], "--sentences is not supported for --task translate"),
    ],
)
def test_options_that_do_not_go_together_are_refused(command, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("(S (V run))\n")
    refused = command("evaluate", "--task", "parse", *arguments)
    assert refused.code == 2
    assert words in refused.err
    assert refused.out == ""


@pytest.mark.shared
@pytest.mark.skipif(not EVALB.exists(), reason=f"no sample files of EVALB in {EVALB}")
def test_evalbs_own_sample_gives_its_own_scores(command):
    files = ("--hypotheses", EVALB / "sample.tst", "--reference", EVALB / "sample.gld")
    outcome = command("evaluate", "--task", "parse", *files, "--parameters", EVALB / "sample.prm")
    lines = [line.split() for line in outcome.out.split("\n")]
    assert ["F1", "89.12", "83.20"] in lines
    assert ["errors", "5", "5"] in lines
    assert len(outcome.err.splitlines()) == 7
