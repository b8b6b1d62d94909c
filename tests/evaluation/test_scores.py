import json
import os
import random
import subprocess
import sys

import pytest
import sacrebleu

from dragoman.errors import UserError
from dragoman.evaluation.scores import (
    compare_systems,
    corpus_bleu,
    score_by_length,
    score_translations,
    to_json,
    worst_sentences,
)

VERSION = sacrebleu.__version__
WORDS = [
    "der",
    "die",
    "das",
    "alte",
    "Lampe",
    "Hund",
    "Schnee",
    "und",
    "läuft",
    "im",
    "Garten",
    "aber",
    "heute",
    "mehr",
]


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(3, 24))) + "."


def spoiled(line: str, chance: random.Random, rate: float = 0.2) -> str:
    return " ".join(chance.choice(WORDS).upper() if chance.random() < rate else word for word in line.split())


@pytest.fixture(scope="module")
def references():
    chance = random.Random(1)
    return [sentence(chance) for _ in range(120)]


@pytest.fixture(scope="module")
def hypotheses(references):
    chance = random.Random(2)
    return [spoiled(line, chance) for line in references]


@pytest.fixture(scope="module")
def sources(references):
    chance = random.Random(3)
    return [" ".join(["word"] * chance.randint(1, 40)) for _ in references]


def test_every_score_is_sacrebleus_own_bit_for_bit(hypotheses, references):
    judges = {
        "bleu": sacrebleu.BLEU(),
        "bleu_lowercase": sacrebleu.BLEU(lowercase=True),
        "chrf": sacrebleu.CHRF(),
        "ter": sacrebleu.TER(),
    }
    ours = score_translations(hypotheses, references)
    for name, judge in judges.items():
        theirs = judge.corpus_score(hypotheses, [references], n_bootstrap=1000)
        mine = getattr(ours, name)
        assert (mine.value, mine.interval, mine.signature) == (theirs.score, theirs._ci, str(judge.get_signature()))


@pytest.mark.slow
def test_the_sacrebleu_command_prints_the_same_numbers_and_signatures(hypotheses, references, tmp_path):
    (tmp_path / "hypotheses").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
    (tmp_path / "references").write_text("\n".join(references) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "references"), "-i", str(tmp_path / "hypotheses")]
    command += ["-m", "bleu", "chrf", "ter", "--confidence", "-f", "json", "-w", "9"]
    environment = {name: value for name, value in os.environ.items() if name != "SACREBLEU_SEED"}
    printed = json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
    ours = score_translations(hypotheses, references)
    for mine, theirs in zip((ours.bleu, ours.chrf, ours.ter), printed, strict=True):
        assert mine.name == theirs["name"]
        assert mine.signature == theirs["signature"]
        assert round(mine.value, 9) == theirs["score"]
        assert round(mine.interval, 9) == theirs["confidence_var"]


def test_a_score_prints_its_interval_and_what_makes_it_repeatable(hypotheses, references):
    printed = str(score_translations(hypotheses, references).bleu)
    assert printed.startswith("BLEU ") and " ± " in printed
    assert printed.endswith(f"  nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:{VERSION}")


def test_without_intervals_no_resampling_is_named(hypotheses, references):
    scores = score_translations(hypotheses, references, intervals=False)
    assert [one.interval for one in scores] == [None] * 4
    assert "±" not in str(scores)
    assert scores.bleu.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{VERSION}"


def test_the_same_seed_gives_the_same_intervals_and_another_seed_says_so(hypotheses, references):
    first, again = (score_translations(hypotheses, references, seed=7) for _ in range(2))
    other = score_translations(hypotheses, references, seed=8)
    assert first == again
    assert "seed:7" in first.bleu.signature and "seed:8" in other.bleu.signature
    assert first.bleu.value == other.bleu.value and first.bleu.interval != other.bleu.interval


def test_scoring_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    score_translations(["ein Hund"], ["ein Hund"])
    assert os.environ["SACREBLEU_SEED"] == "99"
    monkeypatch.delenv("SACREBLEU_SEED")
    score_translations(["ein Hund"], ["ein Hund"])
    assert "SACREBLEU_SEED" not in os.environ


def test_lower_casing_forgives_capitals(references):
    scores = score_translations([line.upper() for line in references], references, intervals=False)
    assert scores.bleu.value < 10 and scores.bleu_lowercase.value == pytest.approx(100)


def test_bleu_alone_is_the_cased_bleu_of_all_scores(hypotheses, references):
    assert corpus_bleu(hypotheses, references) == score_translations(hypotheses, references, intervals=False).bleu.value


