"""Figures 3 to 5: a planted head is found, rules use the same examples, and the whole experiment."""

import numpy as np
import pytest
import torch
from toy_lab import toy_lab

from dragoman.corpora.phrasebook import phrasebook, split_words
from dragoman.lab import heads
from dragoman.lab.head_report import ablation_findings, relation_finding, relation_findings
from dragoman.lab.relations import (
    ANTECEDENT,
    NOUN_RULES,
    POSITION_RULES,
    RELATIONS,
    WordAttention,
    best_rule,
    bootstrap_difference,
    is_informative,
    rule_hits,
    score_heads,
    wilson_interval,
    word_attention,
)
from dragoman.tasks.attention import record_attention
from dragoman.viewer.record import ATTENTION_KINDS, AttentionRecord

LAYERS, HEADS, PLANTED = 2, 3, (1, 2)
NAMES = [f"{relation.kind}: {relation.name}" for relation in RELATIONS]


def relation(name, kind="encoder"):
    return next(each for each in RELATIONS if (each.name, each.kind) == (name, kind))


@pytest.fixture(scope="module")
def drawn():
    return list(phrasebook("test", 60, accept=is_informative))


@pytest.fixture(scope="module")
def random_sentences(drawn):
    """Sentences with weights that mean nothing."""
    chance = np.random.default_rng(1)

    def weights(rows, columns):
        return chance.dirichlet(np.ones(columns + 1), (LAYERS, HEADS, rows)).astype(np.float32)

    result = []
    for each in drawn:
        source, target = tuple(split_words(each.source)), tuple(split_words(each.target))
        sizes = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
        kinds = {kind: weights(len(above), len(below)) for kind, (above, below) in sizes.items()}
        result.append(WordAttention((each.source, each.target), source, target, kinds, each))
    return result


def planted(sentences, wanted):
    """Let one head look where a relation says, and most heavily there."""
    for one in sentences:
        changed = one.weights[wanted.kind].copy()
        for example in wanted.find_examples(one, wanted.kind):
            row = np.full(changed.shape[-1], 0.1 / changed.shape[-1])
            row[list(example.correct)] += 0.9 / len(example.correct)
            changed[(*PLANTED, example.query)] = row
        yield WordAttention(one.texts, one.source, one.target, {**one.weights, wanted.kind: changed}, one.gold)


@pytest.mark.parametrize("wanted", RELATIONS, ids=NAMES)
def test_a_planted_head_is_found_and_always_right(random_sentences, wanted):
    result = score_heads(wanted, list(planted(random_sentences, wanted)))
    assert result.best_head == PLANTED
    assert result.hits[:, *PLANTED].all()
    assert result.weight[:, *PLANTED].min() > 0.3
    assert result.hits[:, 0, 0].mean() < 0.5


def test_a_head_that_attends_to_the_end_is_never_right(random_sentences):
    wanted = relation(ANTECEDENT)
    resting = []
    for one in random_sentences:
        asleep = np.zeros_like(one.weights["encoder"])
        asleep[..., -1] = 1.0
        resting.append(WordAttention(one.texts, one.source, one.target, {"encoder": asleep}, one.gold))
    assert not score_heads(wanted, resting).hits.any()
    assert score_heads(relation("the word just read", "decoder"), resting) is None


def test_the_rule_of_a_fixed_distance_is_found(random_sentences):
    before = relation("the previous word")
    assert best_rule(POSITION_RULES, before, random_sentences) == "1 word before"
    assert rule_hits(POSITION_RULES["1 word before"], before, random_sentences).all()


def test_the_rules_of_antecedents_are_those_counted_by_hand(drawn, random_sentences):
    nearest = sum(max(each for each in pair.nouns if each < i) == j for pair in drawn for i, j in pair.anaphora)
    back = sum(i - j == 2 for pair in drawn for i, j in pair.anaphora)
    wanted = relation(ANTECEDENT)
    assert rule_hits(NOUN_RULES["the nearest preceding noun"], wanted, random_sentences).sum() == nearest
    assert rule_hits(POSITION_RULES["2 words before"], wanted, random_sentences).sum() == back


def test_distant_parts_are_aligned_with_the_same_word(random_sentences):
    for kind, side in (("encoder", 0), ("decoder", 1)):
        wanted = next(each for each in RELATIONS if each.figure == 3 and each.kind == kind)
        pairs = [(one, each) for one in random_sentences for each in wanted.find_examples(one, kind)]
        assert pairs
        for one, example in pairs:
            meant = {link[1 - side] for link in one.links if link[side] == example.query}
            for place in example.correct:
                assert abs(place - example.query) >= 4
                assert meant & {link[1 - side] for link in one.links if link[side] == place}


def test_the_wilson_interval_is_that_of_the_textbook():
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(0, 20)[0] == 0 and wilson_interval(20, 20)[1] == 1


def test_the_bootstrap_interval_contains_the_difference():
    right, wrong = np.ones(50, bool), np.zeros(50, bool)
    assert bootstrap_difference(right, right) == (0.0, 0.0)
    assert bootstrap_difference(right, wrong) == (1.0, 1.0)
    half = np.arange(50) % 2 == 0
    low, high = bootstrap_difference(half, wrong)
    assert low < 0.5 < high


