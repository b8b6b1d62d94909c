"""`dragoman parse`: parse sentences into constituency trees."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dragoman.cli.line_io import input_lines, is_interactive, load_for_task, print_outputs
from dragoman.cli.options import (
    BeamOption,
    DeviceOption,
    JsonOption,
    LengthPenaltyOption,
    LineByLineOption,
    NBestOption,
    PrecisionOption,
    RunArgument,
    ScoresOption,
)
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.evaluation.trees import Tree
    from dragoman.tasks.sequence_model import SequenceModel

TreeFormat = Literal["brackets", "indented", "svg", "html"]


def parse(
    run: RunArgument,
    text: Annotated[
        list[str] | None, typer.Argument(help="Sentences with spaces between words; default: lines of standard input.")
    ] = None,
    form: Annotated[
        TreeFormat, typer.Option("--format", help="One line of brackets per sentence, indented brackets, or a drawing.")
    ] = "brackets",
    tokenize: Annotated[
        bool,
        typer.Option("--tokenize", help='Split punctuation from words first, for text such as "The dog doesn\'t run."'),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of standard output.")
    ] = None,
    n_best: NBestOption = 1,
    beam: BeamOption = None,
    length_penalty: LengthPenaltyOption = None,
    precision: PrecisionOption = None,
    scores: ScoresOption = False,
    as_json: JsonOption = False,
    line_by_line: LineByLineOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Parse each TEXT, or every line of standard input, with the model in RUN: one tree per input line.

    Words are separated by spaces, as in "The dog runs ."; --tokenize inserts them. See docs/parsing.md."""
    if (scores or as_json) and (form != "brackets" or output):
        raise UserError("--scores and --json require --format brackets and no --output; remove the conflicting option.")
    model = load_for_task(run, "parse", device)
    options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision}
    lines = input_lines(text)
    lines = _tokenize_lines(lines) if tokenize else lines
    if form == "brackets" and output is None:
        at_once = line_by_line or is_interactive(text)
        print_outputs(model, lines, options, scores=scores, as_json=as_json, one_at_a_time=at_once)
        return
    formatted = _FORMATTERS[form](_parse_lines(model, lines, options))
    if output is None:
        print(formatted, end="")
    else:
        output.write_text(formatted, encoding="utf-8")


def _tokenize_lines(lines: Iterable[str]) -> Iterator[str]:
    """Put spaces between the words of lines."""
    from dragoman.text.penn_words import penn_words

    return (" ".join(penn_words(line)) for line in lines)


def _parse_lines(model: "SequenceModel", lines: Iterable[str], options: dict[str, Any]) -> "list[Tree | None]":
    """Return the trees of lines, the best ones of each; None for a line without words."""
    from dragoman.evaluation.trees import read_tree

    outputs = model.predict_lines(lines, **options)
    texts = [text for row in outputs for text in (row if isinstance(row, list) else [row])]
    return [read_tree(text) if text else None for text in texts]


def _format_brackets(trees: "list[Tree | None]") -> str:
    """Write one tree a line, and an empty line where there is none."""
    return "".join(f"{tree or ''}\n" for tree in trees)


def _format_indented(trees: "list[Tree | None]") -> str:
    """Write trees over several lines, with an empty one between them."""
    from dragoman.evaluation.trees import indent_tree

    return "\n".join(f"{indent_tree(tree)}\n" if tree else "\n" for tree in trees)


def _format_svg(trees: "list[Tree | None]") -> str:
    """Draw one tree."""
    from dragoman.viewer.tree_drawing import tree_svg

    nonempty = [tree for tree in trees if tree]
    if len(nonempty) != 1:
        raise UserError(f"--format svg draws one tree, got {len(nonempty):,}; use --format html for several trees.")
    return tree_svg(nonempty[0])


def _format_html(trees: "list[Tree | None]") -> str:
    """Draw all trees on a page."""
    from dragoman.viewer.tree_drawing import tree_page

    return tree_page([tree for tree in trees if tree])


_FORMATTERS = {"brackets": _format_brackets, "indented": _format_indented, "svg": _format_svg, "html": _format_html}