def test_different_numbers_of_sentences_are_refused_with_both_counts():
    with pytest.raises(UserError, match="1 012 hypotheses but 1 014 references"):
        score_translations(["a"] * 1012, ["a"] * 1014)
    with pytest.raises(UserError, match="2 sources but 1 hypotheses"):
        worst_sentences(["a", "b"], ["a"], ["a", "b"], 1)
    with pytest.raises(UserError, match="1 hypotheses of the first system but 2 hypotheses of the second"):
        compare_systems(["a"], ["a", "b"], ["a", "b"])


def test_no_sentences_at_all_are_refused():
    with pytest.raises(UserError, match="no hypotheses to score"):
        corpus_bleu([], [])


def test_empty_lines_can_be_scored():
    """sacrebleu 2.6.0 stops with a TypeError where a resample for TER has no words in its references."""
    scores = score_translations(["", "ein Hund", ""], ["ein Hund", "", ""])
    assert scores.sentences == 3
    assert worst_sentences(["", "a", "b"], ["", "", "x"], ["", "y", "x"], 3)[-1].line == 3


def test_the_table_by_length_has_every_sentence_once_and_no_empty_range(sources, hypotheses, references):
    rows = score_by_length(sources, hypotheses, references)
    assert sum(row.sentences for row in rows) == len(sources)
    assert [row.words for row in rows] == ["1–5", "6–10", "11–15", "16–20", "21–30", "31+"]
    assert [row.words for row in score_by_length(["", "one two"], ["", "b"], ["", "b"])] == ["0", "1–5"]


def test_a_row_of_the_table_is_the_score_of_its_sentences(sources, hypotheses, references):
    row = score_by_length(sources, hypotheses, references)[1]
    chosen = [i for i, source in enumerate(sources) if 6 <= len(source.split()) <= 10]
    theirs = [hypotheses[i] for i in chosen], [[references[i] for i in chosen]]
    assert row.sentences == len(chosen)
    assert row.bleu == sacrebleu.corpus_bleu(*theirs).score
    assert row.chrf == sacrebleu.corpus_chrf(*theirs).score


def test_half_a_translation_has_half_the_length():
    assert score_by_length(["a b c d"], ["eins zwei"], ["eins zwei drei vier"])[0].ratio == 0.5


def test_the_worst_sentence_comes_first_with_its_line_number(references):
    hypotheses = list(references)
    hypotheses[41], hypotheses[6] = "xyz", ""
    found = worst_sentences(references, hypotheses, references, 3)
    assert [sentence.line for sentence in found] == [7, 42, 1]
    assert (found[1].hypothesis, found[1].reference) == ("xyz", references[41])
    assert found[0].chrf == sacrebleu.sentence_chrf("", [references[6]]).score


def test_a_clearly_better_system_is_called_better(hypotheses, references):
    ours = compare_systems(references, hypotheses, references)
    assert ours.p_value < 0.05 and ours.verdict.startswith("The first system is better than the second by ")
    assert compare_systems(hypotheses, references, references).verdict.startswith(
        "The second system is better than the first by "
    )
    assert ours.ours.value == sacrebleu.corpus_bleu(references, [references]).score
    assert ours.theirs.value == sacrebleu.corpus_bleu(hypotheses, [references]).score


def test_fewer_errors_are_better(hypotheses, references):
    assert compare_systems(references, hypotheses, references, metric="ter").verdict.startswith(
        "The first system is better"
    )


def test_one_better_sentence_is_within_the_noise(hypotheses, references):
    """Approximate randomisation as sacrebleu 2.6.0 has it gives p = 0.0001 here."""
    comparison = compare_systems([references[0], *hypotheses[1:]], hypotheses, references, metric="chrf")
    assert comparison.ours.value > comparison.theirs.value
    assert comparison.p_value > 0.05 and "not significant" in comparison.verdict


def test_the_same_output_twice_is_no_difference(hypotheses, references):
    comparison = compare_systems(hypotheses, list(hypotheses), references)
    assert comparison.p_value == 1 and "same score" in comparison.verdict


def test_a_comparison_can_be_repeated(hypotheses, references):
    other = [hypotheses[0], *references[1:30], *hypotheses[30:]]
    assert compare_systems(hypotheses, other, references) == compare_systems(hypotheses, other, references)
    with pytest.raises(UserError, match="must be at least 1, got 0"):
        compare_systems(hypotheses, other, references, seed=0)


def test_every_result_can_be_written_as_json(sources, hypotheses, references):
    scores = score_translations(hypotheses, references)
    results = [scores, compare_systems(hypotheses, references, references)]
    results += score_by_length(sources, hypotheses, references) + worst_sentences(sources, hypotheses, references, 2)
    written = json.loads(json.dumps([to_json(result) for result in results], allow_nan=False))
    assert written[0]["bleu"]["value"] == scores.bleu.value
    assert written[0]["chrf"]["signature"] == scores.chrf.signature
    assert written[0]["ter"].keys() == {"name", "value", "interval", "signature"}
    assert "verdict" in written[1]
