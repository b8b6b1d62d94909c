"""The JSON document of a look, as docs/viewer.md describes it."""

import base64
import json
from dataclasses import replace

import numpy as np

from dragoman.viewer.document import viewer_document
from dragoman.viewer.record import BeamNode, BeamTree, DecodingStep, TokenChoice


def test_every_key_of_the_contract_is_there(record):
    assert set(viewer_document(record)) == {
        "title", "model", "skin", "signal", "prefix", "forced_length", "source", "target", "kinds", "steps",
        "alignment", "beam", "report", "history", "ablated_heads", "can_ablate", "compare",
    }  # fmt: skip


def test_the_document_is_json_as_it_stands(record):
    json.dumps(viewer_document(record), allow_nan=False)


def test_a_beam_has_numbered_nodes_and_where_their_steps_looked(record):
    nodes = tuple(
        BeamNode(parent, 7, piece, piece, 0, -0.1, -0.1, -0.1, state)
        for parent, piece, state in ((None, " Die", "chosen"), (None, " Das", "pruned"))
    )
    shown = viewer_document(replace(record, beam=BeamTree(nodes, 4, 0.6, record.cross[0, 0, :2], 0)))["beam"]
    assert [node["id"] for node in shown["nodes"]] == [0, 1]
    looked = np.frombuffer(base64.b64decode(shown["attention"]), np.uint8).reshape(2, -1)
    assert np.abs(looked / 255 - record.cross[0, 0, :2]).max() <= 1 / 255


def test_steps_name_the_likeliest(record):
    step = DecodingStep(-0.5, (TokenChoice(" Die", -0.5), TokenChoice(" Das", -1.25)))
    assert viewer_document(replace(record, steps=(step,)))["steps"] == [
        {"log_probability": -0.5, "top_choices": [[" Die", -0.5], [" Das", -1.25]]}
    ]


def test_with_gold_links_each_method_has_its_error_rate(record):
    methods = viewer_document(replace(record, gold_alignment="0-0 1-1"))["alignment"]["methods"]
    assert all(0 <= method["error_rate"] <= 1 for method in methods.values())
    assert all(method["error_rate"] is None for method in viewer_document(record)["alignment"]["methods"].values())


def test_the_frames_of_a_recording_are_bytes_from_quiet_to_loud(record):
    frames = np.linspace(-1, 1, 40, dtype=np.float32).reshape(20, 2)
    signal = viewer_document(replace(record, frames=frames, seconds=0.2))["signal"]
    levels = np.frombuffer(base64.b64decode(signal["frames"]), np.uint8).reshape(20, signal["bands"])
    assert (levels[0, 0], levels[-1, -1], signal["seconds"]) == (0, 255, 0.2)
    assert (np.diff(levels.reshape(-1).astype(int)) >= 0).all()
    assert viewer_document(record)["signal"] is None
