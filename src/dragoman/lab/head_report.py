"""The findings, tables and pictures of `lab/heads.py`, made from its stored results."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np

from dragoman.figures import Axes, Line2D, Patch, to_rgba
from dragoman.lab.plots import COLOURS, add_colorbar, draw_heat_map, label_axes, save_picture, subplots
from dragoman.lab.relations import ANTECEDENT, FAR_PART, WordAttention
from dragoman.model_config import AttentionKind
from dragoman.report import Cell, Json, ReportPart, ReportPicture, ReportTable, format_number
from dragoman.viewer.line_picture import draw_attention_lines, draw_words
from dragoman.viewer.record import END_PIECE, START_PIECE
from dragoman.viewer.words import WordSpan

_KIND_COLOURS: dict[AttentionKind, str] = {"encoder": COLOURS[0], "decoder": COLOURS[1], "cross": COLOURS[2]}
_WORD_WIDTH, _LETTER_WIDTH, _LINES_HEIGHT = 0.34, 0.085, 1.5  # inches

_Row = Mapping[str, Json]  # the result of one relation or of one ablated head


def head_name(kind: str, layer: int, head: int) -> str:
    """Return the name of a head as in `dragoman attention --heads`, counted from 1."""
    return f"{kind}.{layer + 1}.{head + 1}"


def _row_head(row: _Row) -> str:
    return head_name(row["kind"], row["layer"], row["head"])


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def _interval(low: float, high: float, sign: str = "") -> str:
    return " to ".join(format_number(100 * end, f"{sign}.0f") for end in (low, high))


def _short_name(relation: str) -> str:
    return {ANTECEDENT: "antecedent", FAR_PART: "distant part"}.get(relation, relation)


# Findings


def relation_findings(relations: Sequence[_Row]) -> list[str]:
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


def relation_finding(row: _Row) -> str:
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


def ablation_findings(ablations: Json, relations: Sequence[_Row]) -> list[str]:
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
                f"{format_number(-ablation['lost'], '+.1f')} (p = {ablation['p']:.3f}) and "
                f"{_percent(ablation['changed'])} of the translations change."
            )
    return findings


# Tables and pictures


def relation_parts(folder: Path, relations: Sequence[_Row]) -> list[ReportPart]:
    """Return the table of relations and a picture of the accuracy of all heads."""
    header = (
        "attends to", "head", "correct", "95 % interval", "examples", "weight", "best positional rule", "correct",
        "best rule with nouns", "correct",
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for row in relations:
        rules = [row.get(kind) for kind in ("position", "noun")]
        compared = (cell for rule in rules for cell in ((rule["rule"], _percent(rule["right"])) if rule else ("", "")))
        rows.append(
            (
                f"{row['kind']}: {row['relation']}", _row_head(row), _percent(row["right"]),
                _interval(*row["interval"]), row["examples"], f"{row['weight']:.2f}", *compared,
            )
        )  # fmt: skip
    note = (
        "A head is correct if its largest weight is on the expected word. Heads and rules were chosen on validation "
        "sentences and scored on test sentences. Relations at a fixed distance are not compared with positional rules. "
        "The parts of an expression come from the gold alignment: words aligned to the same word of the other language."
    )
    grids = {
        f"{row['kind']}: {_short_name(row['relation'])}": row["all"] for row in relations if row["figure"] in (3, 4)
    }
    table = ReportTable("What heads attend to", header, rows, note)
    return [table, _draw_accuracy_grids(grids, folder / "accuracy.png")] if grids else [table]


def _draw_accuracy_grids(grids: Mapping[str, Sequence[Sequence[float]]], path: Path) -> ReportPicture:
    columns = min(3, len(grids))
    height = 1.4 + 0.45 * max(len(grid) for grid in grids.values())
    figure, axes = subplots(columns, -(-len(grids) // columns), height=height)
    maximum = max(value for grid in grids.values() for row in grid for value in row)
    for panel, (name, grid) in zip(axes, grids.items(), strict=False):
        layers, heads = ([str(number + 1) for number in range(size)] for size in (len(grid), len(grid[0])))
        image = draw_heat_map(
            panel, grid, maximum, title=name, columns=heads, rows=layers, x_label="head", y_label="layer"
        )
    for panel in axes[len(grids) :]:
        panel.set_axis_off()
    add_colorbar(figure, image, axes, "share of correct test examples")
    return save_picture(figure, path, "Share of test examples in which a head is correct, by layer and head.")


def ablation_parts(folder: Path, losses: Json, ablations: Json, relations: Sequence[_Row]) -> list[ReportPart]:
    """Return a table and a picture of the BLEU without a head."""
    if not ablations:
        return []
    best_at: dict[str, list[str]] = {}
    for row in relations:
        best_at.setdefault(_row_head(row), []).append(_short_name(row["relation"]))
    statistics = {_row_head(row): row for row in losses["heads"]}
    rows: list[tuple[Cell, ...]] = []
    for row in ablations["heads"]:
        name = _row_head(row)
        rows.append(
            (
                name, f"{row['bleu']:.1f}", f"{row['lost']:.1f}", f"{row['p']:.3f}", _percent(row["changed"]),
                f"{statistics[name]['importance']:.4f}", ", ".join(best_at.get(name, [])),
                ", ".join(statistics[name]["badges"]),
            )
        )  # fmt: skip
    header = ("without", "BLEU", "lost", "p", "translations changed", "loss added", "best at", "badges")
    selection = f" Shown: the {len(rows)} most important of {ablations['of']} heads."
    note = (
        f"BLEU of the whole model: {ablations['bleu']:.1f} on {ablations['sentences']} test sentences. p is from "
        "paired bootstrap resampling. The added loss is per target token of the validation text."
    ) + (selection if len(rows) < ablations["of"] else "")
    table = ReportTable("BLEU without a head", header, rows, note)
    return [table, _draw_ablations(ablations, folder / "ablation.png")]


def _draw_ablations(ablations: Json, path: Path) -> ReportPicture:
    rows = ablations["heads"]
    noise = max((abs(row["lost"]) for row in rows if row["p"] >= ablations["chance"]), default=0.0)
    figure, (axes,) = subplots(height=max(2.4, 0.24 * len(rows) + 1.0))
    axes.barh(range(len(rows)), [row["lost"] for row in rows], color=[_KIND_COLOURS[row["kind"]] for row in rows])
    axes.set_yticks(range(len(rows)), [_row_head(row) for row in rows])
    axes.invert_yaxis()
    axes.axvspan(-noise, noise, color="0.5", alpha=0.15, linewidth=0, zorder=0)
    label_axes(axes, title="BLEU without a head", x_label="BLEU lost")
    handles = [Patch(color=colour, label=kind) for kind, colour in _KIND_COLOURS.items()]
    handles += [Patch(color="0.5", alpha=0.15, label="not significant")] if noise else []
    axes.legend(handles=handles, fontsize=8, loc="lower right")
    return save_picture(figure, path, "BLEU lost without a head; grey: differences that are not significant.")


# The paper's figures 3 to 5: attending words above, attended words below, a line as strong as the weight per head

_Panel = tuple[_Row, list[tuple[int, int]], bool]  # a relation, heads, and whether to show its example's word alone


def draw_paper_figures(
    folder: Path, record_pair: Callable[[str, str], WordAttention], relations: Sequence[_Row]
) -> list[ReportPicture]:
    """Draw figures like the paper's 3 to 5 with the best relations; `record_pair` returns the attention of a pair."""

    def draw(number: int, panels: list[_Panel], caption: str) -> ReportPicture:
        sentences = [record_pair(*row["shown"]["texts"]) for row, *_ in panels]
        return _draw_panels(folder / f"figure-{number}.png", f"Like figure {number}: {caption}", panels, sentences)

    pictures = []
    best = {
        figure: sorted((row for row in relations if row["figure"] == figure), key=lambda row: -row["right"])
        for figure in (3, 4, 5)
    }
    for row in best[3][:1]:
        layer = [(row["layer"], head) for head in range(len(row["all"][0]))]
        caption = f"the attention of the heads of layer {row['layer'] + 1} ({row['kind']}) from one word to a distant "
        pictures.append(draw(3, [(row, layer, True)], caption + "part of the same expression."))
    for row in best[4][:1]:
        own = (row["layer"], row["head"])
        order = np.argsort(-np.array(row["all"]), axis=None)[:3].tolist()
        second = [head for head in (divmod(index, len(row["all"][0])) for index in order) if head != own][:1]
        caption = f"the attention of head {_row_head(row)} over a sentence (top), and that of this head and the "
        panels = [(row, [own], False), (row, [own, *second], True)]
        pictures.append(draw(4, panels, caption + "second-best head from the pronoun (bottom)."))
    if rows := best[5][:2]:
        names = " and ".join(f"{_row_head(row)} ({row['relation']})" for row in rows)
        panels = [(row, [(row["layer"], row["head"])], False) for row in rows]
        pictures.append(draw(5, panels, f"heads that follow the structure of the sentence, {names}."))
    return pictures


