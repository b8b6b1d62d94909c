"""Figures 3 to 5: the relations between words that heads attend to, how reliably, and the BLEU that each head is worth.

The head for a relation is chosen on validation sentences and scored on test sentences.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dragoman.corpora.phrasebook import PhrasebookPair, phrasebook
from dragoman.data.corpus import ParallelCorpus
from dragoman.evaluation.scores import compare_systems, corpus_bleu
from dragoman.lab.corpus import SentencePairs
from dragoman.lab.laboratory import Laboratory
from dragoman.lab.plots import COLOURS, DPI, add_colorbar, draw_heat_map, label_axes, save_figure, subplots
from dragoman.lab.relations import (
    ANTECEDENT,
    FAR_PART,
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
from dragoman.model_config import AttentionKind, HeadIndex
from dragoman.models.head_ablation import can_ablate_heads
from dragoman.report import Cell, ExperimentReport, Json, ReportPart, ReportPicture, ReportTable, format_difference
from dragoman.tasks.attention import record_attention
from dragoman.tasks.events import ProgressUpdate
from dragoman.tasks.head_report import MeasuredText, load_measured_pairs, measure_heads
from dragoman.tasks.translate import Translator
from dragoman.viewer.line_picture import draw_attention_lines, draw_words
from dragoman.viewer.record import END_PIECE, START_PIECE, AttentionWeights
from dragoman.viewer.words import WordSpan

TITLE = "Figures 3 to 5: what heads attend to"
QUESTION = (
    "Which heads attend to a neighbour, to a distant part of the same expression or to the antecedent of a pronoun?"
)
CLAIM = (
    "Section 4 and figures 3 to 5: heads learn different tasks, many of them related to the structure of the sentence: "
    "one completes “making … more difficult”, two seem to resolve “its”. The paper shows examples without counts."
)

MIN_ABLATED_HEADS = 3  # whose BLEU is measured, however small the budget
_FULL_SECONDS = 180.0  # the budget for the sizes of _SampleSizes
_BLEU_TIME_SHARE = 0.5  # of the budget, for translating without a head
_SIGNIFICANCE = 0.01  # p-value below which a loss of BLEU is reported
_WORD_WIDTH, _LETTER_WIDTH, _LINES_HEIGHT = 0.34, 0.085, 1.5  # inches
_KIND_COLOURS: dict[AttentionKind, str] = {"encoder": COLOURS[0], "decoder": COLOURS[1], "cross": COLOURS[2]}


@dataclass(frozen=True)
class _SampleSizes:
    """Numbers of sentence pairs."""

    random_pairs: int  # per split
    informative_pairs: int  # per split, with a pronoun or a distant dependency
    loss_pairs: int  # for the loss without each head
    translated_pairs: int  # for the BLEU without each head

    @classmethod
    def for_budget(cls, seconds: float) -> "_SampleSizes":
        sizes = ((100, 20), (400, 60), (300, 40), (200, 40))
        return cls(*(max(minimum, int(size * min(seconds / _FULL_SECONDS, 4.0))) for size, minimum in sizes))


def run(lab: Laboratory) -> ExperimentReport:
    """Find the best head for each relation, score it, and ablate heads one by one."""
    sizes = _SampleSizes.for_budget(lab.budget_seconds)
    study = _HeadStudy(lab, lab.reference_model().translator, sizes)
    started_at = time.monotonic()
    relations = lab.measure_once("relations", study.measure_relations, **vars(sizes))
    losses = ablations = None
    if can_ablate_heads(study.model.model):
        losses = lab.measure_once("losses", study.measure_losses, sentences=sizes.loss_pairs)
        remaining = lab.budget_seconds - (time.monotonic() - started_at)
        ablations = study.measure_ablations(losses, max(remaining, _BLEU_TIME_SHARE * lab.budget_seconds))
    findings = (*relation_findings(relations), *ablation_findings(ablations, relations))
    parts = (
        *_relation_parts(lab.folder, study.record_pair, relations),
        *_ablation_parts(lab.folder, losses, ablations, relations),
    )
    results = {"plan": vars(sizes), "relations": relations, "losses": losses, "costs": ablations}
    return ExperimentReport(findings, parts, results)


# Measurements


class _HeadStudy:
    """A model, and the sentences on which its attention is recorded."""

    def __init__(self, lab: Laboratory, model: Translator, sizes: _SampleSizes) -> None:
        self.lab, self.model, self.sizes = lab, model, sizes

    def sentence_pairs(self, split: str) -> list[tuple[str, str, PhrasebookPair | None]]:
        """Return pairs of a split; of the phrasebook, with annotations and more of the informative ones."""
        if self.lab.corpus.name != "phrasebook":
            pairs = self.lab.corpus.pairs(split)[: self.sizes.random_pairs + self.sizes.informative_pairs]
            return [(source, target, None) for source, target in pairs]
        random = phrasebook(split, self.sizes.random_pairs, seed=self.lab.seed)
        informative = phrasebook(split, self.sizes.informative_pairs, seed=self.lab.seed, accept=is_informative)
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
        examples = [
            (sentence, example)
            for sentence in self.test_sentences
            if relation.kind in sentence.weights
            for example in relation.find_examples(sentence, relation.kind)
        ]
        hits, weight = scores.hits[:, layer, head], scores.weight[:, layer, head]
        clear = weight >= min(0.5, float(np.median(weight)))
        candidates = [number for number in range(len(examples)) if hits[number] and clear[number]] or [0]
        sentence, example = max((examples[number] for number in candidates), key=lambda pair: _distance(pair[1]))
        return {"texts": sentence.texts, "row": example.query}

    def measure_losses(self) -> Json:
        """Return the statistics of every head on validation sentences, and the loss added without it."""
        corpus = ParallelCorpus.from_files(*map(str, self.lab.corpus.valid))
        assert self.model.run, "the model of a laboratory is in a run directory"
        pairs = load_measured_pairs(self.model.run, self.model, corpus)
        return measure_heads(
            self.model, MeasuredText.from_pairs(self.model, pairs, self.sizes.loss_pairs), True, self.lab.on_event
        )

    def measure_ablations(self, losses: Json, seconds: float) -> Json:
        """Return the BLEU lost without a head, for the most important heads that the time allows."""
        pairs = self.lab.corpus.pairs("test")[: self.sizes.translated_pairs]
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
            f"without {_head_name(*head)}", partial(self.translate_without, pairs, (head,)), sentences=len(pairs)
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


def _distance(example: RelationExample) -> int:
    return max(abs(word - example.anchor) for word in example.correct)


# Findings


def _head_name(kind: str, layer: int, head: int) -> str:
    """Return the name of a head as in `dragoman attention --heads`, counted from 1."""
    return f"{kind}.{layer + 1}.{head + 1}"


def _row_head(row: Mapping[str, Json]) -> str:
    return _head_name(row["kind"], row["layer"], row["head"])


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def _interval(low: float, high: float, sign: str = "") -> str:
    return f"{100 * low:{sign}.0f} to {100 * high:{sign}.0f}".replace("-", "−")


def relation_findings(relations: list[dict[str, Json]]) -> list[str]:
    """Return a sentence for each relation that the paper's figures show."""
    findings = [relation_finding(row) for row in relations if row["figure"] in (3, 4)]
    positional = max((row for row in relations if row["figure"] == 5), key=lambda row: row["right"], default=None)
    if positional:
        findings.append(
            f"The strongest positional head is {_row_head(positional)}: its largest weight is on "
            f"{positional['relation']} for {_percent(positional['right'])} of the words "
            f"({_interval(*positional['interval'])} %)."
        )
    if not any(row["relation"] == ANTECEDENT for row in relations):
        findings.append("This corpus has no annotated antecedents, so there is no result for them.")
    return findings


