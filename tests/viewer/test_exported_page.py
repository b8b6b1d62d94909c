"""The exported page in Chromium, opened from disk; and the same viewer where it can ask for another look."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman.viewer.document import viewer_document
from dragoman.viewer.page import STATIC_FILES, render_page
from dragoman.viewer.record import BeamNode, BeamTree, DecodingStep, TokenChoice

CHROMIUM = Path("/usr/bin/chromium")
QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield browser
        browser.close()


@pytest.fixture
def tab(browser):
    """A page of the browser; what its scripts complain about fails the test."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.set_default_timeout(120_000)
    complaints = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    yield tab
    tab.close()
    assert complaints == []


@pytest.fixture
def whole(record):
    """A record with all that a look can have."""
    node = {"token": 9, "text": "Die", "log_probability": -0.1, "sum": -0.1, "score": -0.1}
    nodes = (
        BeamNode(parent=None, piece=" Die", step=0, status="chosen", **node),
        BeamNode(parent=0, piece=" Lam", step=1, status="chosen", **{**node, "text": "Die Lam"}),
        BeamNode(parent=0, piece=" Leuchte", step=1, status="pruned", **{**node, "text": "Die Leuchte"}),
    )
    steps = tuple(
        DecodingStep(-0.2, (TokenChoice(piece, -0.2), TokenChoice(" x", -3.0))) for piece in record.target_pieces
    )
    spans = {side: spans_of(getattr(record, f"{side}_pieces")) for side in ("source", "target")}
    return replace(
        record,
        beam=BeamTree(nodes, 4, 0.6, record.cross[0, 0, :3], 0),
        steps=steps,
        source_spans=spans["source"],
        target_spans=spans["target"],
    )


def spans_of(pieces):
    """Return where pieces stand in their text, whose first space is not written."""
    ends = [len("".join(pieces[:i])) - 1 for i in range(1, len(pieces))]
    return (*zip([0, *ends], ends, strict=False), (ends[-1], ends[-1]))


@pytest.fixture
def opened(tab, tmp_path):
    """Return a function that opens a page from disk, with an address behind it if wanted."""

    def show(html, address=""):
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        asked = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((tmp_path / "page.html").as_uri() + address)
        tab.wait_for_selector(".dv-word")
        assert [url for url in asked if not url.startswith(("file:", "blob:"))] == []
        return tab

    return show


def test_the_script_runs_under_its_own_policy_and_leaves_hostile_pieces_text(record_of, opened):
    hostile = ("<img src=x onerror=document.title=1>", "</script><b>x</b>", "⟨end⟩")
    tab = opened(render_page(record_of(hostile, hostile, title="a <run>")))
    assert "<img src=x" in tab.inner_text(".dv-source")
    assert tab.locator("#dv-root img, #dv-root b b").count() == 0
    assert tab.title() == "Attention: a <run>"


def test_one_pointer_marks_the_text_the_matrix_and_every_thumbnail(whole, opened):
    tab = opened(render_page(whole))
    assert tab.locator(".dv-thumb").count() == 48
    tab.hover(".dv-target .dv-word >> nth=1")
    tab.wait_for_selector(".dv-source .dv-share:text('%')")
    assert re.match(r"Lampe attends to lamp \d+", tab.inner_text(".dv-summary"))
    assert "Probability 0.67" in tab.inner_text(".dv-summary")
    assert tab.locator(".dv-band:visible").count() == 1
    painted = """() => [...document.querySelectorAll(".dv-overlay")].map(canvas =>
      canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(byte => byte))"""
    assert tab.evaluate(painted) == [False, True, True]


def test_a_click_holds_a_word_and_escape_frees_it(whole, opened):
    tab = opened(render_page(whole))
    tab.click(".dv-source .dv-word >> nth=1")
    tab.hover(".dv-source .dv-word >> nth=3")
    tab.wait_for_selector(".dv-summary:has-text('lamp is attended to by Lampe')", state="attached")
    assert tab.inner_text(".dv-summary").startswith("lamp is attended to by Lampe")
    assert tab.get_attribute(".dv-source .dv-word >> nth=1", "aria-pressed") == "true"
    tab.mouse.move(0, 0)
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".dv-summary:text('Hover over a word')")


