"""What an experiment found: sentences, tables and pictures, as one page that needs no other file, and as Markdown."""

import os
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from mimetypes import guess_type
from pathlib import Path
from typing import Any

Json = Any
Cell = str | int | float | None

_NUMBER = re.compile(r"[+−-]?\d|not finite|$")  # how a cell begins that is not text; an empty one is neither


@dataclass(frozen=True)
class ReportTable:
    """Cells, and what they are; numbers are written with the digits that mean something."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A file in the folder of the experiment; its caption is also what those who do not see it are told."""

    file: str
    caption: str


ReportPart = ReportTable | Picture | str


@dataclass(frozen=True)
class ExperimentReport:
    """What came out of one experiment."""

    findings: tuple[str, ...]  # sentences with the numbers that were found
    parts: tuple[ReportPart, ...]  # a string is a paragraph
    results: dict[str, Json]  # all that is needed to draw it again


@dataclass(frozen=True)
class ReportSection:
    """A report with what it is about, and under which circumstances it was made."""

    name: str
    title: str
    question: str
    folder: Path
    report: ExperimentReport
    facts: Mapping[str, str] = field(default_factory=dict)  # command, corpus, machine, …: what a repetition needs
    claim: str = ""  # what the paper says about it


def format_cell(cell: Cell) -> str:
    """Write a cell as a person would: four significant digits, thousands apart, nothing for nothing."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if cell != cell or abs(cell) == float("inf"):
        return "not finite"
    size = abs(cell)
    if size and (size < 1e-3 or size >= 1e7):
        return f"{cell:.2e}"
    return f"{cell:,.0f}" if size >= 1000 else f"{cell:.4g}"


def format_difference(number: float) -> str:
    """Write a difference with its sign."""
    return f"{number:+.1f}".replace("-", "−")


# Markdown


def render_markdown(sections: list[ReportSection], folder: Path) -> str:
    """Write reports as Markdown whose pictures lie where they were made, seen from the folder `beside`."""
    return "\n\n".join(_markdown_section(each, folder) for each in sections) + "\n"


def _markdown_section(section: ReportSection, folder: Path) -> str:
    """Write one report as Markdown."""
    blocks = [f"# {section.title}", f"*{section.question}*", f"The paper: {section.claim}" if section.claim else ""]
    blocks += ["\n".join(f"- {finding}" for finding in section.report.findings)]
    blocks += [_markdown_part(part, section, folder) for part in section.report.parts]
    blocks += ["\n".join(f"- {name}: {fact}" for name, fact in section.facts.items())]
    return "\n\n".join(block for block in blocks if block)


def _markdown_part(part: ReportPart, section: ReportSection, folder: Path) -> str:
    """Write a paragraph, a table or a picture."""
    if isinstance(part, str):
        return part
    if isinstance(part, Picture):
        where = Path(os.path.relpath(section.folder / part.file, folder)).as_posix()
        return f"![{part.caption}]({where})\n\n{part.caption}"
    lines = [part.header, ("---",) * len(part.header), *(tuple(map(format_cell, row)) for row in part.rows)]
    rows = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{part.title}**\n\n{rows}" + (f"\n\n{part.note}" if part.note else "")


# HTML

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --soft: #5c5f66; --paper: #fff; --line: #d8dae0; --tint: #f4f5f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8ec; --soft: #a2a5ad; --paper: #17181c; --line: #383b43; --tint: #20222a; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; }
section + section, nav + section { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h2 { font-size: 1.3rem; }
.question { color: var(--soft); font-style: italic; } figure { margin: 1.5rem 0; }
figure img { max-width: 100%; background: #fff; border-radius: 6px; }
figcaption, caption, .note, dl { color: var(--soft); font-size: .9rem; } caption { text-align: left; padding: .4rem 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, .words { text-align: left; } thead th { border-bottom-width: 2px; }
td.words { white-space: normal; min-width: 7rem; }
.findings { background: var(--tint); border-radius: 6px; padding: .8rem 1rem .8rem 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; }
dd { margin: 0; overflow-wrap: anywhere; }
"""


def render_html(title: str, sections: list[ReportSection]) -> str:
    """Write reports as one page with everything inside."""
    contents = "".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in sections)
    index = f"<nav><ol>{contents}</ol></nav>" if len(sections) > 1 else ""
    head = f"<h1>{escape(title)}</h1>" if index else ""  # a chapter by itself has its own title
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{head}{index}"
        + "\n".join(_html_section(each, "h2" if index else "h1") for each in sections)
        + "</body></html>\n"
    )


def _html_section(section: ReportSection, heading: str) -> str:
    """Write one report as a section of a page, under a heading of some order."""
    findings = "".join(f"<li>{escape(finding)}</li>" for finding in section.report.findings)
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>" for name, fact in section.facts.items())
    claim = f"<p>The paper: {escape(section.claim)}</p>" if section.claim else ""
    return (
        f'<section id="{section.name}"><{heading}>{escape(section.title)}</{heading}>'
        f'<p class="question">{escape(section.question)}</p>{claim}<ul class="findings">{findings}</ul>'
        + "\n".join(html_part(part, section.folder) for part in section.report.parts)
        + f"<dl>{facts}</dl></section>"
    )


def html_part(part: ReportPart, folder: Path) -> str:
    """Write a paragraph, a table or a picture with its bytes inside."""
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Picture):
        kind = guess_type(part.file)[0] or "image/png"
        data = b64encode((folder / part.file).read_bytes()).decode()
        return (
            f'<figure><img src="data:{kind};base64,{data}" alt="{escape(part.caption)}">'
            f"<figcaption>{escape(part.caption)}</figcaption></figure>"
        )
    columns = range(len(part.header))
    kinds = [' class="words"' if any(_is_text(row[column]) for row in part.rows) else "" for column in columns]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(part.header, kinds, strict=True))
    body = "".join(f"<tr>{_html_cells(row, kinds)}</tr>" for row in part.rows)
    note = f'<p class="note">{escape(part.note)}</p>' if part.note else ""
    return (
        f'<div class="wide"><table><caption>{escape(part.title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _html_cells(row: tuple[Cell, ...], kinds: list[str]) -> str:
    """Write the cells of a row, each with the attribute of its column."""
    return "".join(f"<td{kind}>{escape(format_cell(cell))}</td>" for cell, kind in zip(row, kinds, strict=True))


def _is_text(cell: Cell) -> bool:
    """Say whether a cell is words to be read from the left, and not a number, perhaps with its spread."""
    return isinstance(cell, str) and not _NUMBER.match(cell)
