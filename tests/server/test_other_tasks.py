"""A server with models of other tasks than translation."""

import json
from dataclasses import asdict
from xml.etree import ElementTree

import pytest
from waiting import until

import dragoman
from dragoman.decoding.sampling_options import TEXT_SAMPLING

SVG = "http://www.w3.org/2000/svg"
INPUTS = {"pronounce": "abba\nbab", "inflect": "abba\tV;PST\nbab\tV;PST", "parse": "the dog sees a cow . Yes .\na cat"}


@pytest.fixture(scope="module")
def server(start, other_runs):
    return start(*other_runs.values())


def first(answer):
    return answer.json()["translations"][0][0]["text"]


@pytest.mark.parametrize("task", INPUTS)
def test_each_line_is_processed_as_by_the_task_itself(server, other_runs, task):
    expected = dragoman.load(other_runs[task]).predict(INPUTS[task].split("\n"))
    answer = server.post("/v1/translate", {"text": INPUTS[task], "model": task})
    assert first(answer).split("\n") == [text.strip() for text in expected]


def test_trees_are_drawn_on_request_and_other_outputs_are_not(server):
    question = {"text": INPUTS["parse"] + "\n", "model": "parse", "pictures": True, "n_best": 2}
    for tree in server.post("/v1/translate", question).json()["translations"][0]:
        assert [ElementTree.fromstring(picture).tag for picture in tree["pictures"]] == [f"{{{SVG}}}svg"] * 2
    one = server.post("/v1/translate", {"text": "abba", "model": "pronounce", "pictures": True}).json()
    assert one["translations"][0][0]["pictures"] == []
    plain = server.post("/v1/translate", {"text": "dog", "model": "parse"}).json()
    assert "pictures" not in plain["translations"][0][0]


def test_info_describes_the_tasks_of_the_models(server):
    models = {model["name"]: model for model in server.get("/v1/info").json()["models"]}
    assert {name: model["noun"] for name, model in models.items()} == {
        "pronounce": "pronouncer", "inflect": "morphological inflector", "parse": "parser",
        "generate": "language model",
    }  # fmt: skip
    assert not any(model["languages"] for model in models.values())
    assert "tab" in models["inflect"]["input_hint"]
    assert models["generate"]["sampling"] == asdict(TEXT_SAMPLING) and models["parse"]["sampling"] is None


def test_a_language_model_continues_a_text(server, other_runs):
    options = {"length": 12, "temperature": 0.5, "top_k": 3, "seed": 7}
    answer = server.post("/v1/translate", {"text": "The dog", "model": "generate", "n_best": 2, **options})
    texts = [one["text"] for one in answer.json()["translations"][0]]
    assert texts == dragoman.load(other_runs["generate"]).generate("The dog", samples=2, **options)


def test_the_output_of_a_language_model_can_be_streamed(server):
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
def test_options_that_a_model_does_not_support_are_refused(server, question, field):
    answer = server.post("/v1/translate", question)
    assert (answer.status, answer.json()["field"]) == (422, field)


def test_invalid_input_is_refused_with_the_tasks_own_error(server):
    answer = server.post("/v1/translate", {"text": "abba", "model": "inflect"})
    assert answer.status == 422
    assert "separated by tabs" in answer.json()["error"]


def test_a_model_of_another_task_is_healthy(server):
    assert server.get("/v1/info").json()["models"][0]["task"] != "translate"
    until(lambda: server.get("/healthz").status == 200)


def test_libretranslates_routes_have_no_languages_without_a_translator(server):
    assert server.get("/languages").json() == []
    assert server.get("/frontend/settings").json()["language"]["source"] == {"code": "", "name": ""}
    for pair in ({"source": "en", "target": "de"}, {"source": "", "target": ""}, {"source": "auto", "target": "de"}):
        assert server.post("/translate", {"q": "a", **pair}).status == 400
    assert server.post("/detect", {"q": "a"}).json() == []


@pytest.mark.parametrize("task", [*INPUTS, "generate"])
def test_the_attention_of_a_model_of_any_task_can_be_inspected(server, other_runs, task):
    text = INPUTS.get(task, "The dog").split("\n")[0]
    document = server.post("/v1/attention", {"text": text, "model": task}).json()
    assert document["target"]["text"] == dragoman.load(other_runs[task]).inspect(text).target_text


def test_languages_can_be_set_for_translators_only(command, other_runs, start):
    with pytest.raises(AssertionError, match="is a parser, which has no languages"):
        start(other_runs["parse"], "--languages", "parse=en:de")
