"""What the experiment about heads has to say and to show, made from its results alone."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from dragoman.lab.head_pictures import HeadLinesPanel, draw_ablation_losses, draw_head_grids, draw_line_figure
from dragoman.lab.relations import ANTECEDENT, FAR_PART, WordAttention
from dragoman.lab.report import Cell, Json, Picture, ReportPart, ReportTable, format_difference

_RecordPair = Callable[[str, str], WordAttention]


def head_name(kind: str, layer: int, head: int) -> str:
    """Name a head as `dragoman attention --heads` does, counted from 1."""
    return f"{kind}.{layer + 1}.{head + 1}"


def _row_head_name(row: Mapping[str, Json]) -> str:
    """Name the head of a row."""
    return head_name(row["kind"], row["layer"], row["head"])


def _format_percent(share: float | None) -> str:
    """Write a share."""
    return "" if share is None else f"{100 * share:.0f} %"


def _format_interval(low: float, high: float, sign: str = "") -> str:
    """Write an interval of shares."""
    return f"{100 * low:{sign}.0f} to {100 * high:{sign}.0f}".replace("-", "−")


# What is said


def relation_findings(found: list[dict[str, Json]]) -> list[str]:
    """Say what was found about the relations that the paper's figures show."""
    said = [relation_finding(row) for row in found if row["figure"] in (3, 4)]
    beside = max((row for row in found if row["figure"] == 5), key=lambda row: row["right"], default=None)
    if beside:
        low, high = beside["interval"]
        said.append(
            f"The head nearest to being about position is {_row_head_name(beside)}: its heaviest place is "
            f"{beside['relation']} for {_format_percent(beside['right'])} of the words "
            f"({_format_interval(low, high)} %)."
        )
    if not any(row["relation"] == ANTECEDENT for row in found):
        said.append("For this corpus nobody knows what its pronouns stand for, so no head for antecedents was sought.")
    return said


def relation_finding(row: dict[str, Json]) -> str:
    """Say how often a head is right about one relation, and how often a rule of position alone would be."""
    rule, (least, most) = row["position"], row["position"]["advantage"]
    found = f"{_row_head_name(row)} looks at {row['relation']} and"
    none = f"No {row['kind']} head is clearly there for {row['relation']}; the best, {_row_head_name(row)},"
    said = (
        f"{found if least > 0 else none} is right in {_format_percent(row['right'])} of {row['examples']} "
        "test examples "
        f"({_format_interval(*row['interval'])} %). The best rule of position, {rule['rule']}, is right in "
        f"{_format_percent(rule['right'])} (head minus rule: {_format_interval(least, most, '+')} points)."
    )
    return said + _noun_rule_finding(row)


def _noun_rule_finding(row: dict[str, Json]) -> str:
    """Say what a rule reaches that is told which words are nouns, if there is one."""
    if "noun" not in row:
        return ""
    noun, misled = row["noun"], row["misled"]
    said = f" A rule that is told which words are nouns, {noun['rule']}, is right in {_format_percent(noun['right'])}"
    if not misled["examples"]:
        return f"{said}."
    wrong = f"where the nearest noun is wrong ({misled['examples']} examples)"
    return f"{said}; {wrong} the head is right in {_format_percent(misled['right'])}."


def ablation_findings(ablations: Json, found: list[dict[str, Json]]) -> list[str]:
    """Say what the costliest head is worth, and what the one for antecedents is."""
    if not ablations:
        return ["The attention of this architecture is not in heads that could be switched off."]
    rows = ablations["heads"]
    real = [row for row in rows if row["p"] < ablations["chance"] and row["lost"] > 0]
    said = [
        f"Without {_row_head_name(rows[0])}, the model's costliest head, BLEU goes from {ablations['bleu']:.1f} to "
        f"{rows[0]['bleu']:.1f} on {ablations['sentences']} test sentences; {len(real)} of the {len(rows)} "
        "heads that were "
        f"switched off, one at a time, cost more than chance explains (p < {ablations['chance']})."
    ]
    places = {_row_head_name(row): row for row in rows}
    for row in found:
        if row["relation"] == ANTECEDENT and _row_head_name(row) in places:
            cost = places[_row_head_name(row)]
            said.append(
                f"Without the head for antecedents {_row_head_name(row)}, BLEU changes by "
                f"{format_difference(-cost['lost'])} "
                f"(p = {cost['p']:.3f}) and {_format_percent(cost['changed'])} of the translations are others."
            )
    return said


def relation_parts(folder: Path, record_pair: _RecordPair, found: list[dict[str, Json]]) -> list[ReportPart]:
    """Return the table of relations, where each is served, and the paper's figures."""
    rows = tuple(_relation_row(row) for row in found)
    header = (
        "looks at", "head", "right", "95 % interval", "examples", "weight there", "best rule of position", "right",
        "knowing the nouns", "right",
    )  # fmt: skip
    note = (
        "A head is right where the heaviest of all places is the right word. Heads and rules were chosen on validation "
        "sentences and judged on test sentences. Rules of position are not given where the relation is a distance. "
        "What makes one expression is known from the gold alignment: words that are one word in the other language."
    )
    maps = {
        f"{row['kind']}: {_short_relation_name(row['relation'])}": row["all"]
        for row in found
        if row["figure"] in (3, 4)
    }
    parts: list[ReportPart] = [ReportTable("What the heads look at", header, rows, note)]
    if maps:
        file = draw_head_grids(maps, folder / "accuracy.png", colorbar_label="share of test examples that are right")
        parts.append(Picture(file, "How often each head's heaviest place is the right one, by layer and head."))
    return [*parts, *_draw_paper_figures(folder, record_pair, found)]


