"""The responses of the routes."""

import json

import pytest
from libretranslatepy import LibreTranslateAPI

import dragoman


@pytest.fixture(scope="module")
def model(run):
    return dragoman.load(run)


def test_libretranslates_own_client_works_unchanged(server, model):
    client = LibreTranslateAPI(f"http://127.0.0.1:{server.port}")
    assert client.translate("a b c", "en", "de") == model.translate("a b c")
    assert client.languages()[0] == {"code": "en", "name": "English", "targets": ["de"]}
    assert client.detect("a b c") == [{"confidence": 100.0, "language": "en"}]


def test_responses_have_libretranslates_format(server, model):
    ask = lambda **more: server.post("/translate", {"q": "a b c", "source": "en", "target": "de", **more})  # noqa: E731
    assert ask().json() == {"translatedText": model.translate("a b c")}
    several = ask(q=["a b c", "", "d"], alternatives=2).json()
    assert several["translatedText"] == [*model.translate(["a b c", "", "d"], beam=4)]
    assert [len(row) for row in several["alternatives"]] == [2, 0, 2]
    detected = ask(source="auto").json()["detectedLanguage"]
    assert detected == {"confidence": 100.0, "language": "en"}
    assert ask(format="html", q="<p>a b c</p>").json()["translatedText"] == f"<p>{model.translate('a b c')}</p>"
    wrong = ask(target="xx")
    assert (wrong.status, wrong.json()["error"]) == (400, "This language is not supported.")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", b"q=a+b%0Ac&source=en&target=de"),
        (
            "multipart/form-data; boundary=xx",
            b"".join(
                b'--xx\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % pair
                for pair in ((b"q", b"a b\nc"), (b"source", b"en"), (b"target", b"de"))
            )
            + b"--xx--\r\n",
        ),
        ("application/json", json.dumps({"q": "a b\nc", "source": "en", "target": "de"}).encode()),
    ],
)
def test_forms_are_accepted_as_well_as_json(server, model, kind, body):
    answer = server.post("/translate", body, content_type=kind)
    assert answer.json()["translatedText"] == "\n".join(model.translate(["a b", "c"]))


def test_a_text_keeps_its_lines_and_each_sentence_its_translation(server, model):
    text = "  a b! C d!\n\n\ne f\n"
    answer = server.post("/v1/translate", {"text": text}).json()["translations"][0][0]
    first, second, third = model.translate(["a b!", "C d!", "e f"])
    assert answer["text"] == f"  {first} {second}\n\n\n{third}\n"
    whole = server.post("/v1/translate", {"text": "a b! C d!", "split": False}).json()["translations"][0][0]
    assert whole["text"] == model.translate("a b! C d!", split=False)


def test_an_empty_text_is_translated_as_an_empty_one(server):
    for text in ("", " ", "\n\n"):
        (row,) = server.post("/v1/translate", {"text": text, "n_best": 2}).json()["translations"]
        assert [each["text"] for each in row] == [text]


def test_details_have_the_offsets_of_tokens_and_words(server):
    asked = {"text": "a b c.\nd e", "details": True}
    (best,) = server.post("/v1/translate", asked).json()["translations"][0]
    for piece in best["tokens"]:
        assert best["text"][piece["start"] : piece["end"]].strip() == piece["piece"].strip()
    assert [asked["text"][start:end] for start, end in best["source_words"]][-2:] == ["d", "e"]
    words = [best["text"][start:end] for start, end in best["target_words"]]
    assert all(words)
    assert all(s < len(best["source_words"]) and t < len(words) for s, t in best["alignment"])
    assert {target for _, target in best["alignment"]} == set(range(len(words)))


def test_a_translation_begins_with_the_prefix(server, model):
    asked = {"text": "a b c d", "prefix": "H G", "n_best": 2}
    found = server.post("/v1/translate", asked).json()["translations"][0]
    assert all(each["text"].startswith("H G") for each in found)
    assert [each["text"] for each in found] == [
        one.text for one in model.search(["a b c d"], n_best=2, prefix="H G")[0]
    ]


