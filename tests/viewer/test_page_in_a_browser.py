"""The page as Chromium shows it; these tests are skipped where there is no Chromium."""

import re
import subprocess
from pathlib import Path

import pytest

from dragoman.viewer.page import page

CHROMIUM = Path("/usr/bin/chromium")
QUIET = "--disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync"

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium")


@pytest.fixture
def shown(tmp_path):
    """Return a function that opens a page and returns its elements as they are when its scripts have run."""

    def show(html: str) -> str:
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", *QUIET.split(), "--dump-dom"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "page.html").as_uri()]
        return subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.decode()

    return show


def acting(html: str, script: str) -> str:
    """Return the page with a script that uses it and says in the title what it found; the policy would forbid that."""
    html = re.sub(r"<meta http-equiv=[^>]*>", "", html)
    press = "const press = (element, key) => element.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));"
    return html.replace("</body>", f"<script>{press} document.title = (() => {{ {script} }})();</script></body>")


def said(dom: str) -> str:
    return re.findall(r"<title>(.*?)</title>", dom, re.DOTALL)[0]


def test_the_pages_script_runs_under_its_own_policy_and_leaves_hostile_pieces_text(record_of, shown):
    hostile = ("<img src=x onerror=document.title=1>", "</script><b>x</b>", "⟨end⟩")
    dom = shown(page(record_of(hostile, hostile, title="a <run>")))
    body = dom.split("<body>")[1].split('<script type="application/json"')[0]
    assert body.count('class="thumb"') == 2
    assert "&lt;img src=x onerror=document.title=1&gt;" in body
    assert "<img" not in body and "<b>x" not in body
    assert said(dom) == "Attention: a &lt;run&gt;"


def test_a_words_partners_are_marked_and_named(record, shown):
    script = """
      document.querySelectorAll("#target .word")[1].focus();
      return document.getElementById("said").textContent + " " +
        document.querySelectorAll("#source .word")[1].querySelector(".share").textContent;"""
    text = said(shown(acting(page(record), script)))
    assert re.match("“Lampe” was written looking at “lamp” \\d+(\N{NO-BREAK SPACE}|&nbsp;)%.* \\d+", text)


def test_arrow_keys_walk_the_grid_and_read_the_large_matrix(record, shown):
    script = """
      const grid = document.getElementById("grid"), cells = document.getElementById("cells");
      grid.querySelector(".thumb").focus();
      press(grid, "ArrowRight"); press(grid, "ArrowDown");
      const at = document.activeElement.getAttribute("aria-label");
      document.activeElement.click();
      press(cells, "ArrowDown"); press(cells, "ArrowRight");
      const number = document.getElementById("read").textContent;
      document.getElementById("close").click();
      return [at, number, document.getElementById("large").open].join("|");"""
    at, number, still_open = said(shown(acting(page(record), script))).split("|")
    assert at == "Layer 2, head 2"
    assert number.startswith("Having read ▁Die, about to write ▁Lam, it looks at ▁lamp with weight ")
    assert abs(float(number.split()[-1]) - record.cross[1, 1, 1, 1]) < 0.01
    assert still_open == "false"


def test_the_table_holds_the_mean_over_heads(record, shown):
    script = """
      document.querySelectorAll(".thumb")[4].click();
      document.getElementById("table").open = true;
      document.getElementById("table").ontoggle();
      return document.querySelector("table").rows[3].cells[2].textContent;"""
    assert abs(float(said(shown(acting(page(record), script)))) - record.cross[0, :, 2, 1].mean()) < 0.01