def _draw_panels(
    path: Path, caption: str, panels: Sequence[_Panel], sentences: Sequence[WordAttention]
) -> ReportPicture:
    """Draw panels below one another."""
    sides = [
        (one.query_words(row["kind"]), one.key_words(row["kind"]))
        for one, (row, *_) in zip(sentences, panels, strict=True)
    ]
    letters = [_LETTER_WIDTH * max(map(len, (*queries, *keys, END_PIECE))) for queries, keys in sides]
    width = max(_WORD_WIDTH * (1 + max(len(words) for side in sides for words in side)) + 0.6, 5.0)
    height = sum(_LINES_HEIGHT + 2 * letter_height + 0.8 for letter_height in letters) / len(panels)
    figure, axes = subplots(rows=len(panels), width=width, height=height)
    for panel, one, panel_axes, letter_height in zip(panels, sentences, axes, letters, strict=True):
        _draw_panel(panel_axes, panel, one)
        title = f"{_row_head(panel[0])}: {_short_name(panel[0]['relation'])}"
        panel_axes.set_title(title, fontsize=9, pad=72 * letter_height + 8)
    return save_picture(figure, path, caption, tight=True)


def _draw_panel(axes: Axes, panel: _Panel, sentence: WordAttention) -> None:
    row, heads, isolated = panel
    kind, queries = row["kind"], sentence.query_words(row["kind"])
    keys = [WordSpan(name, 0, 1) for name in sentence.key_words(kind)]
    special = WordSpan(START_PIECE if kind == "decoder" else END_PIECE, 0, 1, special=True)
    keys = [special, *keys] if kind == "decoder" else [*keys, special]
    selected = [row["shown"]["row"]] if isolated else []
    lines = []
    for colour, head in zip(cycle(COLOURS), heads, strict=False):
        weights = np.roll(sentence.weights[kind][head], int(kind == "decoder"), axis=-1)  # START is the last column
        draw_attention_lines(axes, weights, selected or list(range(len(queries))), to_rgba(colour))
        lines.append(Line2D([], [], color=colour, label=head_name(kind, *head)))
    axes.set_axis_off()
    axes.set_xlim(-0.7, max(len(queries), len(keys)) - 0.3)
    axes.set_ylim(0, 1)
    draw_words(axes, [WordSpan(name, 0, 1) for name in queries], 1.03, "bottom", set(selected))
    draw_words(axes, keys, -0.03, "top", set())
    axes.legend(handles=lines, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