def relation_finding(row: dict[str, Json]) -> str:
    """Return a sentence with the accuracy of the best head for a relation and of the best rules."""
    rule, (low, high) = row["position"], row["position"]["advantage"]
    if low > 0:
        subject = f"{_row_head(row)} attends to {row['relation']} and"
    else:
        subject = f"No {row['kind']} head clearly attends to {row['relation']}; the best, {_row_head(row)},"
    finding = (
        f"{subject} is correct in {_percent(row['right'])} of {row['examples']} test examples "
        f"({_interval(*row['interval'])} %). The best positional rule, {rule['rule']}, is correct in "
        f"{_percent(rule['right'])} (head minus rule: {_interval(low, high, '+')} points)."
    )
    if "noun" not in row:
        return finding
    noun, misled = row["noun"], row["misled"]
    finding += f" The best rule that uses nouns, {noun['rule']}, is correct in {_percent(noun['right'])}"
    if not misled["examples"]:
        return f"{finding}."
    wrong = f"in the {misled['examples']} examples where the nearest noun is wrong"
    return f"{finding}; {wrong}, the head is correct in {_percent(misled['right'])}."


def ablation_findings(ablations: Json, relations: list[dict[str, Json]]) -> list[str]:
    """Return sentences on the BLEU without the most important head and without the one for antecedents."""
    if not ablations:
        return ["The attention of this architecture has no heads that can be ablated."]
    rows = ablations["heads"]
    significant = [row for row in rows if row["p"] < ablations["chance"] and row["lost"] > 0]
    findings = [
        f"Without {_row_head(rows[0])}, the most important head, BLEU drops from {ablations['bleu']:.1f} to "
        f"{rows[0]['bleu']:.1f} on {ablations['sentences']} test sentences; {len(significant)} of {len(rows)} heads, "
        f"ablated one at a time, cause a significant loss (p < {ablations['chance']})."
    ]
    by_head = {_row_head(row): row for row in rows}
    for row in relations:
        if row["relation"] == ANTECEDENT and _row_head(row) in by_head:
            ablation = by_head[_row_head(row)]
            findings.append(
                f"Without {_row_head(row)}, the best head for antecedents, BLEU changes by "
                f"{format_difference(-ablation['lost'])} (p = {ablation['p']:.3f}) and "
                f"{_percent(ablation['changed'])} of the translations change."
            )
    return findings


