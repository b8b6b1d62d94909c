import base64
import json
import re

import numpy as np
import pytest

from dragoman.viewer.page import bundle_scripts, render_page

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!--",
    "&amp;",
    "RECORD",
    "\ud800",
    "⟨end⟩",
)


def contents(html: str) -> dict:
    """Return what the page's script is given to read."""
    (block,) = re.findall(r'<script type="application/json" id="dv-record">(.*?)</script>', html, re.DOTALL)
    return json.loads(block)


def test_the_page_holds_the_pieces_and_the_title(record):
    content = contents(render_page(record))
    assert content["title"] == "runs/quickstart"
    assert content["kinds"]["cross"]["rows"] == list(record.target_pieces)
    assert content["kinds"]["cross"]["columns"] == list(record.source_pieces)
    assert content["kinds"]["decoder"]["columns"] == ["⟨start⟩", *record.target_pieces[:-1]]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_the_numbers_on_the_page_are_the_weights(record, kind):
    content, weights = contents(render_page(record))["kinds"][kind], record.weights(kind)
    numbers = np.frombuffer(base64.b64decode(content["weights"]), np.uint8).reshape(weights.shape) / 255
    assert (content["layers"], content["heads"]) == weights.shape[:2]
    assert np.abs(numbers - weights).max() <= 1 / 255


def test_what_the_decoder_cannot_see_is_exactly_nothing(record):
    content = contents(render_page(record))["kinds"]["decoder"]
    numbers = np.frombuffer(base64.b64decode(content["weights"]), np.uint8).reshape(record.decoder.shape)
    assert not np.triu(numbers, 1).any()


def test_pieces_that_look_like_html_stay_text(record_of):
    html = render_page(record_of(HOSTILE, HOSTILE, title="</title><b>"))
    assert contents(html)["kinds"]["encoder"]["rows"] == list(HOSTILE)
    assert contents(html)["title"] == "</title><b>"
    for markup in ("<img", "alert(2)</script", "</title><b>"):
        assert markup not in html
    assert html.count("</script>") == 2 and html.count("<!--") == 0


def test_the_page_can_be_written_as_utf8_whatever_the_pieces_hold(record_of):
    render_page(record_of(HOSTILE, HOSTILE)).encode("utf-8")


def test_the_page_asks_nothing_of_the_network(record):
    """The one address in it is the name of SVG; fetching is for the served viewer, and the policy forbids it here."""
    html = render_page(record).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|\bsrc=|\bhref=|url\(|@import|XMLHttpRequest", html)
    assert "default-src 'none'" in html


def test_the_policy_allows_no_script_but_the_pages_own(record):
    html = render_page(record)
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)[0]  # the script can write such a page too
    assert "unsafe" not in policy
    assert len(re.findall(r"'sha256-[^']{44}'", policy)) == 2


def test_the_script_never_writes_html(record):
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", render_page(record))


def test_no_two_modules_use_one_name_for_two_things():
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", bundle_scripts(), re.MULTILINE)
    assert len(names) > 50
    assert sorted(names) == sorted(set(names))


def test_the_bundle_has_no_import_or_export_left():
    assert not re.search(r"^(import|export)\b", bundle_scripts(), re.MULTILINE)
    assert "</script" not in bundle_scripts() and "<!--" not in bundle_scripts()


def test_another_look_can_stand_beside_the_first(record, record_of):
    content = contents(render_page(record, record_of(("a", "⟨end⟩"), ("b", "⟨end⟩"), title="other")))
    assert content["compare"]["title"] == "other"
    assert content["compare"]["compare"] is None


def test_words_know_their_pieces(record):
    target = contents(render_page(record))["target"]["words"]
    lamp = next(word for word in target if word["label"] == "Lampe")
    assert record.target_pieces[lamp["first"] : lamp["end"]] == (" Lam", "pe")


def test_the_same_record_gives_the_same_page(record):
    assert render_page(record) == render_page(record)
