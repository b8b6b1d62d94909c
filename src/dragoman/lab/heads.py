"""Figures 3 to 5: the relations between words that heads attend to, how reliably, and the BLEU that each head is worth.

The head for a relation is chosen on validation sentences and scored on test sentences.
"""

import time
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from dragoman.corpora.phrasebook import PhrasebookPair, phrasebook
from dragoman.data.corpus import ParallelCorpus
from dragoman.evaluation.scores import compare_systems, corpus_bleu
from dragoman.lab.comparison import reference_refusal
from dragoman.lab.corpus import SentencePairs
from dragoman.lab.head_report import (
    ablation_findings,
    ablation_parts,
    draw_paper_figures,
    head_name,
    relation_findings,
    relation_parts,
)
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
from dragoman.model_config import HeadIndex
from dragoman.models.head_ablation import can_ablate_heads
from dragoman.report import ExperimentReport, Json
from dragoman.tasks.attention import record_attention
from dragoman.tasks.events import ProgressUpdate
from dragoman.tasks.head_report import MeasuredText, load_measured_pairs, measure_heads
from dragoman.tasks.translate import Translator

TITLE = "Figures 3 to 5: what heads attend to"
QUESTION = (
    "Which heads attend to a neighbour, to a distant part of the same expression or to the antecedent of a pronoun?"
)
CLAIM = (
    "section 4 and figures 3 to 5: heads learn different tasks, many of them related to the structure of the sentence: "
    "one completes “making … more difficult”, two seem to resolve “its”. The paper shows examples without counts."
)

MIN_ABLATED_HEADS = 3  # whose BLEU is measured, however small the budget
_FULL_SECONDS = 180.0  # the budget for the sizes of _SAMPLE_SIZES
_SAMPLE_SIZES = {  # sentence pairs, and the fewest with a small budget
    "random_pairs": (100, 20),  # per split
    "informative_pairs": (400, 60),  # per split, with a pronoun or a distant dependency
    "loss_pairs": (300, 40),  # for the loss without each head
    "translated_pairs": (200, 40),  # for the BLEU without each head
}
_BLEU_TIME_SHARE = 0.5  # of the budget, for translating without a head
_SIGNIFICANCE = 0.01  # p-value below which a loss of BLEU is reported


def run(lab: Laboratory) -> ExperimentReport:
    """Find the best head for each relation, score it, and ablate heads one by one."""
    share = min(lab.budget_seconds / _FULL_SECONDS, 4.0)
    sizes = {name: max(fewest, int(size * share)) for name, (size, fewest) in _SAMPLE_SIZES.items()}
    reference = lab.reference_model()
    if refusal := reference_refusal(lab, reference):
        return refusal
    study = _HeadStudy(lab, reference.translator, sizes)
    started_at = time.monotonic()
    relations = lab.measure_once("relations", study.measure_relations, **sizes)
    losses = ablations = None
    if can_ablate_heads(study.model.model):
        losses = lab.measure_once("losses", study.measure_losses, sentences=sizes["loss_pairs"])
        remaining = lab.budget_seconds - (time.monotonic() - started_at)
        ablations = study.measure_ablations(losses, max(remaining, _BLEU_TIME_SHARE * lab.budget_seconds))
    findings = (*relation_findings(relations), *ablation_findings(ablations, relations))
    parts = (
        *relation_parts(lab.folder, relations),
        *draw_paper_figures(lab.folder, study.record_pair, relations),
        *ablation_parts(lab.folder, losses, ablations, relations),
    )
    results = {"plan": sizes, "relations": relations, "losses": losses, "costs": ablations}
    return ExperimentReport(findings, parts, results)


