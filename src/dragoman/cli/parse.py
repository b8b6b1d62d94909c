"""`dragoman parse`: words in, trees out."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dragoman.cli.answers import answer, loaded, stdin_lines, waited_for
from dragoman.cli.options import AsJson, Beam, Device, LengthPenalty, LineByLine, NBest, Precision, RunPath, WithScores
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.evaluation.trees import Tree
    from dragoman.tasks.translator import Translator

Form = Literal["brackets", "indented", "svg", "html"]


def parse(
    run: RunPath,
    text: Annotated[
        list[str] | None, typer.Argument(help="Sentences, spaces between words; without any, standard input.")
    ] = None,
    form: Annotated[
        Form, typer.Option("--format", help="One line of brackets a sentence, indented text, or a drawing.")
    ] = "brackets",
    tokenize: Annotated[
        bool, typer.Option("--tokenize", help='Split off punctuation first, as in "The dog doesn\'t run."')
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
    n_best: NBest = 1,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    precision: Precision = None,
    scores: WithScores = False,
    as_json: AsJson = False,
    line_by_line: LineByLine = False,
    device: Device = "auto",
) -> None:
    """Parse each TEXT, or every line of standard input, with the model in RUN: one tree out for each line in.

    Words have spaces between them, as in "The dog runs ."; --tokenize puts them there. See docs/parsing.md."""
    if (scores or as_json) and (form != "brackets" or output):
        raise UserError("--scores and --json go with brackets on standard output only; leave them or the others out.")
    model = loaded(run, "parse", device)
    options = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "precision": precision}
    lines = split(text or stdin_lines()) if tokenize else text or stdin_lines()
    if form == "brackets" and output is None:
        at_once = line_by_line or waited_for(text)
        answer(model, lines, options, scores=scores, as_json=as_json, at_once=at_once)
        return
    written = FORMS[form](trees(model, lines, options))
    if output is None:
        print(written, end="")
    else:
        output.write_text(written, encoding="utf-8")


def split(lines: Iterable[str]) -> Iterator[str]:
    """Put spaces between the words of lines."""
    from dragoman.text.penn_words import penn_words

    return (" ".join(penn_words(line)) for line in lines)


def trees(model: "Translator", lines: Iterable[str], options: dict[str, Any]) -> "list[Tree | None]":
    """Return the trees of lines, the best ones of each; None for a line without words."""
    from dragoman.evaluation.trees import tree_of

    found = model.translate_lines(lines, **options)
    texts = [text for row in found for text in (row if isinstance(row, list) else [row])]
    return [tree_of(text) if text else None for text in texts]


def in_brackets(found: "list[Tree | None]") -> str:
    """Write one tree a line, and an empty line where there is none."""
    return "".join(f"{tree or ''}\n" for tree in found)


def over_lines(found: "list[Tree | None]") -> str:
    """Write trees over several lines, with an empty one between them."""
    from dragoman.evaluation.trees import indented

    return "\n".join(f"{indented(tree)}\n" if tree else "\n" for tree in found)


def as_picture(found: "list[Tree | None]") -> str:
    """Draw one tree."""
    from dragoman.viewer.tree_drawing import svg

    drawn = [tree for tree in found if tree]
    if len(drawn) != 1:
        raise UserError(f"An SVG file holds one tree, and there are {len(drawn):,}; --format html draws any number.")
    return svg(drawn[0])


def as_page(found: "list[Tree | None]") -> str:
    """Draw all trees on a page."""
    from dragoman.viewer.tree_drawing import page

    return page([tree for tree in found if tree])


FORMS = {"brackets": in_brackets, "indented": over_lines, "svg": as_picture, "html": as_page}
