"""axe finds no serious violation on any page, in either theme, at either width."""

import pytest

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")

SENTENCE = "The lamp is old, but it works."
SERIOUS = ("serious", "critical")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}
PHONE = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}


def check(page):
    """Let axe look at a page as it is."""
    found = axe.Axe().run(page, options=RULES).response["violations"]
    serious = [(each["id"], each["nodes"][0]["target"], each["help"]) for each in found if each["impact"] in SERIOUS]
    assert not serious


@pytest.mark.parametrize("options", [{}, PHONE], ids=["light and wide", "dark and narrow"])
def test_the_page_has_no_accessibility_violations(visit, served, options):
    page = visit(served, **options)
    page.wait_for_selector("#from option", state="attached")
    check(page)
    page.fill("#source", SENTENCE)
    page.wait_for_selector("#target .word")
    page.locator("#target .word").nth(1).click()
    page.wait_for_selector("#others-list button, #others-status:has-text('no alternative')")
    check(page)


@pytest.mark.parametrize("options", [{}, PHONE], ids=["light and wide", "dark and narrow"])
def test_the_page_of_a_transcriber_has_no_accessibility_violations(visit, speech_server, recording, options):
    page = visit(speech_server, **options)
    page.wait_for_selector("#sound-side:visible")
    check(page)
    page.set_input_files("#file", recording)
    page.wait_for_selector("#target .word")
    page.locator("#target .word").last.focus()
    page.wait_for_selector("#target .word.heard")
    check(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= options.get("viewport", {"width": 1200})["width"]


@pytest.mark.parametrize("options", [{}, PHONE], ids=["light and wide", "dark and narrow"])
def test_the_viewer_has_no_accessibility_violations(visit, served, options):
    page = visit(served, **options)
    page.fill("#source", SENTENCE)
    page.click("#inspect:enabled")
    page.wait_for_selector("#view .dv-tab")
    for tab in ("Heads", "Alignment", "Beam", "Compare"):
        page.click(f"#view .dv-tab:text-is('{tab}')")
        page.wait_for_selector("#view:not(.dv-waiting)")
        check(page)