# Tables and pictures


def _short_name(relation: str) -> str:
    return {ANTECEDENT: "antecedent", FAR_PART: "distant part"}.get(relation, relation)


def _relation_parts(
    folder: Path, record_pair: Callable[[str, str], WordAttention], relations: list[dict[str, Json]]
) -> list[ReportPart]:
    header = (
        "attends to", "head", "correct", "95 % interval", "examples", "weight", "best positional rule", "correct",
        "best rule with nouns", "correct",
    )  # fmt: skip
    note = (
        "A head is correct if its largest weight is on the expected word. Heads and rules were chosen on validation "
        "sentences and scored on test sentences. Relations at a fixed distance are not compared with positional rules. "
        "The parts of an expression come from the gold alignment: words aligned to the same word of the other language."
    )
    parts: list[ReportPart] = [ReportTable("What heads attend to", header, tuple(map(_relation_row, relations)), note)]
    grids = {
        f"{row['kind']}: {_short_name(row['relation'])}": row["all"] for row in relations if row["figure"] in (3, 4)
    }
    if grids:
        file = _draw_accuracy_grids(grids, folder / "accuracy.png")
        parts.append(ReportPicture(file, "Share of test examples in which a head is correct, by layer and head."))
    return [*parts, *_draw_paper_figures(folder, record_pair, relations)]


def _relation_row(row: dict[str, Json]) -> tuple[Cell, ...]:
    position, noun = row.get("position"), row.get("noun")
    return (
        f"{row['kind']}: {row['relation']}", _row_head(row), _percent(row["right"]), _interval(*row["interval"]),
        row["examples"], f"{row['weight']:.2f}",
        position["rule"] if position else "", _percent(position["right"]) if position else "",
        noun["rule"] if noun else "", _percent(noun["right"]) if noun else "",
    )  # fmt: skip


