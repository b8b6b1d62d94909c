"""Records of architectures that lack some kinds of attention, or all: what is not there is not offered."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dragoman.errors import UserError
from dragoman.viewer.alignment import all_alignments, preferred_method
from dragoman.viewer.document import viewer_document
from dragoman.viewer.line_picture import save_line_picture
from dragoman.viewer.page import render_page
from dragoman.viewer.picture import save_attention_picture

CHROMIUM = Path("/usr/bin/chromium")


def missing(record, *kinds):
    """Return a record of the same sentence by a model without these kinds of attention, whose heads stay on."""
    none = {kind: np.zeros((0, 0, *record.weights(kind).shape[2:]), np.float32) for kind in kinds}
    return replace(record, can_ablate=False, **none)


@pytest.fixture
def recurrent(record):
    """One head in one layer looks at the source, and nothing else."""
    return missing(replace(record, cross=record.cross[:1, :1]), "encoder", "decoder")


@pytest.fixture
def headless(record):
    """Nothing looks anywhere."""
    return missing(record, "encoder", "decoder", "cross")


def test_a_record_knows_its_kinds(record, recurrent, headless):
    assert record.kinds == ("encoder", "decoder", "cross")
    assert recurrent.kinds == ("cross",)
    assert headless.kinds == ()


def test_a_look_that_goes_to_both_sides_at_once_sums_to_one_over_both(record):
    shared = replace(record, cross=record.cross * np.float32(0.25), decoder=record.decoder * np.float32(0.75))
    assert shared.kinds == record.kinds
    with pytest.raises(ValueError, match=r"of decoder layer \d, head \d sums to 0\.75"):
        replace(shared, cross=record.cross)
    with pytest.raises(ValueError, match="non-negative"):
        replace(record, cross=record.cross * -1, decoder=record.decoder * 2)


def test_without_cross_attention_no_words_are_linked(recurrent, headless):
    assert set(all_alignments(recurrent)) == {"mean", "arg-max", "shifted"}
    assert all_alignments(headless) == {}
    look = viewer_document(headless)
    assert look["alignment"] == {"methods": {}, "preferred": preferred_method(headless), "gold": None}
    assert {kind: of["layers"] for kind, of in look["kinds"].items()} == {"encoder": 0, "decoder": 0, "cross": 0}
    assert not look["can_ablate"]


def test_a_picture_has_the_kinds_that_there_are(recurrent, headless, tmp_path):
    save_attention_picture(recurrent, tmp_path / "one.png")
    save_line_picture(recurrent, tmp_path / "lines.png", "cross.1.1")
    with pytest.raises(UserError, match=r"expected a kind \(cross\), a layer from 1 to 1"):
        save_line_picture(recurrent, tmp_path / "lines.png", "encoder.1")
    for draw in (
        lambda: save_attention_picture(headless, tmp_path / "no.png"),
        lambda: save_line_picture(headless, "no.png", "cross.1"),
    ):
        with pytest.raises(UserError, match="runs/quickstart has no attention weights"):
            draw()


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if not CHROMIUM.exists():
        pytest.skip("needs /usr/bin/chromium")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Open a record's page; what its script complains about fails the test."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.set_default_timeout(120_000)
    complaints = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))

    def show(record, address="", other=None):
        (tmp_path / "page.html").write_text(render_page(record, other))
        tab.goto(f"file://{tmp_path}/page.html{address}")
        return tab

    yield show
    tab.close()
    assert complaints == []


def test_one_head_in_one_layer_is_shown_alone(opened, recurrent):
    tab = opened(recurrent)
    assert tab.locator(".dv-grid h3").all_inner_texts()[0].startswith("Cross-attention")
    assert tab.locator(".dv-grid").count() == tab.locator(".dv-thumb").count() == 1
    assert tab.locator(".dv-large h3").inner_text() == "Cross-attention, layer 1, head 1"
    assert tab.locator(".dv-thumb").bounding_box()["width"] < 200
    assert tab.locator(".dv-tab").all_inner_texts() == ["Heads", "Alignment"]
    assert "Shift-click" not in tab.locator(".dv-panel").inner_text()


def test_an_address_that_names_a_kind_that_is_not_there_shows_what_is(opened, recurrent):
    tab = opened(recurrent, "#kind=encoder&heads=1.1&tab=heads")
    assert tab.locator(".dv-large h3").inner_text() == "Cross-attention, layer 1, head 1"


def test_no_attention_at_all_is_said_in_one_sentence(opened, headless):
    tab = opened(headless, "#tab=alignment&kind=cross")
    assert tab.locator(".dv-panel").inner_text().startswith("This architecture has no attention weights")
    assert tab.locator(".dv-tab").all_inner_texts() == ["Heads"]
    assert "to see its probability" in tab.locator(".dv-top").inner_text()
    tab.get_by_text("Lampe").first.hover()
    tab.wait_for_selector(".dv-top:has-text('Lampe:')")


def test_a_model_without_attention_can_stand_beside_one_with_it(opened, record, headless):
    tab = opened(record, "#tab=compare", other=headless)
    assert tab.locator(".dv-side").count() == 2