def test_arrow_keys_walk_words_thumbnails_and_the_matrix(whole, opened):
    tab = opened(render_page(whole))
    tab.focus(".dv-target .dv-word >> nth=0")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_selector(".dv-summary:text('Lampe attends')")
    tab.focus(".dv-grid:nth-of-type(3) .dv-thumb >> nth=0")
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        tab.keyboard.press(key)
    tab.wait_for_selector("h3:text('Cross-attention, layer 2, head 2')")
    tab.click("text=Sub-words")
    tab.focus(".dv-matrix")
    for key in ("ArrowDown", "ArrowRight"):
        tab.keyboard.press(key)
    read = tab.wait_for_selector(".dv-read:text('with weight')").inner_text()
    assert read.startswith("Lam attends to lamp with weight ")
    assert abs(float(read.split()[-1].rstrip(".")) - whole.cross[1, 1, 1, 1]) < 0.005


def test_the_table_holds_the_mean_of_the_heads_that_are_chosen(whole, opened):
    tab = opened(render_page(whole))
    tab.click("text=Sub-words")
    tab.click("[aria-label='All heads of layer 1, Cross-attention']")
    tab.click("text=Table")
    cell = tab.wait_for_selector(".dv-table tbody tr:nth-child(3) td:nth-of-type(2)")
    assert abs(float(cell.inner_text()) - whole.cross[0, :, 2, 1].mean()) < 0.01


def test_shift_adds_a_head_to_the_mean(whole, opened):
    tab = opened(render_page(whole))
    thumbs = tab.locator(".dv-grid >> nth=0").locator(".dv-thumb")
    thumbs.nth(1).click()
    thumbs.nth(6).click(modifiers=["Shift"])
    tab.wait_for_selector(".dv-large h3:text-is('Encoder self-attention, mean of 1.2, 2.3')")


def test_sinks_are_greyed_and_their_mass_is_printed(whole, opened):
    tab = opened(render_page(whole))
    tab.click("text=Sub-words")
    mass = whole.cross[..., -1].mean()
    tab.wait_for_selector(
        f".dv-sink:text('{round(100 * mass)}\N{NO-BREAK SPACE}% of this weight is on ⟨end⟩, shown in grey.')"
    )


def test_the_alignment_names_its_method_and_gives_pharaohs_format(whole, opened):
    tab = opened(render_page(whole))
    tab.click("role=tab[name='Alignment']")
    methods = viewer_document(whole)["alignment"]["methods"]
    assert tab.inner_text(".dv-code") == methods["mean"]["pharaoh"]
    tab.click("text=Shift-Att")
    tab.wait_for_selector(".dv-note:text('at the step whose input')")
    assert tab.inner_text(".dv-code") == methods["shifted"]["pharaoh"]


def test_the_tree_shows_what_was_tried_and_what_a_step_thought(whole, opened):
    tab = opened(render_page(whole))
    tab.click("role=tab[name='Beam']")
    tab.wait_for_selector(".dv-beam rect[role=treeitem] >> nth=2")
    assert tab.locator(".dv-beam rect[role=treeitem]").count() == 3
    tab.hover(".dv-beam text:text-is('Leuchte')")
    tab.wait_for_selector(".dv-card:has-text('pruned from the beam')")
    assert tab.inner_text(".dv-sofar") == "Die Leuchte"
    assert tab.locator("text=Continue from here").count() == 0  # nobody is there to ask


def test_the_address_opens_what_was_seen(whole, opened):
    tab = opened(render_page(whole))
    tab.click(".dv-grid >> nth=1 >> .dv-thumb >> nth=6")
    tab.click("text=Sub-words")
    tab.click(".dv-target .dv-word >> nth=2")
    tab.wait_for_function("() => location.hash.includes('lock=')")
    address = tab.evaluate("location.hash")
    tab.goto("about:blank")
    again = opened(render_page(whole), address)
    assert again.inner_text(".dv-large h3") == "Decoder self-attention, layer 2, head 3"
    assert again.inner_text(".dv-summary").startswith("pe attends to")


def test_two_looks_stand_side_by_side(whole, record_of, opened):
    other = record_of((" The", " lamp", "⟨end⟩"), (" Die", " Lampe", "⟨end⟩"), title="another run")
    tab = opened(render_page(whole, other))
    tab.click("role=tab[name='Compare']")
    tab.wait_for_selector(".dv-side h3 >> nth=1")
    assert tab.locator(".dv-side h3").all_inner_texts() == ["runs/quickstart", "another run"]
    assert tab.locator(".dv-side .dv-matrix canvas").count() == 2


@pytest.mark.parametrize(("button", "opening"), [("PNG", b"\x89PNG"), ("SVG", b"<svg"), ("CSV", b",The,lamp")])
def test_a_panel_is_saved_as_a_picture_or_as_numbers(whole, opened, button, opening, tmp_path):
    tab = opened(render_page(whole))
    with tab.expect_download() as download:
        tab.click(f"role=button[name='{button}']")
    download.value.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes().startswith(opening)