def _ablation_parts(folder: Path, losses: Json, ablations: Json, relations: list[dict[str, Json]]) -> list[ReportPart]:
    if not ablations:
        return []
    best_at: dict[str, list[str]] = {}
    for row in relations:
        best_at.setdefault(_row_head(row), []).append(_short_name(row["relation"]))
    statistics = {_row_head(row): row for row in losses["heads"]}
    rows = tuple(
        (
            name, f"{row['bleu']:.1f}", f"{row['lost']:.1f}", f"{row['p']:.3f}", _percent(row["changed"]),
            f"{statistics[name]['importance']:.4f}", ", ".join(best_at.get(name, [])),
            ", ".join(statistics[name]["badges"]),
        )
        for row in ablations["heads"]
        for name in (_row_head(row),)
    )  # fmt: skip
    header = ("without", "BLEU", "lost", "p", "translations changed", "loss added", "best at", "badges")
    selection = (
        "" if len(rows) == ablations["of"] else f" Shown: the {len(rows)} most important of {ablations['of']} heads."
    )
    note = (
        f"BLEU of the whole model: {ablations['bleu']:.1f} on {ablations['sentences']} test sentences. p is from "
        f"paired bootstrap resampling. The added loss is per target token of the validation text.{selection}"
    )
    file = _draw_ablations(ablations, folder / "ablation.png")
    return [
        ReportTable("BLEU without a head", header, rows, note),
        ReportPicture(file, "BLEU lost without a head; grey: differences that are not significant."),
    ]


def _draw_ablations(ablations: Json, path: Path) -> str:
    rows = ablations["heads"]
    noise = max((abs(row["lost"]) for row in rows if row["p"] >= ablations["chance"]), default=0.0)
    figure, (axes,) = subplots(height=max(2.4, 0.24 * len(rows) + 1.0))
    axes.barh(range(len(rows)), [row["lost"] for row in rows], color=[_KIND_COLOURS[row["kind"]] for row in rows])
    axes.set_yticks(range(len(rows)), [_row_head(row) for row in rows])
    axes.invert_yaxis()
    axes.axvspan(-noise, noise, color="0.5", alpha=0.15, linewidth=0, zorder=0)
    label_axes(axes, title="BLEU without a head", x_label="BLEU lost", y_label="")
    handles = [Patch(color=colour, label=kind) for kind, colour in _KIND_COLOURS.items()]
    handles += [Patch(color="0.5", alpha=0.15, label="not significant")] if noise else []
    axes.legend(handles=handles, fontsize=8, loc="lower right")
    return save_figure(figure, path)


