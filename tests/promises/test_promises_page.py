"""docs/promises.md names every promise once, and only tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
ROWS = {
    cells[1]: cells for cells in ([cell.strip() for cell in line.split("|")] for line in PAGE.splitlines()) if cells[1:]
}
NUMBERS = {"A": 16, "B": 17, "C": 15, "D": 15, "E": 9}


def functions(name):
    """The names of the functions in the test file of this name, which only one has."""
    (path,) = (ROOT / "tests").rglob(name)
    return {node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if hasattr(node, "name")}


def test_every_promise_has_one_row():
    numbers = re.findall(r"^\| ([A-E]\d+) \|", PAGE, re.MULTILINE)
    assert numbers == [f"{letter}{number}" for letter, last in NUMBERS.items() for number in range(1, last + 1)]


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", PAGE)
    missing = [f"{file}::{test}" for file, test in named if test not in functions(file)]
    assert named and missing == []


def test_a_promise_that_holds_has_a_test_and_the_others_say_what_is_missing():
    rows = {number: cells for number, cells in ROWS.items() if re.fullmatch(r"[A-E]\d+", number)}
    assert {cells[3] for cells in rows.values()} == {"yes", "partly", "no"}
    assert [number for number, cells in rows.items() if cells[3] == "yes" and "::" not in cells[4]] == []
    assert [number for number, cells in rows.items() if cells[3] == "partly" and not cells[5]] == []


def test_the_threat_model_names_what_is_trusted():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for words in ("| trusted | not trusted |", "Report a vulnerability", "What we do not promise", "docs/promises.md"):
        assert words in text
