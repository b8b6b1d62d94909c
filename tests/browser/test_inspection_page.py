"""The viewer below the translation shows what the model computes, and its changes are computed by the model."""

import re
from pathlib import Path

import pytest

import dragoman
from dragoman.viewer.document import viewer_document

SENTENCE = "The lamp is old, but it works."
WEIGHTS = """() => [...document.querySelectorAll('#view .dv-source .dv-word')]
  .map((word) => word.style.getPropertyValue('--dv-weight'))"""


@pytest.fixture(scope="module")
def model(runs):
    return dragoman.load(runs[0])


def look_at(page, sentence=SENTENCE):
    """Translate a sentence and open the viewer."""
    page.fill("#source", sentence)
    page.click("#inspect:enabled")
    page.wait_for_selector("#view .dv-tab")


@pytest.fixture
def viewer(page):
    look_at(page)
    return page


def settled(page):
    """Wait until the viewer has its response."""
    page.wait_for_selector("#view:not(.dv-waiting)")


def drawn(page):
    """Wait until what was changed is on the screen."""
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")


def open_tab(page, name):
    page.click(f"#view .dv-tab:text-is('{name}')")
    settled(page)


def translation(page):
    """Return the translation that the viewer shows, without its end."""
    words = page.locator("#view .dv-panel, #view .dv-top").first.locator(
        ".dv-target .dv-word:not(.dv-special) .dv-label"
    )
    return [word.strip() for word in words.all_text_contents()]


def words_of(record):
    return [word["label"].strip() for word in viewer_document(record)["target"]["words"] if not word["special"]]


