"""Figures 3 to 5: what the heads of a trained model are there for, how often each is right, and what it is worth.

Which head is there for what is chosen on validation sentences; how often it is right is counted on test sentences.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dragoman.corpora.phrasebook import Pair, phrasebook
from dragoman.data.corpus import Corpus
from dragoman.evaluation.scores import bleu, compare
from dragoman.lab.head_findings import cost_findings, cost_parts, named, relation_findings, relation_parts
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.relations import (
    ANTECEDENT,
    NOUNS,
    POSITIONS,
    RELATIONS,
    Example,
    Marks,
    Relation,
    Sentence,
    best_rule,
    difference,
    interval,
    marks,
    obeyed,
    sentence,
    telling,
)
from dragoman.lab.report import Json, Report
from dragoman.lab.watching import records
from dragoman.model.knockout import Head, has_heads
from dragoman.tasks.events import Working
from dragoman.tasks.heads import Text, measured, pairs_to_measure
from dragoman.tasks.translator import Translator

TITLE = "Figures 3 to 5: what the heads are there for"
QUESTION = "Which heads look at a neighbour, at a far part of the same expression, at what a pronoun stands for?"
CLAIM = (
    "Section 4 and figures 3 to 5: heads learn different tasks, many of them about the structure of the sentence: one "
    "completes “making … more difficult”, two seem to find what “its” stands for. The paper shows examples; it counts "
    "none."
)

FULL_SECONDS = 180.0  # for which the sizes below are meant
FOR_BLEU = 0.5  # of the time, for translating without a head
FEWEST = 3  # heads that are judged by BLEU, however short the time
REAL = 0.01  # a loss of BLEU that chance makes less often than this is called one


@dataclass(frozen=True)
class Plan:
    """How much is read, for a share of the time."""

    plain: int  # sentences of any kind, of each split
    telling: int  # sentences with a pronoun or a far dependency
    loss: int  # sentences whose loss is measured without each head
    translated: int  # sentences translated without each head

    @classmethod
    def of(cls, seconds: float) -> "Plan":
        """Return the sizes for a budget."""
        sizes = ((100, 20), (400, 60), (300, 40), (200, 40))
        return cls(*(max(least, int(size * min(seconds / FULL_SECONDS, 4.0))) for size, least in sizes))


def run(lab: Laboratory) -> Report:
    """Find heads, count how often they are right, and switch them off one by one."""
    plan = Plan.of(lab.budget_seconds)
    study = Study(lab, lab.reference().translator, plan)
    began_at = time.monotonic()
    found = lab.kept("relations", study.relations, **vars(plan))
    losses = lab.kept("losses", study.losses, sentences=plan.loss) if has_heads(study.model.model) else None
    left = max(lab.budget_seconds - (time.monotonic() - began_at), FOR_BLEU * lab.budget_seconds)
    costs = study.costs(losses, left) if losses else None
    findings = (*relation_findings(found), *cost_findings(costs, found))
    parts = (*relation_parts(lab.folder, study.seen, found), *cost_parts(lab.folder, losses, costs, found))
    return Report(findings, parts, {"plan": vars(plan), "relations": found, "losses": losses, "costs": costs})


class Study:
    """A model, and the sentences that it is watched on."""

    def __init__(self, lab: Laboratory, model: Translator, plan: Plan) -> None:
        self.lab, self.model, self.plan = lab, model, plan

    def pairs(self, split: str) -> list[tuple[str, str, Pair | None]]:
        """Return the sentences of a split: any, and of the phrasebook more of those that tell something."""
        if self.lab.material.name != "phrasebook":
            pairs = self.lab.material.pairs(split)[: self.plan.plain + self.plan.telling]
            return [(source, target, None) for source, target in pairs]
        seed = self.lab.seed
        plain = phrasebook(split, self.plan.plain, seed=seed)
        chosen = phrasebook(split, self.plan.telling, seed=seed, keep=telling)
        return [(each.source, each.target, each) for each in {one.source: one for one in (*plain, *chosen)}.values()]

    def seen(self, source: str, target: str) -> Sentence:
        """Look at one sentence pair."""
        return sentence(self.model.look(source, target=target))

    def watched(self, split: str) -> list[Sentence]:
        """Record the attention of the sentences of a split; those that the model cannot read whole are passed over."""
        pairs = self.pairs(split)
        texts = [(source, target) for source, target, _ in pairs]
        found = records(self.model, texts, self.lab.listen, f"heads: watching the {split} sentences")
        return [sentence(one, gold) for one, (_, _, gold) in zip(found, pairs, strict=True) if one is not None]

    @cached_property
    def valid(self) -> list[Sentence]:
        """The sentences that heads are chosen on."""
        return self.watched("valid")

    @cached_property
    def test(self) -> list[Sentence]:
        """The sentences that they are judged on."""
        return self.watched("test")

    def relations(self) -> Json:
        """Return for each relation the head that serves it best, how often it is right, and how often a rule is."""
        found = (self.relation(relation) for relation in RELATIONS)
        return [each for each in found if each is not None]

    def relation(self, relation: Relation) -> dict[str, Json] | None:
        """Choose a head on the validation sentences and judge it on the test sentences."""
        chosen, judged = marks(relation, self.valid), marks(relation, self.test)
        if chosen is None or judged is None:
            return None
        layer, head = chosen.best
        right = judged.right[:, layer, head]
        return {
            "relation": relation.name, "kind": relation.kind, "figure": relation.figure, "layer": layer, "head": head,
            "examples": len(right), "chosen on": len(chosen.right),
            "validation": float(chosen.right[:, layer, head].mean()),
            "right": float(right.mean()), "interval": interval(int(right.sum()), len(right)),
            "weight": float(judged.weight[:, layer, head].mean()), "all": judged.right.mean(0).tolist(),
            **({} if relation.fixed else self.rules(relation, right)),
            "shown": self.shown(relation, judged, layer, head),
        }  # fmt: skip

    def rules(self, relation: Relation, right: Any) -> dict[str, Json]:
        """Compare a head with rules that see no weights, each chosen on the validation sentences."""
        found: dict[str, Json] = {"position": self.rule(POSITIONS, relation, right)}
        if relation.name == ANTECEDENT:
            found["noun"] = self.rule(NOUNS, relation, right)
            nearest = obeyed(NOUNS["the nearest noun before"], relation, self.test)
            found["misled"] = {
                "examples": int((~nearest).sum()), "right": float(right[~nearest].mean()) if (~nearest).any() else None,
            }  # fmt: skip
        return found

    def rule(self, rules: Mapping[str, Any], relation: Relation, right: Any) -> Json:
        """Choose a rule and count how often it is right, and the interval of the head's advantage."""
        name = best_rule(rules, relation, self.valid)
        theirs = obeyed(rules[name], relation, self.test)
        low, high = difference(right, theirs, self.lab.seed)
        return {"rule": name, "right": float(theirs.mean()), "advantage": [low, high]}

    def shown(self, relation: Relation, judged: Marks, layer: int, head: int) -> Json:
        """Return the example to draw: one that the head gets right, and of these one with much in between."""
        places = [(one, each) for one in self.test if relation.kind in one.weights for each in examples(relation, one)]
        right = judged.right[:, layer, head]
        clear = judged.weight[:, layer, head] >= min(0.5, float(np.median(judged.weight[:, layer, head])))
        wanted = [number for number in range(len(places)) if right[number] and clear[number]] or [0]
        one, example = max((places[number] for number in wanted), key=lambda place: span(place[1]))
        return {"texts": one.texts, "row": example.row}

    def losses(self) -> Json:
        """Return the statistics of every head on validation sentences, and the loss that it spares the model."""
        corpus = Corpus.of(*map(str, self.lab.material.valid))
        assert self.model.run, "the model of a laboratory lies in a run"
        text = Text.of(self.model, pairs_to_measure(self.model.run, self.model, corpus), self.plan.loss)
        return measured(self.model, text, True, self.lab.listen)

    def costs(self, losses: Json, seconds: float) -> Json:
        """Return the BLEU that is lost without a head: of as many heads as there is time for, the costliest in loss."""
        pairs = self.lab.material.pairs("test")[: self.plan.translated]
        whole = self.lab.kept("translations", lambda: self.timed(pairs, ()), sentences=len(pairs))
        ordered = sorted(losses["heads"], key=lambda each: -each["importance"])
        count = self.lab.kept(
            "heads to translate without", lambda: max(FEWEST, int(seconds / (whole["seconds"] + 0.3))), of=len(ordered)
        )
        heads = [(each["kind"], each["layer"], each["head"]) for each in ordered[:count]]
        rows = [self.cost(head, pairs, whole["translations"], number) for number, head in enumerate(heads, 1)]
        rows.sort(key=lambda row: -row["lost"])
        references = [target for _, target in pairs]
        return {
            "sentences": len(pairs), "bleu": bleu(whole["translations"], references), "heads": rows,
            "of": len(ordered), "chance": REAL,
        }  # fmt: skip

    def cost(self, head: Head, pairs: Sequence[tuple[str, str]], whole: list[str], number: int) -> dict[str, Json]:
        """Translate without a head and compare."""
        self.lab.listen(Working("heads: translating without a head", number))
        without = self.lab.kept(f"without {named(*head)}", lambda: self.timed(pairs, (head,)), sentences=len(pairs))
        ours, references = without["translations"], [target for _, target in pairs]
        judged = compare(ours, whole, references)
        changed = sum(one != other for one, other in zip(ours, whole, strict=True))
        return {
            "kind": head[0], "layer": head[1], "head": head[2], "bleu": judged.ours.value,
            "lost": judged.theirs.value - judged.ours.value, "p": judged.p_value, "changed": changed / len(pairs),
        }  # fmt: skip

    def timed(self, pairs: Sequence[tuple[str, str]], heads: tuple[Head, ...]) -> Json:
        """Translate the sources of some pairs without some heads, and say how long it took."""
        began_at = time.monotonic()
        engine = self.model.engine(self.model.decoding(), self.model.knocked_out(heads))
        found = engine.search([self.model.source_tokens(source) for source, _ in pairs])
        translations = [self.model.read_back(row[0]).text for row in found]
        return {"translations": translations, "seconds": time.monotonic() - began_at}


def examples(relation: Relation, one: Sentence) -> list[Example]:
    """Return the examples of a relation in a sentence."""
    return list(relation.examples(one, relation.kind))


def span(example: Example) -> int:
    """Return how far away the right word is."""
    return max(abs(place - example.anchor) for place in example.right)
