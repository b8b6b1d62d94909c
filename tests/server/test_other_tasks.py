"""A server of models that do other things than translate."""

import json
from xml.etree import ElementTree

import pytest

import dragoman

SVG = "http://www.w3.org/2000/svg"
INPUTS = {"pronounce": "abba\nbab", "inflect": "abba\tV;PST\nbab\tV;PST", "parse": "the dog sees a cow . Yes .\na cat"}


@pytest.fixture(scope="module")
def server(start, other_runs):
    return start(*other_runs.values())


def first(answer):
    return answer.json()["translations"][0][0]["text"]


@pytest.mark.parametrize("task", INPUTS)
def test_each_line_is_read_and_answered_as_its_task_does(server, other_runs, task):
    expected = dragoman.load(other_runs[task]).predict(INPUTS[task].split("\n"))
    answer = server.post("/v1/translate", {"text": INPUTS[task], "model": task})
    assert first(answer).split("\n") == [text.strip() for text in expected]


def test_trees_are_drawn_if_that_is_asked_for_and_nothing_else_is(server):
    question = {"text": INPUTS["parse"] + "\n", "model": "parse", "pictures": True, "n_best": 2}
    for tree in server.post("/v1/translate", question).json()["translations"][0]:
        assert [ElementTree.fromstring(picture).tag for picture in tree["pictures"]] == [f"{{{SVG}}}svg"] * 2
    one = server.post("/v1/translate", {"text": "abba", "model": "pronounce", "pictures": True}).json()
    assert one["translations"][0][0]["pictures"] == []
    plain = server.post("/v1/translate", {"text": "dog", "model": "parse"}).json()
    assert "pictures" not in plain["translations"][0][0]


def test_what_is_served_says_what_it_does(server):
    models = {model["name"]: model for model in server.get("/v1/info").json()["models"]}
    assert {name: model["noun"] for name, model in models.items()} == {
        "pronounce": "pronouncer", "inflect": "morphological inflector", "parse": "parser",
        "generate": "language model",
    }  # fmt: skip
    assert not any(model["languages"] for model in models.values())
    assert "tab" in models["inflect"]["input_hint"]


def test_a_language_model_goes_on_with_a_text(server, other_runs):
    how = {"length": 12, "temperature": 0.5, "top_k": 3, "seed": 7}
    answer = server.post("/v1/translate", {"text": "The dog", "model": "generate", "n_best": 2, **how})
    texts = [one["text"] for one in answer.json()["translations"][0]]
    assert texts == dragoman.load(other_runs["generate"]).generate("The dog", samples=2, **how)


def test_what_a_language_model_writes_can_be_followed(server):
    question = {"text": "The", "model": "generate", "length": 8, "stream": True}
    body = server.post("/v1/translate", question).body.decode()
    events = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]
    texts = [event["text"] for event in events[:-1]]
    whole = events[-1]["translations"][0][0]["text"]
    assert all(later.startswith(earlier) for earlier, later in zip(texts, [*texts[1:], whole], strict=True))


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({"text": "abba", "model": "pronounce", "temperature": 1.0}, "temperature"),
        ({"text": "abba", "model": "pronounce", "details": True}, "details"),
        ({"text": "the dog", "model": "parse", "prefix": "(TOP"}, "prefix"),
        ({"text": "The", "model": "generate", "beam": 4}, "beam"),
        ({"text": "The", "model": "generate", "length": 0}, "length"),
        ({"text": "The", "model": "generate", "top_p": 0.0}, "top_p"),
    ],
)
def test_what_a_model_cannot_do_is_refused(server, question, field):
    answer = server.post("/v1/translate", question)
    assert (answer.status, answer.json()["field"]) == (422, field)


def test_what_the_task_cannot_read_is_refused_in_its_own_words(server):
    answer = server.post("/v1/translate", {"text": "abba", "model": "inflect"})
    assert answer.status == 422
    assert "with a tab between" in answer.json()["error"]


def test_libretranslates_clients_find_no_languages(server):
    assert server.get("/languages").json() == []
    assert server.get("/frontend/settings").json()["language"]["source"] == {"code": "", "name": ""}
    for pair in ({"source": "en", "target": "de"}, {"source": "", "target": ""}, {"source": "auto", "target": "de"}):
        assert server.post("/translate", {"q": "a", **pair}).status == 400
    assert server.post("/detect", {"q": "a"}).json() == []


@pytest.mark.parametrize("task", [*INPUTS, "generate"])
def test_a_model_of_any_task_can_be_looked_into(server, task):
    text = INPUTS.get(task, "The dog").split("\n")[0]
    assert server.post("/v1/attention", {"text": text, "model": task}).status == 200


def test_languages_are_for_translators(command, other_runs, start):
    with pytest.raises(AssertionError, match="is a parser, which has no languages"):
        start(other_runs["parse"], "--languages", "parse=en:de")
