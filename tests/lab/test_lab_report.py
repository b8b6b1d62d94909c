"""Reports need no other file, and what they hold is shown as it is."""

import re

import pytest

from dragoman.lab.report import Chapter, Picture, Report, Table, markdown, page, written


@pytest.fixture
def chapter(tmp_path):
    (tmp_path / "p.png").write_bytes(b"\x89PNG")
    table = Table("<T>", ("a|b", "c"), (("<script>", 0.00012), (None, 123456)), note="A & B")
    report = Report(("1 < 2",), ("a paragraph", table, Picture("p.png", 'a "quoted" caption')), {})
    return Chapter("name", "Title", "Why?", tmp_path, report, {"command": "dragoman lab name"})


def test_a_page_asks_for_nothing_from_elsewhere_and_escapes_what_it_shows(chapter):
    found = page("Title", [chapter])
    assert not re.search(r"(src|href)=\"(?!data:|#)", found)
    assert "<script>" not in found
    assert "&lt;script&gt;" in found
    assert 'alt="a &quot;quoted&quot; caption"' in found
    assert "data:image/png;base64,iVBORw==" in found


def test_markdown_has_the_table_the_picture_and_the_command(chapter, tmp_path):
    found = markdown([chapter], tmp_path)
    assert "| a\\|b | c |\n| --- | --- |\n| <script> | 1.20e-04 |\n|  | 123,456 |" in found
    assert '![a "quoted" caption](p.png)' in found
    assert "- command: dragoman lab name" in found
    assert "- 1 < 2" in found


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, ""), ("x", "x"), (12345, "12,345"), (1.23456, "1.235"), (0.0, "0"), (12345.6, "12,346"),
     (1e9, "1.00e+09"), (float("nan"), "not finite"), (float("inf"), "not finite"), (-0.5, "-0.5")],
)  # fmt: skip
def test_numbers_have_the_digits_that_mean_something(cell, text):
    assert written(cell) == text
