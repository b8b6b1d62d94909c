"""Text is text, whoever wrote it: nothing in a source, a translation or a name runs or is fetched (promise D12)."""

import pytest

HOSTILE = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>&lt;b&gt;'
BIDI = "\u202eright\u202c \u2066left\u2069 \u200f\u0000.\u2028x"


def hostile_answer(route):
    route.fulfill(json={"translations": [[{"text": HOSTILE + text} for text in ("", " 1", " 2")]], "model": HOSTILE})


@pytest.mark.parametrize("text", [HOSTILE, BIDI], ids=["markup", "directions"])
def test_a_hostile_source_runs_no_script_and_sends_no_request_elsewhere(page, text):
    """That nothing is asked of another host, and that no script fails, is looked after by the fixture."""
    page.fill("#source", text)
    page.wait_for_selector("#target .word")
    page.click("#inspect")
    page.wait_for_selector("#view .dv-tab")
    for tab in ("Alignment", "Beam", "Compare", "Heads"):
        page.click(f"#view .dv-tab:text-is('{tab}')")
        page.wait_for_selector("#view:not(.dv-waiting)")
    assert page.title() == "Dragoman"
    assert page.locator("#target img, #view img, #target script, #view script").count() == 0


def test_a_hostile_translation_is_shown_as_text(page):
    page.route("**/v1/translate", hostile_answer)
    page.fill("#source", "The lamp is old.")
    page.wait_for_selector("#target .word")
    assert page.text_content("#target") == HOSTILE
    page.click("#alternatives")
    page.wait_for_selector("#others-list button")
    assert page.locator("#target img, #others img").count() == 0
    assert page.title() == "Dragoman"


def test_hostile_names_are_shown_as_text(visit, served):
    named = {"name": HOSTILE, "source": "en", "target": "de", "source_name": HOSTILE, "target_name": "x"}
    kind = {"has_language_pair": True, "raw_text_io": True, "never_split": False, "is_language_model": False}
    models = [{**named, **kind, "noun": HOSTILE, "input_hint": HOSTILE}]

    def rename(page):
        page.route("**/v1/info", lambda route: route.fulfill(json={"version": "1", "models": models}))
        page.route(
            "**/languages", lambda route: route.fulfill(json=[{"code": "en", "name": HOSTILE, "targets": ["de"]}])
        )

    page = visit(served, rename)
    page.wait_for_selector("#from option", state="attached")
    assert page.locator("#from option").text_content() == HOSTILE
    assert page.title() == "Dragoman"