def test_a_stream_grows_and_ends_with_the_complete_response(server):
    asked = {"text": "a b c d e.\nf g h"}
    whole = server.post("/v1/translate", asked).json()
    answer = server.post("/v1/translate", {**asked, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, last = answer.body.decode().strip().split("\n\n")
    assert last.startswith("event: done\ndata: ")
    ended = json.loads(last.partition("data: ")[2])
    assert ended["translations"][0][0]["text"] == whole["translations"][0][0]["text"]
    texts = [json.loads(event.removeprefix("data: "))["text"] for event in events]
    assert len(texts) > 3
    assert any("\n" not in text for text in texts)


@pytest.mark.parametrize("text", ["a b", ""])
def test_the_events_of_a_stream_are_as_described(server, text):
    """They were once described as strings."""
    answers = server.get("/openapi.json").json()["paths"]["/v1/translate"]["post"]["responses"]
    described = answers["200"]["content"]["text/event-stream"]["schema"]["properties"]
    written = server.post("/v1/translate", {"text": text, "stream": True}).body.decode().strip().split("\n\n")
    events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in written]
    assert all("data" in event and event.keys() <= described.keys() for event in events)
    assert [event.get("event") for event in events] == [None] * (len(events) - 1) + ["done"]
    assert described["event"]["enum"] == ["message", "done", "error"]  # of one without a name it is the first


def test_an_error_before_the_first_event_is_an_ordinary_response(server):
    assert server.post("/v1/translate", {"text": "a", "model": "nobody", "stream": True}).status == 404


def test_the_answer_of_the_attention_route_is_the_viewers_document(server, model):
    asked = {"text": "a b c", "ablate_heads": [["cross", 0, 1]], "trace": True}
    answer = server.post("/v1/attention", asked)
    assert "deprecation" not in answer.headers
    shown = answer.json()
    assert shown["model"] == "toy"
    assert shown["source"]["text"] == "a b c"
    assert shown["kinds"]["cross"]["heads"] == 2
    assert shown["ablated_heads"] == [["cross", 0, 1]]
    assert shown["beam"]["nodes"]
    assert shown["target"]["text"] == model.inspect("a b c", ablate_heads=[("cross", 0, 1)]).target_text


def test_the_old_name_of_a_request_field_is_accepted_with_a_deprecation_header(server):
    fields = {"text": "a b c", "trace": False}
    answer = server.post("/v1/attention", {**fields, "without": [["cross", 0, 1]]})
    assert answer.headers["deprecation"].startswith("@")
    assert answer.body == server.post("/v1/attention", {**fields, "ablate_heads": [["cross", 0, 1]]}).body


FIELDS_OF_VERSION_0_1 = {  # as that version sent them
    "info": "limits models version",
    "model": "architecture asks attention beam goes_on heads languages layers longest name noun parameters plain "
    "precision source source_name target target_name task vocabulary weights whole width",
    "limits": "answer_bytes beam body_bytes body_seconds connections deadline_seconds header_seconds idle_seconds "
    "look_pieces per_client text_characters texts waiting waiting_characters write_seconds",
    "document": "alignment beam compare given history kinds model prefix report skin source steps switchable target "
    "title without",
    "sentence": "pieces spaced text words",
    "word": "end first label span special",
    "kind": "columns heads layers rows weights",
    "step": "best log_probability",
    "alignment": "chosen gold methods",
    "method": "about error_rate layer links pharaoh",
    "beam": "attention layer length_penalty nodes width",
    "node": "id log_probability parent piece score state step sum text token",
}


def test_responses_have_every_field_of_version_0_1(server):
    info = server.get("/v1/info").json()
    document = server.post("/v1/attention", {"text": "a b c", "trace": True}).json()
    sent = {
        "info": info,
        "model": info["models"][0],
        "limits": info["limits"],
        "document": document,
        "sentence": document["source"],
        "word": document["target"]["words"][0],
        "kind": document["kinds"]["cross"],
        "step": document["steps"][0],
        "alignment": document["alignment"],
        "method": document["alignment"]["methods"]["mean"],
        "beam": document["beam"],
        "node": document["beam"]["nodes"][0],
    }
    missing = {part: set(FIELDS_OF_VERSION_0_1[part].split()) - sent[part].keys() for part in sent}
    assert not any(missing.values()), missing
    assert document["steps"][0]["best"] == document["steps"][0]["top_choices"]
    assert info["limits"]["waiting"] == info["limits"]["queued_requests"]


@pytest.mark.parametrize(
    ("path", "name", "hint"),
    [
        ("/v1/translate", "txt", ' Did you mean "text"?'),
        ("/v1/translate", "nbest", ' Did you mean "n_best"?'),
        ("/v1/attention", "ablate_head", ' Did you mean "ablate_heads"?'),
        ("/v1/translate", "ablate_head", ""),
        ("/v1/translate", "qqqq", ""),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest_field_of_the_route(server, path, name, hint):
    answer = server.post(path, {"text": "a", name: 1})
    said = answer.json()
    assert (answer.status, said["code"], said["field"]) == (422, "invalid", name)
    assert said["error"] == f'Unknown field "{name}".{hint}'


def test_the_attention_of_a_saved_checkpoint_is_that_of_its_weights(server, run):
    saved = server.get("/v1/checkpoints?model=toy").json()["checkpoints"]
    assert [each["step"] for each in saved] == [int(place.name) for place in sorted((run / "checkpoints").iterdir())]
    step = saved[0]["step"]
    shown = server.post("/v1/attention", {"text": "a b c", "checkpoint": step}).json()
    assert shown["target"]["text"] == dragoman.load(run, checkpoint=step).translate("a b c")


def test_a_missing_checkpoint_is_reported_without_the_path_of_the_run(server):
    """The error once named the run's directory."""
    answer = server.post("/v1/attention", {"text": "a b c", "checkpoint": 671})
    assert answer.status == 422
    assert answer.json()["error"] == "No complete checkpoint at step 671; /v1/checkpoints lists them."


def test_the_attention_of_too_long_a_sentence_is_refused(small_server):
    answer = small_server.post("/v1/attention", {"text": "a b c d e f g " * 5})
    assert answer.status == 422
    assert "at most 20" in answer.json()["error"]


def test_a_missing_head_report_is_a_404(server):
    answer = server.get("/v1/report")
    assert (answer.status, answer.json()["code"]) == (404, "no_report")


def test_info_lists_the_models_and_the_limits(server):
    info = server.get("/v1/info").json()
    (model,) = info["models"]
    assert (model["name"], model["source_name"], model["target_name"]) == ("toy", "English", "German")
    assert (model["layers"], model["heads"]) == (1, 2)
    assert info["limits"]["body_bytes"] == 262144
    assert info["version"] == dragoman.__version__


def test_prometheus_can_read_the_metrics(server):
    server.translate("a b c")
    lines = server.get("/metrics").body.decode().splitlines()
    assert all(line.startswith(("# HELP dragoman_", "# TYPE dragoman_", "dragoman_")) for line in lines)
    assert server.metric('requests_total{route="/v1/translate",status="200"}') >= 1
    assert server.metric("sentences_total") >= 1
    assert server.metric("worker_memory_bytes") > 1e7


def test_models_are_chosen_by_language_and_languages_are_detected(start, run, tmp_path):
    import shutil

    other = shutil.copytree(run, tmp_path / "back")
    server = start(run, other, "--languages", "toy=en:de", "--languages", "back=de:en")
    assert [model["name"] for model in server.get("/v1/info").json()["models"]] == ["toy", "back"]
    assert server.post("/v1/translate", {"text": "a", "source": "de"}).json()["model"] == "back"
    assert server.post("/v1/translate", {"text": "a", "source": "de", "target": "de"}).status == 404
    ranked = server.post("/detect", {"q": "a b c"}).json()
    assert {each["language"] for each in ranked} == {"en", "de"}
    assert sum(each["confidence"] for each in ranked) == pytest.approx(100, abs=0.2)