def test_the_viewer_is_loaded_only_when_it_is_opened(page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.fill("#source", SENTENCE)
    page.wait_for_selector("#inspect:enabled")
    assert not [url for url in asked if "/viewer/" in url or "attention" in url]
    page.click("#inspect")
    page.wait_for_selector("#view .dv-tab")
    assert [url for url in asked if "/viewer/" in url]


def test_pointing_at_a_word_shows_its_attention(viewer, model):
    words = viewer.locator("#view .dv-target .dv-word")
    words.nth(0).hover()
    viewer.wait_for_selector("#view .dv-target .dv-chosen")
    first = viewer.evaluate(WEIGHTS)
    said = viewer.text_content("#view .dv-summary")
    words.nth(2).hover()
    viewer.wait_for_function("(before) => document.querySelector('#view .dv-summary').textContent !== before", arg=said)
    second = viewer.evaluate(WEIGHTS)
    assert any(float(weight) > 0 for weight in first)
    assert first != second
    record = model.inspect(SENTENCE)
    word = viewer_document(record)["target"]["words"][2]
    weights = record.cross.mean((0, 1))[word["first"] : word["end"]].mean(0)
    source = viewer_document(record)["source"]["words"]
    shares = [weights[each["first"] : each["end"]].sum() for each in source]
    assert [float(weight) for weight in second] == pytest.approx([s**0.5 if s >= 0.03 else 0 for s in shares], abs=0.05)


def test_a_click_selects_a_word_and_escape_deselects_it(viewer):
    viewer.locator("#view .dv-target .dv-word").nth(1).click()
    viewer.mouse.move(5, 5)
    assert viewer.locator("#view .dv-target .dv-chosen").count() == 1
    viewer.keyboard.press("Escape")
    viewer.wait_for_selector("#view .dv-target .dv-chosen", state="detached")


def test_a_head_is_enlarged_and_its_cells_show_the_weights(viewer, model):
    viewer.locator("#view .dv-grid[aria-label='Cross-attention'] .dv-thumb").nth(1).click()
    viewer.wait_for_selector("#view .dv-large h3:has-text('head 2')")
    viewer.click("#view label:has-text('Sub-words')")
    viewer.focus("#view .dv-matrix")
    drawn(viewer)
    viewer.mouse.move(5, 5)  # focus may scroll the page under a pointer that rests, which then points at something
    drawn(viewer)
    viewer.keyboard.press("ArrowDown")
    viewer.keyboard.press("ArrowRight")
    drawn(viewer)
    said = viewer.locator("#view .dv-read").text_content()
    weight = float(re.search(r"weight ([\d.]+)\.$", said)[1])
    assert weight == pytest.approx(model.inspect(SENTENCE).cross[0, 1, 1, 1], abs=0.005)


def test_an_ablated_head_changes_the_translation_as_in_the_model(viewer, model):
    kind, places = "encoder", [("encoder", layer, head) for layer in range(2) for head in range(2)]
    without = next(place for place in places if model.inspect(SENTENCE, ablate_heads=[place]).target_text)
    viewer.locator(f"#view .dv-grid[aria-label^='{kind.capitalize()}'] .dv-thumb").nth(
        2 * without[1] + without[2]
    ).click()
    with viewer.expect_request("**/v1/attention") as asked:
        viewer.click("#view button:has-text('Ablate this head')")
    assert asked.value.post_data_json["ablate_heads"] == [list(without)]
    viewer.wait_for_selector("#view .dv-changes")
    assert translation(viewer) == words_of(model.inspect(SENTENCE, ablate_heads=[without]))
    viewer.click("#view button:has-text('Undo all')")
    viewer.wait_for_selector("#view .dv-changes", state="detached")
    assert translation(viewer) == words_of(model.inspect(SENTENCE))


def test_the_beam_tree_can_be_navigated_and_a_hypothesis_continued(viewer, model):
    open_tab(viewer, "Beam")
    nodes = viewer.locator("#view [role=treeitem]")
    viewer.wait_for_selector("#view [role=treeitem]")
    tree = model.inspect(SENTENCE, trace=True).beam
    assert nodes.count() == len(tree.nodes)
    viewer.press("#view [role=treeitem][tabindex='0']", "ArrowRight")
    viewer.wait_for_selector("#view .dv-card:has-text('step 2')")
    viewer.press("#view [role=treeitem][tabindex='0']", "Enter")
    with viewer.expect_request("**/v1/attention") as asked:
        viewer.click("#view button:has-text('Continue from here')")
    prefix = asked.value.post_data_json["prefix"]
    viewer.wait_for_selector("#view .dv-changes")
    assert translation(viewer) == words_of(model.inspect(SENTENCE, prefix=prefix))


def test_the_alignment_is_the_models_and_its_method_is_named(viewer, model):
    open_tab(viewer, "Alignment")
    aligned = viewer_document(model.inspect(SENTENCE))["alignment"]
    pharaoh = aligned["methods"][aligned["preferred"]]["pharaoh"]
    assert viewer.text_content("#view .dv-code") == pharaoh


def test_the_viewer_follows_the_sentence_and_keeps_its_tab(viewer):
    open_tab(viewer, "Alignment")
    viewer.fill("#source", "The dog sleeps.")
    viewer.wait_for_selector("#view .dv-source .dv-word:has-text('dog')")
    assert viewer.get_attribute("#view .dv-tab:text-is('Alignment')", "aria-selected") == "true"


def test_the_sentences_of_a_text_are_inspected_one_by_one(page):
    both = {"translations": [[{"text": "Die Lampe ist alt. Der Hund schläft."}]], "model": "there"}
    page.route("**/v1/translate", lambda route: route.fulfill(json=both))
    look_at(page, "The lamp is old. The dog sleeps.")
    page.wait_for_selector("#view .dv-source .dv-word:has-text('lamp')")
    page.select_option("#sentence", "1")
    page.wait_for_selector("#view .dv-source .dv-word:has-text('dog')")
    assert translation(page)[:3] == ["Der", "Hund", "schläft"]


def test_two_models_are_compared_side_by_side(viewer):
    viewer.select_option("#compare", "rival")
    viewer.wait_for_selector("#view .dv-side >> nth=1")
    assert viewer.locator("#view .dv-side h3").all_text_contents() == ["there", "rival"]


def test_the_viewer_fits_a_phone(visit, served):
    """The comparison was once wider than the page."""
    page = visit(served, viewport={"width": 360, "height": 740})
    look_at(page)
    for tab in ("Heads", "Alignment", "Beam", "Compare"):
        open_tab(page, tab)
        drawn(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_url_restores_the_view(visit, viewer):
    open_tab(viewer, "Alignment")
    viewer.wait_for_function("() => location.hash.includes('tab=alignment')")
    again = visit(viewer.url)
    again.wait_for_selector("#view .dv-code")
    assert again.input_value("#source") == SENTENCE


def test_the_saved_page_opens_from_disk_without_a_network(viewer, browser, tmp_path):
    with viewer.expect_download() as saved:
        viewer.click("#view button:has-text('Save as HTML')")
    file = tmp_path / "saved.html"
    saved.value.save_as(file)
    check_saved(browser, file)


def test_the_page_that_the_command_writes_opens_from_disk_without_a_network(browser, command, runs, tmp_path):
    file = tmp_path / "page.html"
    assert command("attention", runs[0], SENTENCE, "-o", file).code == 0
    check_saved(browser, file)


def check_saved(browser, file: Path) -> None:
    """Open a saved page with the network off, and use it."""
    context = browser.new_context(offline=True)
    page, asked, faults = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.goto(file.as_uri())
    page.locator(".dv-target .dv-word").nth(1).hover()
    page.wait_for_selector(".dv-target .dv-chosen")
    assert page.locator(".dv-thumb").count() == 12
    assert page.locator("button:has-text('Switch')").count() == 0
    context.close()
    assert asked == [file.as_uri()]
    assert not faults


def test_the_inspection_of_too_long_a_sentence_is_refused_with_a_message(page):
    page.fill("#source", "lamp " * 400)
    page.click("#inspect:enabled")
    page.wait_for_selector("#view-status:has-text('at most 120')")
