"""Draw parse trees as an SVG file, or several as a self-contained HTML page.

The words are on one line with their tags above them; each label is above the words it spans, one row below its parent,
so that lines cross neither each other nor labels. The width of a text is estimated from its letters, with a margin for
different fonts. Labels and words are text elements, which can be selected, searched and read by screen readers.
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

_FONT_SIZE = 15  # in pixels, as all lengths here
_ROW_HEIGHT = 46  # between a label and its children
_WORD_DROP = 22  # between a tag and its word
_WORD_GAP = 14  # between words
_MARGIN = 16
_LINE_ABOVE, _LINE_BELOW = 13, 5  # distance of lines from the baselines of labels

_NARROW_LETTERS = set("iljtfrI.,'`|!:;-()[]{}\"")
_INVALID_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML

_TREE_STYLE = """
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

_PAGE_STYLE = (
    _TREE_STYLE
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

_PAGE_TEMPLATE = """<!doctype html>
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

_FIGURE_TEMPLATE = """<figure>
<figcaption>{caption}</figcaption>
<div class="scroll" tabindex="0" role="region" aria-label="Parse tree, scrolls horizontally">
{drawing}
</div>
<details><summary>Show as brackets</summary><pre>{brackets}</pre></details>
</figure>"""


class TreeLike(Protocol):
    """A tree node with a label and either a word or children; `str` returns it in brackets."""

    @property
    def label(self) -> str:
        """The label."""

    @property
    def word(self) -> str:
        """The word, or an empty string."""

    @property
    def children(self) -> Sequence["TreeLike"]:
        """The child nodes."""


@dataclass
class TreeNodeBox:
    """The position of a node above the columns `first` to `end` (exclusive), one column per word."""

    label: str
    word: str
    first: int
    end: int
    depth: int  # number of ancestors
    children: list["TreeNodeBox"] = field(default_factory=list)
    x: float = 0.0

    @property
    def css_class(self) -> str:
        """The CSS class of the label."""
        return "tag" if self.word else "phrase"


def tree_svg(tree: TreeLike) -> str:
    """Return a tree as an SVG file."""
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _svg_element(tree, f"<style>{_TREE_STYLE}</style>") + "\n"


def tree_page(trees: Iterable[TreeLike], title: str = "Parse trees") -> str:
    """Return an HTML page with the drawings of trees."""
    figures = [
        _FIGURE_TEMPLATE.format(
            caption=_escape_xml(_tree_text(tree)), drawing=_svg_element(tree), brackets=_escape_xml(str(tree))
        )
        for tree in trees
    ]
    digest = base64.b64encode(hashlib.sha256(_PAGE_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return _PAGE_TEMPLATE.format(policy=policy, title=_escape_xml(title), style=_PAGE_STYLE, figures="\n".join(figures))


def _svg_element(tree: TreeLike, style: str = "") -> str:
    """Return the SVG element of a tree."""
    boxes = place_nodes(tree)
    width, height = _assign_coordinates(boxes)
    parts = [part for box in reversed(boxes) for part in _node_marks(box, height - _MARGIN - _WORD_DROP)]
    name = _escape_xml(f"Parse tree: {_tree_text(tree)}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tree" role="img" aria-label="{name}" '
            f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<title>{name}</title><desc>{_escape_xml(str(tree))}</desc>{style}",
            f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
            *parts,
            "</svg>",
        ]
    )


def place_nodes(tree: TreeLike) -> list[TreeNodeBox]:
    """Return the boxes of all nodes, children before parents."""
    done: list[TreeNodeBox] = []
    free: list[TreeNodeBox] = []  # boxes without a parent so far
    ahead: list[tuple[TreeLike, int, bool]] = [(tree, 0, False)]  # node, depth, whether its children are placed
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
        free.append(TreeNodeBox(branch.label, branch.word, first, end, depth, inside))
        done.append(free[-1])
    return done


def _assign_coordinates(boxes: Sequence[TreeNodeBox]) -> tuple[float, float]:
    """Set the x coordinate of every box; return the width and the height of the drawing."""
    columns = [max(text_width(leaf.label), text_width(leaf.word)) + _WORD_GAP for leaf in boxes if leaf.word]
    for box in boxes:
        missing = text_width(box.label) + _WORD_GAP - sum(columns[box.first : box.end])
        if missing > 0:  # a label may be wider than its words
            for column in range(box.first, box.end):
                columns[column] += missing / (box.end - box.first)
    edges = list(accumulate(columns, initial=float(_MARGIN)))
    for box in boxes:
        half = text_width(box.label) / 2
        middle = (box.children[0].x + box.children[-1].x) / 2 if box.children else 0.0
        left, right = edges[box.first] + half, edges[box.end] - half
        box.x = min(max(middle, left), right) if box.children else (edges[box.first] + edges[box.end]) / 2
    deepest = max(box.depth for box in boxes)
    return edges[-1] + _MARGIN, 2 * _MARGIN + _FONT_SIZE + deepest * _ROW_HEIGHT + _WORD_DROP


def _node_marks(box: TreeNodeBox, tag_y: float) -> list[str]:
    """Return the SVG of a node: its label, its word, and the lines to its children; all tags are at `tag_y`."""
    y = tag_y if box.word else _label_y(box)
    lines = [
        f'<polyline points="{box.x:.1f},{y + _LINE_BELOW:.1f} {child.x:.1f},{_label_y(child) - _LINE_ABOVE:.1f}'
        f'{f" {child.x:.1f},{tag_y - _LINE_ABOVE:.1f}" if child.word else ""}"/>'
        for child in box.children
    ]
    texts = [f'<text class="{box.css_class}" x="{box.x:.1f}" y="{y:.1f}">{_escape_xml(box.label)}</text>']
    if box.word:
        texts.append(f'<text class="word" x="{box.x:.1f}" y="{y + _WORD_DROP:.1f}">{_escape_xml(box.word)}</text>')
    return [*lines, *texts]


def _label_y(box: TreeNodeBox) -> float:
    """Return the baseline of a node's label."""
    return _MARGIN + _FONT_SIZE + _ROW_HEIGHT * box.depth


def _tree_text(tree: TreeLike) -> str:
    return " ".join(box.word for box in place_nodes(tree) if box.word)


def text_width(text: str) -> float:
    """Return the estimated width of a text."""
    return _FONT_SIZE * sum(map(_letter_width, text))


def _letter_width(letter: str) -> float:
    """Return the estimated width of a letter, relative to the font size."""
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if letter in _NARROW_LETTERS:
        return 0.42
    return 0.78 if letter.isupper() or letter in "mw@%&" else 0.6


def _escape_xml(text: str) -> str:
    """Escape a text for XML, with characters that XML forbids replaced."""
    return escape(_INVALID_IN_XML.sub("\ufffd", text))
