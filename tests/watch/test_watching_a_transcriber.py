"""The page of a transcriber: recordings instead of sentences, and only those of its own data."""

import urllib.parse
from pathlib import Path

import pytest
from sites import Answer, Site

from dragoman.corpora.morse import draw_recording


def inspect(site: Site, **query: str) -> Answer:
    return site.get("inspect?" + urllib.parse.urlencode(query))


def test_samples_are_recordings_with_their_texts(hearing):
    summary = hearing.get("summary").json()
    assert summary["reads_recordings"]
    assert summary["measure"] == "WER"
    assert summary["facts"]["Recordings"].endswith("train.tsv")
    assert [Path(sample["source"]).name for sample in summary["samples"]] == ["valid-00000.wav", "valid-00001.wav"]
    assert summary["samples"][0]["reference"] == draw_recording("valid", 0)[0]


def test_a_recording_of_the_data_is_looked_at_by_path_or_name(hearing):
    path = hearing.get("summary").json()["samples"][0]["source"]
    newest = inspect(hearing, text=path).json()
    assert newest["checkpoint"] == 4
    assert newest["source"]["pieces"][1]["label"] == "0.04"
    earlier = inspect(hearing, text="valid-00000.wav", checkpoint="2").json()
    assert earlier["checkpoint"] == 2
    assert earlier["kinds"]["cross"]["weights"] != newest["kinds"]["cross"]["weights"]
    assert inspect(hearing, text="train-00000.wav").status == 200
    ablated = inspect(hearing, text=path, ablate_heads='[["cross", 0, 1]]', prefix="A").json()
    assert ablated["ablated_heads"] == [["cross", 0, 1]]
    assert ablated["target"]["text"].startswith("A")


@pytest.mark.parametrize("name", ["elsewhere.wav", "../valid.tsv", "/etc/passwd"])
def test_other_files_cannot_be_asked_for(hearing, name):
    answer = inspect(hearing, text=name)
    assert answer.status == 422
    assert f"{name} is not a recording of " in answer.json()["error"]
    assert inspect(hearing, text=str(hearing.run / "recipe.toml")).status == 422
