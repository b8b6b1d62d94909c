from dataclasses import replace

import numpy as np
import pytest

from dragoman.viewer.alignment import alignment_error_rate, all_alignments, preferred_method, source_and_target_words
from dragoman.viewer.record import AttentionRecord

# "The lamp works." and "Die Lampe funktioniert.": Lampe and funktioniert in two pieces each.
SOURCE = (" The", " lamp", " works", ".", "⟨end⟩")
TARGET = (" Die", " Lam", "pe", " funktion", "iert", ".", "⟨end⟩")
PARTNERS = (0, 1, 1, 2, 2, 3)
GOLD = "0-0 1-1 2-2 3-3"


def aligned_record(*, late: bool) -> AttentionRecord:
    """Return a record whose second layer looks at a word's partner when it writes it, or one step later."""
    inputs, outputs = len(SOURCE), len(TARGET)
    rows = [inputs - 1, *PARTNERS] if late else [*PARTNERS, inputs - 1]
    sharp = 0.9 * np.eye(inputs)[rows] + 0.1 / inputs
    flat = np.full((outputs, inputs), 1 / inputs)
    past = np.tri(outputs) / np.tri(outputs).sum(1, keepdims=True)
    return AttentionRecord(
        source_pieces=SOURCE,
        target_pieces=TARGET,
        source_text="The lamp works.",
        target_text="Die Lampe funktioniert.",
        source_spans=((0, 3), (3, 8), (8, 14), (14, 15), (15, 15)),
        target_spans=((0, 3), (3, 7), (7, 9), (9, 18), (18, 22), (22, 23), (23, 23)),
        encoder=np.full((2, 1, inputs, inputs), 1 / inputs, np.float32),
        decoder=np.stack([past, past])[:, None].astype(np.float32),
        cross=np.stack([flat, sharp])[:, None].astype(np.float32),
    )


def test_words_are_linked_as_their_pieces_look():
    found = all_alignments(aligned_record(late=False))
    assert found["arg-max"].pharaoh == found["mean"].pharaoh == GOLD
    assert found["arg-max"].layer == 1
    assert alignment_error_rate(found["shifted"].pharaoh, GOLD) > 0.5


def test_a_model_that_looks_late_is_read_late():
    found = all_alignments(aligned_record(late=True))
    assert found["shifted"].pharaoh == GOLD
    assert "layer 2" in found["shifted"].description
    assert alignment_error_rate(found["arg-max"].pharaoh, GOLD) > 0.3


def test_the_end_of_the_source_is_never_linked():
    record = aligned_record(late=False)
    sink = np.zeros_like(record.cross)
    sink[..., -1] = 1
    for method in all_alignments(replace(record, cross=0.2 * record.cross + 0.8 * sink)).values():
        assert all(link.source < 4 for link in method.links)


def test_links_carry_the_weight_they_are_made_of():
    found = all_alignments(aligned_record(late=False))["arg-max"]
    assert all(link.weight == pytest.approx(0.92, abs=0.01) for link in found.links)


def report(written: float, late: float) -> dict:
    heads = [{"kind": "cross", "layer": 0, "head": 0, "alignment": written, "alignment_shifted": 0.0}]
    heads += [{"kind": "cross", "layer": 1, "head": 0, "alignment": 0.0, "alignment_shifted": late}]
    return {"heads": [*heads, {"kind": "encoder", "layer": 0, "head": 0, "alignment": None}]}


def test_the_head_report_decides_when_to_read():
    record = aligned_record(late=True)
    assert preferred_method(record) == "mean"
    assert preferred_method(replace(record, report=report(0.7, 0.3))) == "mean"
    assert preferred_method(replace(record, report=report(0.3, 0.7))) == "shifted"
    assert all_alignments(replace(record, report=report(0.3, 0.7)))["shifted"].layer == 1
    assert all_alignments(replace(record, report=report(0.3, 0.7)))["arg-max"].layer == 0


def test_punctuation_marks_are_words_of_their_own_in_alignments():
    source, target = source_and_target_words(aligned_record(late=False))
    assert [word.label for word in source] == ["The", "lamp", "works", "."]
    assert [word.label for word in target] == ["Die", "Lampe", "funktioniert", "."]


def test_the_error_rate_is_that_of_och_and_ney():
    assert alignment_error_rate("0-0 1-1", "0-0 1-1") == 0
    assert alignment_error_rate("0-0 1-1", "0-0 1-2") == pytest.approx(0.5)
    assert alignment_error_rate("", "") == 1


def test_an_empty_target_has_no_links():
    record = aligned_record(late=False)
    nothing = replace(
        record, target_pieces=("⟨end⟩",), target_text="", target_spans=((0, 0),),
        decoder=np.ones((2, 1, 1, 1), np.float32), cross=record.cross[:, :, -1:],
    )  # fmt: skip
    assert all(method.links == () for method in all_alignments(nothing).values())
