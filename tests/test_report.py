"""Reports need no other file, and what they hold is shown as it is."""

import re

import pytest

from dragoman.report import (
    ExperimentReport,
    ReportPicture,
    ReportSection,
    ReportTable,
    format_cell,
    html_part,
    render_html,
    render_markdown,
)


@pytest.fixture
def section(tmp_path):
    (tmp_path / "p.png").write_bytes(b"\x89PNG")
    table = ReportTable("<T>", ("a|b", "c"), (("<script>", 0.00012), (None, 123456)), note="A & B")
    report = ExperimentReport(("1 < 2",), ("a paragraph", table, ReportPicture("p.png", 'a "quoted" caption')), {})
    return ReportSection("name", "Title", "Why?", tmp_path, report, {"command": "dragoman lab name"}, "It is < 3.")


def test_a_page_asks_for_nothing_from_elsewhere_and_escapes_what_it_shows(section):
    found = render_html("Title", [section])
    assert not re.search(r"(src|href)=\"(?!data:|#)", found)
    assert "<script>" not in found
    assert "&lt;script&gt;" in found
    assert 'alt="a &quot;quoted&quot; caption"' in found
    assert "data:image/png;base64,iVBORw==" in found


def test_markdown_has_the_table_the_picture_and_the_command(section, tmp_path):
    found = render_markdown([section], tmp_path)
    assert "| a\\|b | c |\n| --- | ---: |\n| <script> | 1.20e-04 |\n|  | 123,456 |" in found
    assert '![a "quoted" caption](p.png)' in found
    assert "- command: dragoman lab name" in found
    assert "- 1 < 2" in found


def test_what_the_paper_says_stands_beside_what_was_found(section, tmp_path):
    assert "The paper: It is < 3.\n\n- 1 < 2" in render_markdown([section], tmp_path)
    assert "<p>The paper: It is &lt; 3.</p>" in render_html("Title", [section])


def test_a_title_stands_once_on_a_page_of_its_own_and_under_the_common_one_on_a_page_of_several(section):
    assert render_html("Title", [section]).count("Title</h") == 1
    both = render_html("All", [section, section])
    assert both.count("<h1>All</h1>") == 1 and both.count("<h2>Title</h2>") == 2


def test_words_are_read_from_the_left_and_numbers_stand_under_each_other(tmp_path):
    rows = (("a", "1.0 (0.9–1.1)", None, "no difference"), ("b", "−2", 3, "1 better"))
    found = html_part(ReportTable("T", ("what", "median", "count", "verdict"), rows), tmp_path)
    assert found.count('class="words"') == 2 * 3  # the first and the last column, and their headings
    assert '<td>1.0 (0.9–1.1)</td><td></td><td class="words">no difference</td>' in found
    assert "<tbody></tbody>" in html_part(ReportTable("T", ("nothing",), ()), tmp_path)


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, ""), ("x", "x"), (12345, "12,345"), (1.23456, "1.235"), (0.0, "0"), (12345.6, "12,346"),
     (1e9, "1.00e+09"), (float("nan"), "not finite"), (float("inf"), "not finite"), (-0.5, "-0.5")],
)  # fmt: skip
def test_numbers_have_the_digits_that_mean_something(cell, text):
    assert format_cell(cell) == text
