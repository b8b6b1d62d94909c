"""Figures 3 to 5: what the heads of a trained model are there for, how often each is right, and what it is worth.

Which head is there for what is chosen on validation sentences; how often it is right is counted on test sentences.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dragoman.corpora.phrasebook import PhrasebookPair, phrasebook
from dragoman.data.corpus import ParallelCorpus
from dragoman.evaluation.scores import compare_systems, corpus_bleu
from dragoman.lab.attention_records import record_attention
from dragoman.lab.head_findings import ablation_findings, ablation_parts, head_name, relation_findings, relation_parts
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.relations import (
    ANTECEDENT,
    NOUN_RULES,
    POSITION_RULES,
    RELATIONS,
    HeadHits,
    Relation,
    RelationExample,
    WordAttention,
    best_rule,
    bootstrap_difference,
    is_informative,
    rule_hits,
    score_heads,
    wilson_interval,
    word_attention,
)
from dragoman.lab.report import ExperimentReport, Json
from dragoman.models.head_ablation import HeadIndex, can_ablate_heads
from dragoman.tasks.events import ProgressUpdate
from dragoman.tasks.head_report import MeasuredText, load_measured_pairs, measure_heads
from dragoman.tasks.translator import Translator

TITLE = "Figures 3 to 5: what the heads are there for"
QUESTION = "Which heads look at a neighbour, at a far part of the same expression, at what a pronoun stands for?"
CLAIM = (
    "Section 4 and figures 3 to 5: heads learn different tasks, many of them about the structure of the sentence: one "
    "completes “making … more difficult”, two seem to find what “its” stands for. The paper shows examples; it counts "
    "none."
)

_FULL_SECONDS = 180.0  # for which the sizes below are meant
_BLEU_TIME_SHARE = 0.5  # of the time, for translating without a head
MIN_ABLATED_HEADS = 3  # heads that are judged by BLEU, however short the time
_SIGNIFICANCE = 0.01  # a loss of BLEU that chance makes less often than this is called one


@dataclass(frozen=True)
class _SampleSizes:
    """How much is read, for a share of the time."""

    random_pairs: int  # sentences of any kind, of each split
    informative_pairs: int  # sentences with a pronoun or a far dependency
    loss_pairs: int  # sentences whose loss is measured without each head
    translated_pairs: int  # sentences translated without each head

    @classmethod
    def for_budget(cls, seconds: float) -> "_SampleSizes":
        """Return the sizes for a budget."""
        sizes = ((100, 20), (400, 60), (300, 40), (200, 40))
        return cls(*(max(least, int(size * min(seconds / _FULL_SECONDS, 4.0))) for size, least in sizes))


def run(lab: Laboratory) -> ExperimentReport:
    """Find heads, count how often they are right, and switch them off one by one."""
    plan = _SampleSizes.for_budget(lab.budget_seconds)
    study = _HeadStudy(lab, lab.reference_model().translator, plan)
    began_at = time.monotonic()
    found = lab.measure_once("relations", study.measure_relations, **vars(plan))
    losses = (
        lab.measure_once("losses", study.measure_losses, sentences=plan.loss_pairs)
        if can_ablate_heads(study.model.model)
        else None
    )
    left = max(lab.budget_seconds - (time.monotonic() - began_at), _BLEU_TIME_SHARE * lab.budget_seconds)
    costs = study.measure_ablations(losses, left) if losses else None
    findings = (*relation_findings(found), *ablation_findings(costs, found))
    parts = (*relation_parts(lab.folder, study.record_pair, found), *ablation_parts(lab.folder, losses, costs, found))
    return ExperimentReport(findings, parts, {"plan": vars(plan), "relations": found, "losses": losses, "costs": costs})


class _HeadStudy:
    """A model, and the sentences that it is watched on."""

    def __init__(self, lab: Laboratory, model: Translator, sizes: _SampleSizes) -> None:
        self.lab, self.model, self.sizes = lab, model, sizes

    def sentence_pairs(self, split: str) -> list[tuple[str, str, PhrasebookPair | None]]:
        """Return the sentences of a split: any, and of the phrasebook more of those that tell something."""
        if self.lab.corpus.name != "phrasebook":
            pairs = self.lab.corpus.pairs(split)[: self.sizes.random_pairs + self.sizes.informative_pairs]
            return [(source, target, None) for source, target in pairs]
        seed = self.lab.seed
        plain = phrasebook(split, self.sizes.random_pairs, seed=seed)
        chosen = phrasebook(split, self.sizes.informative_pairs, seed=seed, accept=is_informative)
        return [(each.source, each.target, each) for each in {one.source: one for one in (*plain, *chosen)}.values()]

    def record_pair(self, source: str, target: str) -> WordAttention:
        """Look at one sentence pair."""
        return word_attention(self.model.inspect(source, target=target))

    def record_split(self, split: str) -> list[WordAttention]:
        """Record the attention of the sentences of a split; those that the model cannot read whole are passed over."""
        pairs = self.sentence_pairs(split)
        texts = [(source, target) for source, target, _ in pairs]
        found = record_attention(self.model, texts, self.lab.on_event, f"heads: watching the {split} sentences")
        return [word_attention(one, gold) for one, (_, _, gold) in zip(found, pairs, strict=True) if one is not None]

    @cached_property
    def valid_sentences(self) -> list[WordAttention]:
        """The sentences that heads are chosen on."""
        return self.record_split("valid")

    @cached_property
    def test_sentences(self) -> list[WordAttention]:
        """The sentences that they are judged on."""
        return self.record_split("test")

    def measure_relations(self) -> Json:
        """Return for each relation the head that serves it best, how often it is right, and how often a rule is."""
        found = (self.measure_relation(relation) for relation in RELATIONS)
        return [each for each in found if each is not None]

    def measure_relation(self, relation: Relation) -> dict[str, Json] | None:
        """Choose a head on the validation sentences and judge it on the test sentences."""
        chosen, judged = score_heads(relation, self.valid_sentences), score_heads(relation, self.test_sentences)
        if chosen is None or judged is None:
            return None
        layer, head = chosen.best_head
        right = judged.hits[:, layer, head]
        return {
            "relation": relation.name, "kind": relation.kind, "figure": relation.figure, "layer": layer, "head": head,
            "examples": len(right), "chosen on": len(chosen.hits),
            "validation": float(chosen.hits[:, layer, head].mean()),
            "right": float(right.mean()), "interval": wilson_interval(int(right.sum()), len(right)),
            "weight": float(judged.weight[:, layer, head].mean()), "all": judged.hits.mean(0).tolist(),
            **({} if relation.is_fixed_distance else self.compare_with_rules(relation, right)),
            "shown": self.pick_example(relation, judged, layer, head),
        }  # fmt: skip

    def compare_with_rules(self, relation: Relation, right: Any) -> dict[str, Json]:
        """Compare a head with rules that see no weights, each chosen on the validation sentences."""
        found: dict[str, Json] = {"position": self.compare_with_best_rule(POSITION_RULES, relation, right)}
        if relation.name == ANTECEDENT:
            found["noun"] = self.compare_with_best_rule(NOUN_RULES, relation, right)
            nearest = rule_hits(NOUN_RULES["the nearest noun before"], relation, self.test_sentences)
            found["misled"] = {
                "examples": int((~nearest).sum()), "right": float(right[~nearest].mean()) if (~nearest).any() else None,
            }  # fmt: skip
        return found

    def compare_with_best_rule(self, rules: Mapping[str, Any], relation: Relation, right: Any) -> Json:
        """Choose a rule and count how often it is right, and the interval of the head's advantage."""
        name = best_rule(rules, relation, self.valid_sentences)
        theirs = rule_hits(rules[name], relation, self.test_sentences)
        low, high = bootstrap_difference(right, theirs, self.lab.seed)
        return {"rule": name, "right": float(theirs.mean()), "advantage": [low, high]}

    def pick_example(self, relation: Relation, judged: HeadHits, layer: int, head: int) -> Json:
        """Return the example to draw: one that the head gets right, and of these one with much in between."""
        places = [
            (one, each)
            for one in self.test_sentences
            if relation.kind in one.weights
            for each in _relation_examples(relation, one)
        ]
        right = judged.hits[:, layer, head]
        clear = judged.weight[:, layer, head] >= min(0.5, float(np.median(judged.weight[:, layer, head])))
        wanted = [number for number in range(len(places)) if right[number] and clear[number]] or [0]
        one, example = max((places[number] for number in wanted), key=lambda place: _example_distance(place[1]))
        return {"texts": one.texts, "row": example.query}

    def measure_losses(self) -> Json:
        """Return the statistics of every head on validation sentences, and the loss that it spares the model."""
        corpus = ParallelCorpus.from_files(*map(str, self.lab.corpus.valid))
        assert self.model.run, "the model of a laboratory lies in a run"
        text = MeasuredText.from_pairs(
            self.model, load_measured_pairs(self.model.run, self.model, corpus), self.sizes.loss_pairs
        )
        return measure_heads(self.model, text, True, self.lab.on_event)

    def measure_ablations(self, losses: Json, seconds: float) -> Json:
        """Return the BLEU that is lost without a head: of as many heads as there is time for, the costliest in loss."""
        pairs = self.lab.corpus.pairs("test")[: self.sizes.translated_pairs]
        whole = self.lab.measure_once("translations", lambda: self.translate_without(pairs, ()), sentences=len(pairs))
        ordered = sorted(losses["heads"], key=lambda each: -each["importance"])
        count = self.lab.measure_once(
            "heads to translate without",
            lambda: max(MIN_ABLATED_HEADS, int(seconds / (whole["seconds"] + 0.3))),
            of=len(ordered),
        )
        heads = [(each["kind"], each["layer"], each["head"]) for each in ordered[:count]]
        rows = [
            self.measure_ablation(head, pairs, whole["translations"], number) for number, head in enumerate(heads, 1)
        ]
        rows.sort(key=lambda row: -row["lost"])
        references = [target for _, target in pairs]
        return {
            "sentences": len(pairs), "bleu": corpus_bleu(whole["translations"], references), "heads": rows,
            "of": len(ordered), "chance": _SIGNIFICANCE,
        }  # fmt: skip

    def measure_ablation(
        self, head: HeadIndex, pairs: Sequence[tuple[str, str]], whole: list[str], number: int
    ) -> dict[str, Json]:
        """Translate without a head and compare."""
        self.lab.on_event(ProgressUpdate("heads: translating without a head", number))
        without = self.lab.measure_once(
            f"without {head_name(*head)}", lambda: self.translate_without(pairs, (head,)), sentences=len(pairs)
        )
        ours, references = without["translations"], [target for _, target in pairs]
        judged = compare_systems(ours, whole, references)
        changed = sum(one != other for one, other in zip(ours, whole, strict=True))
        return {
            "kind": head[0], "layer": head[1], "head": head[2], "bleu": judged.ours.value,
            "lost": judged.theirs.value - judged.ours.value, "p": judged.p_value, "changed": changed / len(pairs),
        }  # fmt: skip

    def translate_without(self, pairs: Sequence[tuple[str, str]], heads: tuple[HeadIndex, ...]) -> Json:
        """Translate the sources of some pairs without some heads, and say how long it took."""
        began_at = time.monotonic()
        engine = self.model.build_engine(self.model.decoding_config(), self.model.ablated_model(heads))
        found = engine.search([self.model.source_tokens(source) for source, _ in pairs])
        translations = [self.model.to_translation(row[0]).text for row in found]
        return {"translations": translations, "seconds": time.monotonic() - began_at}


def _relation_examples(relation: Relation, sentence: WordAttention) -> list[RelationExample]:
    """Return the examples of a relation in a sentence."""
    return list(relation.find_examples(sentence, relation.kind))


def _example_distance(example: RelationExample) -> int:
    """Return how far away the right word is."""
    return max(abs(place - example.anchor) for place in example.correct)