def _draw_accuracy_grids(grids: Mapping[str, Sequence[Sequence[float]]], path: Path) -> str:
    columns = min(3, len(grids))
    height = 1.4 + 0.45 * max(len(grid) for grid in grids.values())
    figure, axes = subplots(columns, -(-len(grids) // columns), height=height)
    maximum = max(value for grid in grids.values() for row in grid for value in row)
    for panel, (name, grid) in zip(axes, grids.items(), strict=False):
        numbers = {
            "columns": [str(head + 1) for head in range(len(grid[0]))],
            "rows": [str(layer + 1) for layer in range(len(grid))],
        }
        image = draw_heat_map(panel, grid, maximum, title=name, x_label="head", y_label="layer", **numbers)
    for panel in axes[len(grids) :]:
        panel.set_axis_off()
    add_colorbar(figure, image, axes, "share of correct test examples")
    return save_figure(figure, path)


# The paper's figures 3 to 5: attending words above, attended words below, a line as strong as the weight per head


@dataclass(frozen=True)
class _LinesPanel:
    """The lines of some heads over one sentence."""

    title: str
    query_words: tuple[str, ...]
    key_words: tuple[str, ...]
    head_weights: Mapping[str, AttentionWeights]  # R C by name, the last column for START or END
    kind: AttentionKind
    selected_queries: frozenset[int] = frozenset()  # empty: all


def _draw_paper_figures(
    folder: Path, record_pair: Callable[[str, str], WordAttention], relations: list[dict[str, Json]]
) -> list[ReportPart]:
    parts: list[ReportPart] = []
    by_figure = {
        figure: sorted((row for row in relations if row["figure"] == figure), key=lambda row: -row["right"])
        for figure in (3, 4, 5)
    }
    if by_figure[3]:
        row = by_figure[3][0]
        panel = _relation_panel(record_pair, row, whole_layer=True, isolated=True)
        caption = (
            f"Like figure 3: the attention of the heads of layer {row['layer'] + 1} ({row['kind']}) from one word to a "
            "distant part of the same expression."
        )
        parts.append(ReportPicture(_draw_line_figure([panel], folder / "figure-3.png"), caption))
    if by_figure[4]:
        row = by_figure[4][0]
        panels = [
            _relation_panel(record_pair, row),
            _relation_panel(record_pair, row, isolated=True, second=True),
        ]
        caption = (
            f"Like figure 4: the attention of head {_row_head(row)} over a sentence (top), and that of this head and "
            "the second-best head from the pronoun (bottom)."
        )
        parts.append(ReportPicture(_draw_line_figure(panels, folder / "figure-4.png"), caption))
    if by_figure[5]:
        rows = by_figure[5][:2]
        panels = [_relation_panel(record_pair, row) for row in rows]
        names = " and ".join(f"{_row_head(row)} ({row['relation']})" for row in rows)
        caption = f"Like figure 5: heads that follow the structure of the sentence, {names}."
        parts.append(ReportPicture(_draw_line_figure(panels, folder / "figure-5.png"), caption))
    return parts


def _relation_panel(
    record_pair: Callable[[str, str], WordAttention], row: dict[str, Json], *, whole_layer: bool = False,
    isolated: bool = False, second: bool = False,
) -> _LinesPanel:  # fmt: skip
    """Return the panel of a relation's example: its head, its head and the second best, or all heads of the layer."""
    sentence, kind, layer = record_pair(*row["shown"]["texts"]), row["kind"], row["layer"]
    heads = [(layer, row["head"])]
    if whole_layer:
        heads = [(layer, head) for head in range(len(row["all"][layer]))]
    if second:
        order = np.argsort(-np.array(row["all"]), axis=None)[:3]
        best = [divmod(int(index), len(row["all"][0])) for index in order]
        heads += [head for head in best if head not in heads][:1]
    return _LinesPanel(
        f"{_row_head(row)}: {_short_name(row['relation'])}",
        sentence.source if kind == "encoder" else sentence.target,
        sentence.key_words(kind),
        {_head_name(kind, *head): sentence.weights[kind][head] for head in heads},
        kind,
        frozenset((row["shown"]["row"],)) if isolated else frozenset(),
    )


def _draw_line_figure(panels: Sequence[_LinesPanel], path: Path) -> str:
    """Draw panels below one another and return the file name."""
    words = max(max(len(panel.query_words), len(panel.key_words)) for panel in panels)
    letters = [
        _LETTER_WIDTH * max(len(word) for word in (*panel.query_words, *panel.key_words, END_PIECE)) for panel in panels
    ]
    heights = [_LINES_HEIGHT + 2 * height + 0.8 for height in letters]
    width = max(_WORD_WIDTH * (1 + words) + 0.6, 5.0)
    figure, axes = subplots(rows=len(panels), width=width, height=sum(heights) / len(heights))
    for panel, panel_axes, height in zip(panels, axes, letters, strict=True):
        _draw_panel(panel_axes, panel)
        panel_axes.set_title(panel.title, fontsize=9, pad=72 * height + 8)
    figure.savefig(path, dpi=DPI, bbox_inches="tight")
    return path.name


def _draw_panel(axes: Axes, panel: _LinesPanel) -> None:
    special = START_PIECE if panel.kind == "decoder" else END_PIECE
    keys = [
        *(WordSpan(name, i, i + 1) for i, name in enumerate(panel.key_words)),
        WordSpan(special, 0, 1, special=True),
    ]
    shift = 1 if panel.kind == "decoder" else 0  # START is the first key
    keys = keys[-1:] + keys[:-1] if shift else keys
    queries = sorted(panel.selected_queries) or list(range(len(panel.query_words)))
    for number, weights in enumerate(panel.head_weights.values()):
        draw_attention_lines(axes, np.roll(weights, shift, axis=-1), queries, to_rgba(COLOURS[number % len(COLOURS)]))
    axes.set_axis_off()
    axes.set_xlim(-0.7, max(len(panel.query_words), len(keys)) - 0.3)
    axes.set_ylim(0, 1)
    draw_words(axes, [WordSpan(name, 0, 1) for name in panel.query_words], 1.03, "bottom", set(panel.selected_queries))
    draw_words(axes, keys, -0.03, "top", set())
    handles = [Line2D([], [], color=COLOURS[i % len(COLOURS)], label=name) for i, name in enumerate(panel.head_weights)]
    axes.legend(handles=handles, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
