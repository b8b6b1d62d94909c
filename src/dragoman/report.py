"""Reports of measurements: tables, pictures and findings, rendered as Markdown or as one self-contained HTML page."""

import math
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from mimetypes import guess_type
from pathlib import Path
from typing import Any

Json = Any
Cell = str | int | float | None

_NUMBER = re.compile(r"([+−-]?\d(?!.*[a-z]{2} [a-z]{2})|not finite|$)")  # a number with at most one word, or nothing


@dataclass(frozen=True)
class ReportTable:
    """A titled table; cells that are numbers are formatted by `format_cell`."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str = ""

    def is_text_column(self, column: int) -> bool:
        """Return whether a column holds text, which is aligned left, and not numbers."""
        cells = (row[column] for row in self.rows)
        return any(isinstance(cell, str) and not _NUMBER.match(cell) for cell in cells)


@dataclass(frozen=True)
class ReportPicture:
    """An image file in the folder of the report; the caption is also its alternative text."""

    file: str
    caption: str


@dataclass(frozen=True)
class ReportFormula:
    """A formula on a line of its own, in HTML with i, sub and sup elements, which Markdown allows too."""

    html: str
    number: str = ""


ReportPart = ReportTable | ReportPicture | ReportFormula | str
_PART_KINDS: dict[str, type[ReportTable | ReportPicture | ReportFormula]] = {
    "table": ReportTable, "picture": ReportPicture, "formula": ReportFormula,
}  # fmt: skip


@dataclass(frozen=True)
class ExperimentReport:
    """The outcome of one experiment."""

    findings: tuple[str, ...]  # one sentence each
    parts: tuple[ReportPart, ...]  # a string is a paragraph
    results: dict[str, Json]  # all numbers, for programs

    def to_json(self) -> dict[str, Json]:
        """Return the report as JSON values; `from_json` reads them."""
        parts = [part if isinstance(part, str) else {"kind": _kind(part), **asdict(part)} for part in self.parts]
        return {"findings": list(self.findings), "parts": parts, "results": self.results}

    @classmethod
    def from_json(cls, stored: Mapping[str, Json]) -> "ExperimentReport":
        """Read a report from what `to_json` returned."""
        return cls(tuple(stored["findings"]), tuple(map(_part_from_json, stored["parts"])), stored["results"])


@dataclass(frozen=True)
class ReportSection:
    """A report under its title, with the facts that are needed to repeat it."""

    name: str
    title: str
    question: str
    folder: Path  # of the pictures
    report: ExperimentReport
    facts: Mapping[str, str] = field(default_factory=dict)  # command, corpus, machine, …
    claim: str = ""  # of the paper


def _kind(part: ReportTable | ReportPicture | ReportFormula) -> str:
    return next(name for name, kind in _PART_KINDS.items() if isinstance(part, kind))


def _part_from_json(part: Json) -> ReportPart:
    if isinstance(part, str):
        return part
    if part["kind"] == "picture":
        return ReportPicture(part["file"], part["caption"])
    if part["kind"] == "formula":
        return ReportFormula(part["html"], part["number"])
    return ReportTable(part["title"], tuple(part["header"]), tuple(map(tuple, part["rows"])), part["note"])


def format_cell(cell: Cell) -> str:
    """Format a cell: numbers with four significant digits and thousands separators, None as an empty string."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if not math.isfinite(cell):
        return "not finite"
    size = abs(cell)
    if size and (size < 1e-3 or size >= 1e7):
        return f"{cell:.2e}"
    return f"{cell:,.0f}" if size >= 1000 else f"{cell:.4g}"


def format_number(number: float, spec: str) -> str:
    """Format a number by a format specification, with a minus sign; infinity and NaN as "not finite"."""
    return format(number, spec).replace("-", "−") if math.isfinite(number) else "not finite"


def write_reports(title: str, sections: list[ReportSection], folder: Path) -> None:
    """Write sections as `report.html` and `report.md` into a folder."""
    (folder / "report.html").write_text(render_html(title, sections), encoding="utf-8")
    (folder / "report.md").write_text(render_markdown(sections, folder), encoding="utf-8")


# Markdown


def render_markdown(sections: Iterable[ReportSection], folder: Path) -> str:
    """Render sections as Markdown; paths of pictures are relative to `folder`."""
    return "\n\n".join(_markdown_section(section, folder) for section in sections) + "\n"