class _HeadStudy:
    """A model, and the sentences on which its attention is recorded."""

    def __init__(self, lab: Laboratory, model: Translator, sizes: Mapping[str, int]) -> None:
        self.lab, self.model, self.sizes = lab, model, sizes

    def sentence_pairs(self, split: str) -> list[tuple[str, str, PhrasebookPair | None]]:
        """Return pairs of a split; of the phrasebook, with annotations and more of the informative ones."""
        if self.lab.corpus.name != "phrasebook":
            pairs = self.lab.corpus.pairs(split)[: self.sizes["random_pairs"] + self.sizes["informative_pairs"]]
            return [(source, target, None) for source, target in pairs]
        random = phrasebook(split, self.sizes["random_pairs"], seed=self.lab.seed)
        informative = phrasebook(split, self.sizes["informative_pairs"], seed=self.lab.seed, accept=is_informative)
        unique = {pair.source: pair for pair in (*random, *informative)}
        return [(pair.source, pair.target, pair) for pair in unique.values()]

    def record_pair(self, source: str, target: str) -> WordAttention:
        return word_attention(self.model.inspect(source, target=target))

    def record_split(self, split: str) -> list[WordAttention]:
        """Record the attention over the sentences of a split; those that are too long are left out."""
        pairs = self.sentence_pairs(split)
        texts = [(source, target) for source, target, _ in pairs]
        records = record_attention(self.model, texts, self.lab.on_event, f"heads: recording the {split} sentences")
        return [word_attention(record, gold) for record, (*_, gold) in zip(records, pairs, strict=True) if record]

    @cached_property
    def valid_sentences(self) -> list[WordAttention]:
        return self.record_split("valid")

    @cached_property
    def test_sentences(self) -> list[WordAttention]:
        return self.record_split("test")

    def measure_relations(self) -> Json:
        """Return the best head for each relation with its accuracy, and the accuracy of rules without attention."""
        rows = (self.measure_relation(relation) for relation in RELATIONS)
        return [row for row in rows if row is not None]

    def measure_relation(self, relation: Relation) -> dict[str, Json] | None:
        valid, test = score_heads(relation, self.valid_sentences), score_heads(relation, self.test_sentences)
        if valid is None or test is None:
            return None
        layer, head = valid.best_head
        hits = test.hits[:, layer, head]
        return {
            "relation": relation.name, "kind": relation.kind, "figure": relation.figure, "layer": layer, "head": head,
            "examples": len(hits), "chosen on": len(valid.hits),
            "validation": float(valid.hits[:, layer, head].mean()),
            "right": float(hits.mean()), "interval": wilson_interval(int(hits.sum()), len(hits)),
            "weight": float(test.weight[:, layer, head].mean()), "all": test.hits.mean(0).tolist(),
            **({} if relation.is_fixed_distance else self.compare_with_rules(relation, hits)),
            "shown": self.pick_example(relation, test, layer, head),
        }  # fmt: skip

    def compare_with_rules(self, relation: Relation, hits: Any) -> dict[str, Json]:
        """Compare a head with rules that do not use attention, each chosen on the validation sentences."""
        comparison: dict[str, Json] = {"position": self.compare_with_best_rule(POSITION_RULES, relation, hits)}
        if relation.name == ANTECEDENT:
            comparison["noun"] = self.compare_with_best_rule(NOUN_RULES, relation, hits)
            misled = ~rule_hits(NOUN_RULES["the nearest preceding noun"], relation, self.test_sentences)
            comparison["misled"] = {
                "examples": int(misled.sum()), "right": float(hits[misled].mean()) if misled.any() else None,
            }  # fmt: skip
        return comparison

    def compare_with_best_rule(self, rules: Mapping[str, Any], relation: Relation, hits: Any) -> Json:
        """Return the best rule, its accuracy, and the interval of the head's accuracy minus the rule's."""
        name = best_rule(rules, relation, self.valid_sentences)
        correct = rule_hits(rules[name], relation, self.test_sentences)
        return {
            "rule": name, "right": float(correct.mean()),
            "advantage": list(bootstrap_difference(hits, correct, self.lab.seed)),
        }  # fmt: skip

    def pick_example(self, relation: Relation, scores: HeadHits, layer: int, head: int) -> Json:
        """Return the example to draw: a clear hit of the head with a large distance."""

        def distance(example: RelationExample) -> int:
            return max(abs(word - example.anchor) for word in example.correct)

        examples = [
            (sentence, example)
            for sentence in self.test_sentences
            if relation.kind in sentence.weights
            for example in relation.find_examples(sentence, relation.kind)
        ]
        hits, weight = scores.hits[:, layer, head], scores.weight[:, layer, head]
        clear = weight >= min(0.5, float(np.median(weight)))
        candidates = [number for number in range(len(examples)) if hits[number] and clear[number]] or [0]
        sentence, example = max((examples[number] for number in candidates), key=lambda pair: distance(pair[1]))
        return {"texts": sentence.texts, "row": example.query}

    def measure_losses(self) -> Json:
        """Return the statistics of every head on validation sentences, and the loss added without it."""
        corpus = ParallelCorpus.from_files(*map(str, self.lab.corpus.valid))
        assert self.model.run, "the model of a laboratory is in a run directory"
        pairs = load_measured_pairs(self.model.run, self.model, corpus)
        return measure_heads(
            self.model, MeasuredText.from_pairs(self.model, pairs, self.sizes["loss_pairs"]), True, self.lab.on_event
        )

    def measure_ablations(self, losses: Json, seconds: float) -> Json:
        """Return the BLEU lost without a head, for the most important heads that the time allows."""
        pairs = self.lab.corpus.pairs("test")[: self.sizes["translated_pairs"]]
        whole = self.lab.measure_once("translations", lambda: self.translate_without(pairs, ()), sentences=len(pairs))
        ordered = sorted(losses["heads"], key=lambda row: -row["importance"])
        count = self.lab.measure_once(
            "heads to translate without",
            lambda: max(MIN_ABLATED_HEADS, int(seconds / (whole["seconds"] + 0.3))),
            of=len(ordered),
        )
        heads = [(row["kind"], row["layer"], row["head"]) for row in ordered[:count]]
        rows = [
            self.measure_ablation(head, pairs, whole["translations"], number) for number, head in enumerate(heads, 1)
        ]
        return {
            "sentences": len(pairs), "bleu": corpus_bleu(whole["translations"], [target for _, target in pairs]),
            "heads": sorted(rows, key=lambda row: -row["lost"]), "of": len(ordered), "chance": _SIGNIFICANCE,
        }  # fmt: skip

    def measure_ablation(self, head: HeadIndex, pairs: SentencePairs, whole: list[str], number: int) -> dict[str, Json]:
        """Compare the translations without a head with those of the whole model."""
        self.lab.on_event(ProgressUpdate("heads: translating with one head ablated", number))
        ablated = self.lab.measure_once(
            f"without {head_name(*head)}", partial(self.translate_without, pairs, (head,)), sentences=len(pairs)
        )["translations"]
        scores = compare_systems(ablated, whole, [target for _, target in pairs])
        changed = sum(output != expected for output, expected in zip(ablated, whole, strict=True))
        return {
            "kind": head[0], "layer": head[1], "head": head[2], "bleu": scores.ours.value,
            "lost": scores.theirs.value - scores.ours.value, "p": scores.p_value, "changed": changed / len(pairs),
        }  # fmt: skip

    def translate_without(self, pairs: SentencePairs, heads: tuple[HeadIndex, ...]) -> Json:
        """Translate the sources of pairs without some heads; return the translations and the seconds taken."""
        started_at = time.monotonic()
        engine = self.model.build_engine(self.model.decoding_config(), self.model.ablated_model(heads))
        hypotheses = engine.search([self.model.source_tokens(source) for source, _ in pairs])
        translations = [self.model.to_prediction(row[0]).text for row in hypotheses]
        return {"translations": translations, "seconds": time.monotonic() - started_at}
