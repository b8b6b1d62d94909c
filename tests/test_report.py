"""Reports as Markdown and as a self-contained page."""

import re

import pytest

from dragoman.report import (
    ExperimentReport,
    ReportFormula,
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
    return ReportSection(
        "name", "Title", "Why?", tmp_path, report, {"command": "dragoman lab name"}, "section 3: it is < 3 %."
    )


def test_a_page_loads_nothing_else_and_escapes_its_text(section):
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


def test_the_claim_of_the_paper_is_shown_with_the_findings(section, tmp_path):
    assert "The paper, section 3: it is < 3 %.\n\n- 1 < 2" in render_markdown([section], tmp_path)
    assert "<p>The paper, section 3: it is &lt; 3&nbsp;%.</p>" in render_html("Title", [section])


def test_a_page_has_one_title_and_a_heading_per_section(section):
    assert render_html("Title", [section]).count("Title</h") == 1
    both = render_html("All", [section, section])
    assert both.count("<h1>All</h1>") == 1 and both.count("<h2>Title</h2>") == 2


def test_text_is_aligned_left_and_numbers_right(tmp_path):
    rows = (("a", "1.0 (0.9–1.1)", None, "2 words before"), ("b", "−2 to 3 %", 3, "1 better"))
    found = html_part(ReportTable("T", ("what", "median", "count", "verdict"), rows), tmp_path)
    assert found.count('class="words"') == 2 * 3  # the first and the last column, and their headings
    assert '<td>1.0 (0.9–1.1)</td><td></td><td class="words">2 words before</td>' in found
    assert "<tbody></tbody>" in html_part(ReportTable("T", ("nothing",), ()), tmp_path)


def test_a_formula_is_set_on_a_line_of_its_own_with_its_number(tmp_path):
    formula = ReportFormula("<i>y</i> = <i>x</i><sup>2</sup>", "(3)")
    report = ExperimentReport((), (formula,), {})
    assert ExperimentReport.from_json(report.to_json()) == report
    found = html_part(formula, tmp_path)
    assert found == '<p class="formula"><span><i>y</i> = <i>x</i><sup>2</sup></span><span>(3)</span></p>'
    section = ReportSection("name", "Title", "Why?", tmp_path, report)
    assert "\n\n<i>y</i> = <i>x</i><sup>2</sup>   (3)\n" in render_markdown([section], tmp_path)


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, ""), ("x", "x"), (12345, "12,345"), (1.23456, "1.235"), (0.0, "0"), (12345.6, "12,346"),
     (1e9, "1.00e+09"), (float("nan"), "not finite"), (float("inf"), "not finite"), (-0.5, "-0.5")],
)  # fmt: skip
def test_numbers_are_formatted_with_significant_digits(cell, text):
    assert format_cell(cell) == text