def test_the_saved_page_opens_again_and_saves_itself_again(whole, opened, tmp_path):
    tab = opened(render_page(whole))
    for _ in range(2):
        with tab.expect_download() as download:
            tab.click("text=Save as HTML")
        download.value.save_as(tmp_path / "saved.html")
        tab = opened((tmp_path / "saved.html").read_text(encoding="utf-8"))
        assert tab.locator(".dv-thumb").count() == 48


def test_a_phone_needs_no_scrolling_sideways(whole, opened):
    tab = opened(render_page(whole))
    tab.set_viewport_size({"width": 360, "height": 740})
    for name in ("Heads", "Alignment", "Beam"):
        tab.click(f"role=tab[name='{name}']")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_text_from_right_to_left_is_set_from_right_to_left(record_of, opened):
    tab = opened(render_page(record_of(("المصباح", " قديم", "⟨end⟩"), (" The", " lamp", "⟨end⟩"))))
    tab.wait_for_selector(".dv-source:dir(rtl)")
    assert tab.locator(".dv-target:dir(ltr)").count() == 1


@pytest.fixture
def served(tab, whole):
    """The viewer as a page uses it, whose every question is written down and answered without the last word."""
    shorter = replace(whole, ablated_heads=(("cross", 0, 0),), target_text="Die Lampe ist neu, aber sie funktioniert.")
    head = {"kind": "cross", "layer": 0, "head": 0, "badges": ["alignment"], "importance": 0.5}
    answers = {"first": viewer_document(whole), "then": viewer_document(shorter), "report": {"heads": [head]}}
    script = f"""
      import {{ show }} from "/viewer/viewer.js";
      const answers = {json.dumps(answers)};
      window.asked = [];
      show(document.getElementById("root"), answers.first, {{
        rerun: async (change) => {{ asked.push(change); return answers.then; }},
        report: async () => answers.report,
        checkpoints: async () => [100, 200],
      }});"""
    files = {
        "/": (
            "text/html",
            '<!doctype html><link rel=stylesheet href="/viewer/viewer.css"><div id=root></div>'
            '<script type=module src="/start.js"></script>',
        ),
        "/start.js": ("text/javascript", script),
    }

    def answer(route):
        path = "/" + route.request.url.split("/", 3)[3]
        if path.startswith("/viewer/"):
            kind = "text/css" if path.endswith(".css") else "text/javascript"
            route.fulfill(body=(STATIC_FILES / path.removeprefix("/viewer/")).read_text("utf-8"), content_type=kind)
        else:
            kind, body = files.get(path, ("text/plain", ""))
            route.fulfill(body=body, content_type=kind, headers={"Content-Security-Policy": "default-src 'self'"})

    tab.route("http://localhost/**", answer)
    tab.goto("http://localhost/")
    tab.wait_for_selector(".dv-importance")
    return tab


def test_a_head_is_switched_off_and_the_difference_is_shown(served):
    served.click(".dv-grid >> nth=2 >> .dv-thumb >> nth=0")
    served.wait_for_selector(".dv-facts:has-text('alignment')")
    served.click("text=Ablate this head")
    served.wait_for_selector(".dv-before del:text-is('alt')")
    assert served.evaluate("asked") == [{"trace": True, "ablate_heads": [["cross", 0, 0]]}]
    assert "1 of 9 words changed" in served.inner_text(".dv-changes")
    assert served.locator(".dv-target .dv-new").all_inner_texts() == ["neu"]
    assert served.locator(".dv-thumb.dv-off").count() == 1
    served.click("text=Undo all")
    served.wait_for_selector(".dv-changes", state="detached")


def test_the_search_goes_on_from_any_piece_of_the_tree(served):
    served.click("role=tab[name='Beam']")
    served.click(".dv-beam text:text-is('Leuchte')")
    served.click("text=Continue from here")
    served.wait_for_function("() => asked.length")
    assert served.evaluate("asked[0].prefix") == "Die Leuchte"


def test_the_slider_asks_for_a_checkpoint(served):
    served.fill(".dv-slider input", "0")
    served.wait_for_function("() => asked.length")
    assert served.evaluate("asked[0].checkpoint") == 100


def test_the_served_viewer_saves_a_page_that_needs_no_server(served, opened, tmp_path):
    with served.expect_download() as download:
        served.click("text=Save as HTML")
    download.value.save_as(tmp_path / "saved.html")
    tab = opened((tmp_path / "saved.html").read_text(encoding="utf-8"))
    assert tab.locator(".dv-importance").count() == 1  # the report is in it
    assert tab.locator("text=Switch").count() == 0