def _short_relation_name(name: str) -> str:
    """Name a relation in few words."""
    return {ANTECEDENT: "antecedent", FAR_PART: "far part"}.get(name, name)


def _relation_row(row: dict[str, Json]) -> tuple[Cell, ...]:
    """Write the row of one relation."""
    position, noun = row.get("position"), row.get("noun")
    return (
        f"{row['kind']}: {row['relation']}",
        _row_head_name(row),
        _format_percent(row["right"]),
        _format_interval(*row["interval"]),
        row["examples"],
        f"{row['weight']:.2f}",
        position["rule"] if position else "",
        _format_percent(position["right"]) if position else "",
        noun["rule"] if noun else "",
        _format_percent(noun["right"]) if noun else "",
    )


def _draw_paper_figures(folder: Path, record_pair: _RecordPair, found: list[dict[str, Json]]) -> list[ReportPart]:
    """Draw the paper's figures 3, 4 and 5 with sentences of the test split."""
    parts: list[ReportPart] = []
    far = max((row for row in found if row["figure"] == 3), key=lambda row: row["right"], default=None)
    back = max((row for row in found if row["figure"] == 4), key=lambda row: row["right"], default=None)
    near = sorted((row for row in found if row["figure"] == 5), key=lambda row: -row["right"])[:2]
    if far:
        file = draw_line_figure(
            [_relation_panel(record_pair, far, whole_layer=True, isolated=True)], folder / "figure-3.png"
        )
        caption = f"As figure 3: where the heads of layer {far['layer'] + 1} ({far['kind']}) look from one word"
        parts.append(Picture(file, f"{caption}, whose other part stands far away."))
    if back:
        both = [_relation_panel(record_pair, back), _relation_panel(record_pair, back, isolated=True, second=True)]
        caption = (
            f"As figure 4: head {_row_head_name(back)} over a sentence; below, it and the next best from the pronoun."
        )
        parts.append(Picture(draw_line_figure(both, folder / "figure-4.png"), caption))
    if near:
        file = draw_line_figure([_relation_panel(record_pair, row) for row in near], folder / "figure-5.png")
        names = " and ".join(f"{_row_head_name(row)} ({row['relation']})" for row in near)
        parts.append(Picture(file, f"As figure 5: heads that have to do with the structure of the sentence, {names}."))
    return parts


def _relation_panel(
    record_pair: _RecordPair,
    row: dict[str, Json],
    *,
    whole_layer: bool = False,
    isolated: bool = False,
    second: bool = False,
) -> HeadLinesPanel:
    """Return the drawing of a relation's example: its head, that and the second best, or all of its layer."""
    one, kind, layer = record_pair(*row["shown"]["texts"]), row["kind"], row["layer"]
    heads = [(layer, row["head"])]
    if whole_layer:
        heads = [(layer, head) for head in range(len(row["all"][layer]))]
    if second:
        order = np.argsort(-np.array(row["all"]), axis=None)[:3]
        others = [divmod(int(place), len(row["all"][0])) for place in order]
        heads = [*heads, *[place for place in others if place not in heads][:1]]
    weights = {head_name(kind, *place): one.weights[kind][place] for place in heads}
    above = one.source if kind == "encoder" else one.target
    looking = frozenset((row["shown"]["row"],)) if isolated else frozenset[int]()
    return HeadLinesPanel(
        f"{_row_head_name(row)}: {_short_relation_name(row['relation'])}",
        above,
        one.key_words(kind),
        weights,
        kind,
        looking,
    )


def ablation_parts(folder: Path, losses: Json, ablations: Json, found: list[dict[str, Json]]) -> list[ReportPart]:
    """Return what the heads are worth, in BLEU and in loss."""
    if not ablations:
        return []
    served: dict[str, list[str]] = {}
    for row in found:
        served.setdefault(_row_head_name(row), []).append(_short_relation_name(row["relation"]))
    spared = {_row_head_name(each): each["importance"] for each in losses["heads"]}
    header = ("without", "BLEU", "lost", "p", "translations changed", "loss added", "best at", "badges")
    badges = {_row_head_name(each): ", ".join(each["badges"]) for each in losses["heads"]}
    rows = tuple(
        (
            name, f"{row['bleu']:.1f}", f"{row['lost']:.1f}", f"{row['p']:.3f}", _format_percent(row["changed"]),
            f"{spared[name]:.4f}", ", ".join(served.get(name, [])), badges[name],
        )
        for row in ablations["heads"]
        for name in (_row_head_name(row),)
    )  # fmt: skip
    chosen = (
        "" if len(rows) == ablations["of"] else f" Those {len(rows)} of {ablations['of']} heads that spare most loss."
    )
    note = (
        f"BLEU of the whole model: {ablations['bleu']:.1f} on {ablations['sentences']} test sentences. p by "
        "paired bootstrap "
        f"resampling. Loss added: per target piece of the validation text.{chosen}"
    )
    lost = {_row_head_name(row): row["lost"] for row in ablations["heads"]}
    noise = max((abs(row["lost"]) for row in ablations["heads"] if row["p"] >= ablations["chance"]), default=0.0)
    file = draw_ablation_losses(lost, noise, folder / "ablation.png")
    return [
        ReportTable("What the model loses without a head", header, rows, note),
        Picture(file, "BLEU that is lost when one head is switched off; grey: differences that chance explains."),
    ]
