"""A record as the last line of a notebook's cell."""

import json
from dataclasses import replace

import pytest

from dragoman.errors import UserError
from dragoman.viewer import notebook
from dragoman.viewer.document import viewer_document


def test_without_anywidget_the_page_stands_in_a_frame_that_can_do_little(record, monkeypatch):
    monkeypatch.setattr(notebook, "find_spec", lambda name: None)
    shown = record._repr_mimebundle_()
    assert shown["text/plain"].endswith("→ Die Lampe ist alt, aber sie funktioniert.")
    assert shown["text/html"].startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert 'sandbox="allow-scripts allow-downloads"' in shown["text/html"]
    assert "<script" not in shown["text/html"]


@pytest.fixture
def widget():
    pytest.importorskip("anywidget", reason="needs anywidget")
    from dragoman.viewer.widget import AttentionWidget

    return AttentionWidget


def test_with_anywidget_it_is_a_widget(record, widget):
    assert "application/vnd.jupyter.widget-view+json" in record._repr_mimebundle_()
    assert json.loads(json.dumps(widget(record).record)) == json.loads(json.dumps(viewer_document(record)))


def test_only_a_record_that_can_be_made_again_has_a_live_widget(record, widget):
    assert not widget(record).live
    assert widget(replace(record, rerun=lambda **_: record)).live


def answers_of(made, change):
    """Return what a widget sends when its page asks for a change."""
    sent = []
    made.send = sent.append
    made._on_message(made, {"number": 7, "change": change}, [])
    return sent


def test_a_widget_looks_again_with_what_was_changed_and_nothing_else(record, widget):
    asked = []

    def again(**change):
        asked.append(change)
        return record

    made = widget(replace(record, rerun=again))
    (sent,) = answers_of(made, {"ablate_heads": [["cross", 0, 1]], "trace": True, "beam": 99})
    assert asked == [{"ablate_heads": [["cross", 0, 1]], "trace": True}]
    assert sent == {"number": 7, "record": viewer_document(record)}


def test_a_widget_answers_what_a_person_can_mend_in_words(record, widget):
    def again(**_):
        raise UserError("There is no head.")

    assert answers_of(widget(replace(record, rerun=again)), {}) == [{"number": 7, "error": "There is no head."}]