def record_of_pieces():
    source, target = (" La", "mp", " works", ".", "⟨end⟩"), (" Lam", "pe", " geht", "⟨end⟩")
    encoder = np.zeros((1, 1, 5, 5), np.float32)
    encoder[..., 0, 2], encoder[..., 1, 3] = 1, 1  # the two pieces of Lamp look at different words
    encoder[..., 2, :2] = 0.5
    encoder[..., 3:, 4] = 1
    decoder = (np.tri(4) / np.arange(1, 5)[:, None]).astype(np.float32)[None, None]
    cross = np.full((1, 1, 4, 5), 0.2, np.float32)
    return AttentionRecord(source, target, "Lamp works.", "Lampe geht", encoder, decoder, cross)


def test_tokens_are_folded_into_words():
    one = word_attention(record_of_pieces())
    assert one.source == ("Lamp", "works.")
    rows = one.weights["encoder"][0, 0]
    assert rows.sum(-1) == pytest.approx(np.ones(len(one.source)))
    assert rows[0, 1] >= 0.5 and rows[1, 0] > 0
    # "geht" is written after START, Lam and pe were read: a third each, and START is the last column
    assert one.weights["decoder"][0, 0, 1] == pytest.approx([2 / 3, 0, 1 / 3])


def test_a_finding_reports_only_significant_advantages():
    row = {
        "relation": ANTECEDENT, "kind": "encoder", "layer": 0, "head": 1, "figure": 4, "right": 0.5, "examples": 20,
        "interval": [0.3, 0.7], "position": {"rule": "2 words before", "right": 0.45, "advantage": [-0.1, 0.2]},
        "noun": {"rule": "the first noun", "right": 0.6, "advantage": [-0.3, 0.1]},
        "misled": {"examples": 3, "right": 0.0},
    }  # fmt: skip
    assert "No encoder head clearly attends to the antecedent of a pronoun; the best, encoder.1.2," in relation_finding(
        row
    )
    assert "in the 3 examples where the nearest noun is wrong, the head is correct in 0 %." in relation_finding(row)
    row["position"]["advantage"] = [0.02, 0.2]
    message = (
        "encoder.1.2 attends to the antecedent of a pronoun and is correct in 50 % of 20 test examples (30 to 70 %)."
    )
    assert relation_finding(row).startswith(message)
    assert "2 words before, is correct in 45 % (head minus rule: +2 to +20 points)." in relation_finding(row)


def test_findings_mention_missing_annotations_and_heads():
    assert "has no annotated antecedents" in relation_findings([])[-1]
    assert "no heads that can be ablated" in ablation_findings(None, [])[0]


@pytest.fixture(scope="module")
def report(small_phrasebook, small_model, tmp_path_factory):
    torch.set_num_threads(1)
    lab = toy_lab(tmp_path_factory.mktemp("lab"), small_phrasebook, seconds=3.0, name="heads", given_run=small_model)
    return lab, heads.run(lab)


def test_the_experiment_finds_a_head_for_every_relation_and_draws_the_figures_of_the_paper(report):
    lab, made = report
    result = {(row["kind"], row["relation"]) for row in made.results["relations"]}
    assert ("encoder", ANTECEDENT) in result and ("cross", "the source word being translated") in result
    assert {"figure-3.png", "figure-4.png", "figure-5.png", "ablation.png", "accuracy.png"} <= {
        path.name for path in lab.folder.iterdir()
    }
    assert any("the antecedent of a pronoun" in finding and "positional rule" in finding for finding in made.findings)


def test_batched_records_equal_those_of_single_sentences(report, small_phrasebook):
    lab, _ = report
    model = lab.reference_model().translator
    pairs = [*small_phrasebook.pairs("test")[:10], ("", "nichts"), ("word " * 300, "zu lang")]
    result = record_attention(model, pairs, lambda _event: None, "watching")
    assert result[-2:] == [None, None]
    for one, (source, target) in zip(result[:10], pairs, strict=False):
        alone = model.inspect(source, target=target)
        assert (one.source_pieces, one.target_pieces) == (alone.source_pieces, alone.target_pieces)
        assert (one.source_spans, one.target_spans) == (alone.source_spans, alone.target_spans)
        for kind in ATTENTION_KINDS:
            assert one.weights(kind) == pytest.approx(alone.weights(kind), abs=1e-5)


def test_heads_are_ablated_one_at_a_time_and_sorted_by_lost_bleu(report):
    _, made = report
    costs = made.results["costs"]
    assert len(costs["heads"]) >= heads.MIN_ABLATED_HEADS
    lost = [row["lost"] for row in costs["heads"]]
    assert lost == sorted(lost, reverse=True)
    assert all(row["bleu"] + row["lost"] == pytest.approx(costs["bleu"]) for row in costs["heads"])


def test_measurements_are_not_repeated(report):
    lab, made = report
    again = lab.measure_once("relations", pytest.fail, **made.results["plan"])
    assert again == made.results["relations"]


def test_a_corpus_without_annotations_has_no_antecedents(report, corpus, tmp_path, monkeypatch):
    lab, _ = report
    monkeypatch.setattr(heads, "MIN_ABLATED_HEADS", 1)
    other = toy_lab(tmp_path, corpus, seconds=0.3, name="heads", given_run=lab.reference_model().run)
    made = heads.run(other)
    assert ANTECEDENT not in {row["relation"] for row in made.results["relations"]}
    assert any("no annotated antecedents" in finding for finding in made.findings)
    assert made.results["costs"]["heads"]
