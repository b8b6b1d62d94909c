"""What an experiment found: sentences, tables and pictures, as one page that needs no other file, and as Markdown."""

import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from mimetypes import guess_type
from pathlib import Path
from typing import Any

Json = Any
Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
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


Part = Table | Picture | str


@dataclass(frozen=True)
class Report:
    """What came out of one experiment."""

    findings: tuple[str, ...]  # sentences with the numbers that were found
    parts: tuple[Part, ...]  # a string is a paragraph
    results: dict[str, Json]  # all that is needed to draw it again


@dataclass(frozen=True)
class Chapter:
    """A report with what it is about, and under which circumstances it was made."""

    name: str
    title: str
    question: str
    folder: Path
    report: Report
    facts: Mapping[str, str] = field(default_factory=dict)  # command, corpus, machine, …: what a repetition needs


def written(cell: Cell) -> str:
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


# Markdown


def markdown(chapters: list[Chapter], beside: Path) -> str:
    """Write reports as Markdown whose pictures lie where they were made, seen from the folder `beside`."""
    return "\n\n".join(markdown_chapter(each, beside) for each in chapters) + "\n"


def markdown_chapter(chapter: Chapter, beside: Path) -> str:
    """Write one report as Markdown."""
    blocks = [f"# {chapter.title}", f"*{chapter.question}*"]
    blocks += ["\n".join(f"- {finding}" for finding in chapter.report.findings)]
    blocks += [markdown_part(part, chapter, beside) for part in chapter.report.parts]
    blocks += ["\n".join(f"- {name}: {fact}" for name, fact in chapter.facts.items())]
    return "\n\n".join(block for block in blocks if block)


def markdown_part(part: Part, chapter: Chapter, beside: Path) -> str:
    """Write a paragraph, a table or a picture."""
    if isinstance(part, str):
        return part
    if isinstance(part, Picture):
        where = Path(os.path.relpath(chapter.folder / part.file, beside)).as_posix()
        return f"![{part.caption}]({where})\n\n{part.caption}"
    lines = [part.header, ("---",) * len(part.header), *(tuple(map(written, row)) for row in part.rows)]
    rows = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{part.title}**\n\n{rows}" + (f"\n\n{part.note}" if part.note else "")


# HTML

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --soft: #5c5f66; --paper: #fff; --line: #d8dae0; --tint: #f4f5f8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8ec; --soft: #a2a5ad; --paper: #17181c; --line: #383b43; --tint: #20222a; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; }
h2 { font-size: 1.3rem; margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 2rem; }
.question { color: var(--soft); font-style: italic; } figure { margin: 1.5rem 0; }
figure img { max-width: 100%; background: #fff; border-radius: 6px; }
figcaption, caption, .note, dl { color: var(--soft); font-size: .9rem; } caption { text-align: left; padding: .4rem 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom-width: 2px; }
.findings { background: var(--tint); border-radius: 6px; padding: .8rem 1rem .8rem 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; }
dd { margin: 0; overflow-wrap: anywhere; }
"""


def page(title: str, chapters: list[Chapter]) -> str:
    """Write reports as one page with everything inside."""
    contents = "".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in chapters)
    index = f"<nav><ol>{contents}</ol></nav>" if len(chapters) > 1 else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{index}"
        + "\n".join(map(section, chapters))
        + "</body></html>\n"
    )


def section(chapter: Chapter) -> str:
    """Write one report as a section of a page."""
    findings = "".join(f"<li>{escape(finding)}</li>" for finding in chapter.report.findings)
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>" for name, fact in chapter.facts.items())
    return (
        f'<section id="{chapter.name}"><h2>{escape(chapter.title)}</h2>'
        f'<p class="question">{escape(chapter.question)}</p><ul class="findings">{findings}</ul>'
        + "\n".join(html_part(part, chapter.folder) for part in chapter.report.parts)
        + f"<dl>{facts}</dl></section>"
    )


def html_part(part: Part, folder: Path) -> str:
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
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in part.header)
    body = "".join("<tr>" + "".join(f"<td>{escape(written(cell))}</td>" for cell in row) + "</tr>" for row in part.rows)
    note = f'<p class="note">{escape(part.note)}</p>' if part.note else ""
    return (
        f'<div class="wide"><table><caption>{escape(part.title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )
