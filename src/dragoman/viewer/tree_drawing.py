"""A parse tree as a drawing: one SVG file, or one HTML page of several, that need no network and no other file.

The words stand on one line with their tags above them, and each label above what it spans, a row below the label of
the bracket that it is in; so no line crosses another, or a label. How wide a text will be is estimated from its
letters, with something to spare, so that nothing touches in any usual font. All text stays text: it can be selected,
searched and read aloud.
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from typing import Protocol

SIZE = 15  # of letters, in pixels, as all lengths here
ROW = 46  # from a label to those below it
UNDER = 22  # from a tag to its word
GAP = 14  # between words
MARGIN = 16
ABOVE, BELOW = 13, 5  # how far a line stays from the foot of a letter it leads to, or comes from

NARROW = set("iljtfrI.,'`|!:;-()[]{}\"")
UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML

STYLE = """
.tree { font: 15px system-ui, sans-serif; }
.tree .paper { fill: #ffffff; }
.tree polyline { stroke: #8a8f98; fill: none; }
.tree text { text-anchor: middle; fill: #1a1c20; }
.tree .phrase { fill: #0b57a4; font-weight: 600; }
.tree .tag { fill: #5a6068; font-size: 13px; }
@media (prefers-color-scheme: dark) {
  .tree .paper { fill: #16181d; }
  .tree polyline { stroke: #6d737d; }
  .tree text { fill: #eceef2; }
  .tree .phrase { fill: #86bdf5; }
  .tree .tag { fill: #adb4bf; }
}
"""

PAGE_STYLE = (
    STYLE
    + """
:root { color-scheme: light dark; }
body { margin: 1.5rem; font: 16px/1.5 system-ui, sans-serif; color: #1a1c20; background: #ffffff; }
h1 { font-size: 1.3rem; }
figure { margin: 0 0 2.5rem; }
figcaption { margin-bottom: 0.5rem; }
.scroll { overflow-x: auto; border: 1px solid #c5c9d0; border-radius: 6px; }
.scroll:focus-visible { outline: 3px solid #0b57a4; }
.scroll svg { display: block; margin: 0 auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) {
  body { color: #eceef2; background: #16181d; }
  .scroll { border-color: #454b55; }
  .scroll:focus-visible { outline-color: #86bdf5; }
}
"""
)

PAGE = """<!doctype html>
<html>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{figures}
</main>
</body>
</html>
"""

FIGURE = """<figure>
<figcaption>{caption}</figcaption>
<div class="scroll" tabindex="0" role="region" aria-label="Drawing, may be scrolled sideways">
{drawing}
</div>
<details><summary>As brackets</summary><pre>{brackets}</pre></details>
</figure>"""


class Branch(Protocol):
    """A bracket with its label, and in it either a word or other brackets; its `str` is how it is written."""

    @property
    def label(self) -> str:
        """The name of the bracket."""

    @property
    def word(self) -> str:
        """The word in it, if it has one."""

    @property
    def children(self) -> Sequence["Branch"]:
        """The brackets in it."""


@dataclass
class Place:
    """Where a bracket stands: above the columns from `first` up to, but without, `end`, a column a word."""

    label: str
    word: str
    first: int
    end: int
    depth: int  # brackets around it
    inside: list["Place"] = field(default_factory=list)
    x: float = 0.0

    @property
    def kind(self) -> str:
        """The class of its label in the style sheet."""
        return "tag" if self.word else "phrase"


def svg(tree: Branch) -> str:
    """Return the drawing of a tree as an SVG file."""
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + drawing(tree, f"<style>{STYLE}</style>") + "\n"


def page(trees: Iterable[Branch], title: str = "Parse trees") -> str:
    """Return an HTML page with the drawings of trees, each of which scrolls sideways."""
    figures = [
        FIGURE.format(caption=visible(sentence(tree)), drawing=drawing(tree), brackets=visible(str(tree)))
        for tree in trees
    ]
    digest = base64.b64encode(hashlib.sha256(PAGE_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return PAGE.format(policy=policy, title=visible(title), style=PAGE_STYLE, figures="\n".join(figures))


def drawing(tree: Branch, style: str = "") -> str:
    """Return the SVG element of a tree."""
    places = placed(tree)
    width, height = layout(places)
    parts = [part for place in reversed(places) for part in marks(place, height - MARGIN - UNDER)]
    name = visible(f"Tree of: {sentence(tree)}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tree" role="img" aria-label="{name}" '
            f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<title>{name}</title><desc>{visible(str(tree))}</desc>{style}",
            f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
            *parts,
            "</svg>",
        ]
    )


def placed(tree: Branch) -> list[Place]:
    """Return the place of every bracket, those inside before those around them."""
    done: list[Place] = []
    free: list[Place] = []  # those whose bracket is not closed yet
    ahead: list[tuple[Branch, int, bool]] = [(tree, 0, False)]  # its depth; whether all that is in it has its place
    column = 0
    while ahead:
        branch, depth, full = ahead.pop()
        if not full and not branch.word:
            ahead.append((branch, depth, True))
            ahead.extend((child, depth + 1, False) for child in reversed(branch.children))
            continue
        inside = free[len(free) - len(branch.children) :]
        del free[len(free) - len(branch.children) :]
        first, end = (inside[0].first, inside[-1].end) if inside else (column, column + 1)
        column = max(column, end)
        free.append(Place(branch.label, branch.word, first, end, depth, inside))
        done.append(free[-1])
    return done


def layout(places: Sequence[Place]) -> tuple[float, float]:
    """Give every place its x; return the width and the height of the whole."""
    columns = [max(text_width(leaf.label), text_width(leaf.word)) + GAP for leaf in places if leaf.word]
    for place in places:
        missing = text_width(place.label) + GAP - sum(columns[place.first : place.end])
        if missing > 0:  # a label may be wider than what it spans
            for column in range(place.first, place.end):
                columns[column] += missing / (place.end - place.first)
    edges = list(accumulate(columns, initial=float(MARGIN)))
    for place in places:
        half = text_width(place.label) / 2
        middle = (place.inside[0].x + place.inside[-1].x) / 2 if place.inside else 0.0
        left, right = edges[place.first] + half, edges[place.end] - half
        place.x = min(max(middle, left), right) if place.inside else (edges[place.first] + edges[place.end]) / 2
    deepest = max(place.depth for place in places)
    return edges[-1] + MARGIN, 2 * MARGIN + SIZE + deepest * ROW + UNDER


def marks(place: Place, tags: float) -> list[str]:
    """Return the label of a place, its word, and the lines to what is in it; all tags stand at one height."""
    y = tags if place.word else row(place)
    lines = [
        f'<polyline points="{place.x:.1f},{y + BELOW:.1f} {child.x:.1f},{row(child) - ABOVE:.1f}'
        f'{f" {child.x:.1f},{tags - ABOVE:.1f}" if child.word else ""}"/>'
        for child in place.inside
    ]
    texts = [f'<text class="{place.kind}" x="{place.x:.1f}" y="{y:.1f}">{visible(place.label)}</text>']
    if place.word:
        texts.append(f'<text class="word" x="{place.x:.1f}" y="{y + UNDER:.1f}">{visible(place.word)}</text>')
    return [*lines, *texts]


def row(place: Place) -> float:
    """Return the y of a label at the depth of a place; the letters stand on it."""
    return MARGIN + SIZE + ROW * place.depth


def sentence(tree: Branch) -> str:
    """Return the words of a tree."""
    return " ".join(place.word for place in placed(tree) if place.word)


def text_width(text: str) -> float:
    """Return about how wide a text is drawn."""
    return SIZE * sum(map(letter_width, text))


def letter_width(letter: str) -> float:
    """Return about how wide a letter is, as a part of its size."""
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if letter in NARROW:
        return 0.42
    return 0.78 if letter.isupper() or letter in "mw@%&" else 0.6


def visible(text: str) -> str:
    """Write a text so that it stands in XML as text, and nothing in it is lost."""
    return escape(UNSEEN.sub("\ufffd", text))