def markdown_table(table: ReportTable) -> str:
    """Render the header and the rows of a table as Markdown, columns of numbers aligned right."""
    rule = ["---" if table.is_text_column(column) else "---:" for column in range(len(table.header))]
    rows = [table.header, rule, *(tuple(map(format_cell, row)) for row in table.rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def _markdown_section(section: ReportSection, folder: Path) -> str:
    blocks = [f"# {section.title}", f"*{section.question}*", f"The paper, {section.claim}" if section.claim else ""]
    blocks += ["\n".join(f"- {finding}" for finding in section.report.findings)]
    blocks += [_markdown_part(part, section.folder, folder) for part in section.report.parts]
    blocks += ["\n".join(f"- {name}: {fact}" for name, fact in section.facts.items())]
    return "\n\n".join(block for block in blocks if block)


def _markdown_part(part: ReportPart, pictures: Path, folder: Path) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, ReportPicture):
        path = Path(os.path.relpath(pictures / part.file, folder)).as_posix()
        return f"![{part.caption}]({path})\n\n{part.caption}"
    if isinstance(part, ReportFormula):
        return f"{part.html}   {part.number}".rstrip()
    return f"**{part.title}**\n\n{markdown_table(part)}" + (f"\n\n{part.note}" if part.note else "")


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
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, .words { text-align: left; } thead th { border-bottom-width: 2px; }
thead th { white-space: normal; vertical-align: bottom; }
td.words { white-space: normal; min-width: 6rem; }
.formula { display: flex; justify-content: space-between; margin: 1.2rem 2rem; font: 1.15rem/2 Georgia, serif; }
.findings { background: var(--tint); border-radius: 6px; padding: .8rem 1rem .8rem 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; }
dd { margin: 0; overflow-wrap: anywhere; }
"""


def _escape(text: str) -> str:
    """Escape text for HTML; a number stays on one line with its percent sign."""
    return escape(text).replace(" %", "&nbsp;%")


def render_html(title: str, sections: Sequence[ReportSection]) -> str:
    """Render sections as one HTML page that loads nothing else; several sections get a table of contents."""
    contents = "".join(f'<li><a href="#{section.name}">{_escape(section.title)}</a></li>' for section in sections)
    index = f"<nav><ol>{contents}</ol></nav>" if len(sections) > 1 else ""
    heading = f"<h1>{_escape(title)}</h1>" if index else ""  # a single section has a title of its own
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{heading}{index}"
        + "\n".join(_html_section(section, "h2" if index else "h1") for section in sections)
        + "</body></html>\n"
    )


def _html_section(section: ReportSection, heading: str) -> str:
    findings = "".join(f"<li>{_escape(finding)}</li>" for finding in section.report.findings)
    facts = "".join(f"<dt>{_escape(name)}</dt><dd>{_escape(fact)}</dd>" for name, fact in section.facts.items())
    claim = f"<p>The paper, {_escape(section.claim)}</p>" if section.claim else ""
    return (
        f'<section id="{section.name}"><{heading}>{_escape(section.title)}</{heading}>'
        f'<p class="question">{_escape(section.question)}</p>{claim}<ul class="findings">{findings}</ul>'
        + "\n".join(html_part(part, section.folder) for part in section.report.parts)
        + f"<dl>{facts}</dl></section>"
    )


def html_part(part: ReportPart, folder: Path) -> str:
    """Render a paragraph, a formula, a table, or a picture with its bytes embedded."""
    if isinstance(part, str):
        return f"<p>{_escape(part)}</p>"
    if isinstance(part, ReportPicture):
        kind = guess_type(part.file)[0] or "image/png"
        data = b64encode((folder / part.file).read_bytes()).decode()
        return (
            f'<figure><img src="data:{kind};base64,{data}" alt="{_escape(part.caption)}">'
            f"<figcaption>{_escape(part.caption)}</figcaption></figure>"
        )
    if isinstance(part, ReportFormula):
        return f'<p class="formula"><span>{part.html}</span><span>{_escape(part.number)}</span></p>'
    classes = [' class="words"' if part.is_text_column(column) else "" for column in range(len(part.header))]
    head = "".join(
        f'<th scope="col"{kind}>{_escape(name)}</th>' for name, kind in zip(part.header, classes, strict=True)
    )
    body = "".join(f"<tr>{_html_cells(row, classes)}</tr>" for row in part.rows)
    note = f'<p class="note">{_escape(part.note)}</p>' if part.note else ""
    return (
        f'<div class="wide"><table><caption>{_escape(part.title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _html_cells(row: tuple[Cell, ...], classes: list[str]) -> str:
    return "".join(f"<td{kind}>{_escape(format_cell(cell))}</td>" for cell, kind in zip(row, classes, strict=True))
