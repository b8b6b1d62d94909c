"""The page of a training as a person sees it; skipped where there is no browser."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sites import Site

from dragoman.server.serve import bind_socket
from dragoman.watch.background import background_page

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]

pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="needs a browser: chromium or google-chrome"),
    pytest.mark.xdist_group("watch-browser"),
]
HOSTILE = "<img src=x onerror=document.title='hurt'>"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def growing(tmp_path_factory):
    """A run that has not begun, and its page."""
    run = tmp_path_factory.mktemp("growing") / "run"
    listening = bind_socket("127.0.0.1", 0)
    port = listening.getsockname()[1]
    with background_page(run, listening):
        yield Site(f"http://127.0.0.1:{port}/", run)


@pytest.fixture
def page(browser):
    """A page whose every complaint fails the test."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(120_000)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if "127.0.0.1" in request.url else complaints.append(request.url))
    yield page
    page.close()
    assert not complaints


def write(
    run: Path, steps: range, samples: list[dict[str, str]] | None = None, score: dict[str, Any] | None = None
) -> None:
    """Write what a training would; its score as the first versions did, unless one is given."""
    run.mkdir(exist_ok=True)
    (run / "recipe.toml").write_text("[model]\nlayers = 2\n[training]\nsteps = 100\n")
    with (run / "metrics.jsonl").open("a") as file:
        for step in steps:
            values = {"nll": 9 / step, "rate": 0.001, "tokens_per_second": 1000, "seconds": step}
            file.write(json.dumps({"event": "train", "step": step, **values}) + "\n")
        if samples is not None:
            found = {"loss": 9 / steps[-1], "perplexity": 5.0, **(score or {"bleu": 30.0}), "samples": samples}
            file.write(json.dumps({"event": "validation", "step": steps[-1], **found}) + "\n")


def test_the_page_waits_for_a_training_and_follows_it(page, growing):
    page.goto(growing.address)
    page.get_by_text("Waiting for training to start").wait_for()
    assert page.locator(".curve:visible").count() == 0
    write(growing.run, range(1, 11))
    page.get_by_text("10 of 100").wait_for()
    assert page.locator(".curve:visible").count() == 3  # nothing has been validated
    write(growing.run, range(11, 21), [{"source": "a cat", "reference": "eine Katze", "translation": "eine Kuh"}])
    page.get_by_text("20 of 100").wait_for()
    assert page.locator(".curve:visible").count() == 5
    assert page.locator("#samples .translation").inner_text().endswith("eine Kuh")
    assert page.locator("#samples u").all_inner_texts() == ["Kuh"]
    write(growing.run, range(21, 31), [{"source": HOSTILE, "reference": HOSTILE, "translation": HOSTILE}])
    page.get_by_text("30 of 100").wait_for()
    assert HOSTILE in page.locator("#samples").inner_text()
    assert page.title() == "run"
    page.get_by_label("Earlier validation").click()
    page.locator("#samples").get_by_text("eine Kuh").wait_for()


def test_the_curve_of_the_score_has_the_name_of_its_measure(page, growing):
    shutil.rmtree(growing.run, ignore_errors=True)
    write(growing.run, range(1, 11), [{"source": "cat", "reference": "k", "translation": "k æ t"}])
    page.goto(growing.address)
    page.get_by_role("heading", name="BLEU").wait_for()
    write(growing.run, range(11, 21), [], {"score": 31.5, "measure": "WER"})
    page.get_by_role("heading", name="WER").wait_for()
    assert page.get_by_role("slider", name="WER").get_attribute("aria-valuetext").endswith("31.5")
    page.get_by_text("Show as a table").click()
    assert "WER" in page.locator("#table thead").inner_text()
    assert page.get_by_text("BLEU").count() == 0


def test_a_sentence_is_proposed_but_not_to_one_who_is_about_to_type(page, growing):
    shutil.rmtree(growing.run, ignore_errors=True)
    page.goto(growing.address)
    sentence = page.get_by_label("Sentence to inspect")
    sentence.focus()
    write(growing.run, range(1, 11), [{"source": "a cat", "reference": "eine Katze", "translation": "eine Kuh"}])
    page.get_by_text("10 of 100").wait_for()
    assert sentence.input_value() == ""
    sentence.blur()
    write(growing.run, range(11, 21))
    page.get_by_text("20 of 100").wait_for()
    assert sentence.input_value() == "a cat"


def test_keys_walk_a_curve_and_all_curves_follow(page, site):
    page.goto(site.address)
    loss = page.get_by_role("slider", name="Loss")
    loss.locator("path").first.wait_for(state="attached")  # without a curve there is nothing to walk
    loss.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert loss.get_attribute("aria-valuetext").startswith("step 2: training ")
    rate = page.get_by_role("slider", name="Learning rate")
    assert rate.get_attribute("aria-valuenow") == "2"
    assert page.locator(".cursor line").count() == 5
    page.keyboard.press("Escape")
    assert page.locator(".cursor line").count() == 0


def test_the_numbers_are_there_as_a_table(page, site):
    page.goto(site.address)
    page.get_by_text("Show as a table").click()
    rows = page.locator("#table tbody tr")
    rows.first.wait_for()
    assert rows.locator("th").all_inner_texts()[-2:] == ["8", "4"]
    assert page.locator("#table thead th").first.inner_text() == "Step"


def test_one_looks_inside_a_checkpoint_with_the_viewer(page, site):
    page.goto(site.address)
    page.get_by_label("Sentence to inspect").fill("a b c")
    page.get_by_role("button", name="Show attention").click()
    page.get_by_text("Checkpoint at step 8.").wait_for()
    page.locator("#viewer canvas").first.wait_for()
    assert page.locator("#viewer").inner_text().split()[:4] == ["a", "b", "c", "⟨end⟩"]


def test_the_page_fits_a_phone(page, site):
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(site.address)
    page.locator(".curve .line").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_axe_finds_nothing_to_complain_about_in_light_and_dark(page, site):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    page.goto(site.address)
    page.locator(".curve .line").first.wait_for()
    page.get_by_text("Show as a table").click()
    page.locator("#table tbody tr").first.wait_for()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = axe.Axe().run(page).response["violations"]
        assert not [(each["id"], each["nodes"][0]["html"]) for each in found]


def test_one_looks_at_a_recording_that_the_page_proposes(page, hearing):
    page.goto(hearing.address)
    page.locator("#samples .source").first.wait_for()
    assert page.locator("#samples .source").first.inner_text().split() == ["Recording", "valid-00000.wav"]
    assert page.get_by_label("Recording to inspect").input_value() == "valid-00000.wav"
    page.get_by_role("button", name="Show attention").press("Enter")  # a pointer would hover over what appears below it
    page.get_by_text("Checkpoint at step 4.").wait_for()
    time = page.get_by_role("slider", name="Time in the recording")
    time.press("ArrowRight")
    page.get_by_text("0.04 is attended to by").wait_for()
    playwright.expect(time).to_have_attribute("aria-valuetext", "0.04 s", timeout=60_000)
    page.keyboard.press("End")
    page.locator("#viewer .dv-sentence.dv-source").wait_for(state="hidden")
    last = time.get_attribute("aria-valuemax")
    playwright.expect(time).to_have_attribute("aria-valuenow", last, timeout=60_000)  # drawn in the next frame
