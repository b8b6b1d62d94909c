"""OpenAI's own client against a server with a transcriber."""

import io
import json

import numpy as np
import pytest
from forms import BOUNDARY, encode_wav, part, send_form, send_recording

from dragoman.corpora.morse import draw_recording
from dragoman.tasks.subtitles import format_srt, format_vtt
from dragoman.tasks.transcribe import Transcriber

openai = pytest.importorskip("openai")
PATH, TOKEN = "/v1/audio/transcriptions", "the-token-of-this-test"


@pytest.fixture(scope="module")
def recording() -> bytes:
    return encode_wav(np.tile(draw_recording("test", 0)[2], 2))


@pytest.fixture(scope="module")
def segments(transcriber, recording):
    """What the model itself hears."""
    return list(Transcriber.load(transcriber).transcribe_segments(io.BytesIO(recording)))


@pytest.fixture(scope="module")
def server(start, run, transcriber):
    limits = ["--limit", "recording_seconds=60", "--limit", "audio_bytes=1000000"]
    return start(run, transcriber, "--languages", "toy=en:de", *limits, token=TOKEN)


def client_of(server, token=TOKEN, path="v1"):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/{path}", api_key=token, max_retries=0)


@pytest.fixture(scope="module")
def transcriptions(server):
    with client_of(server) as client:
        yield client.audio.transcriptions


def test_the_client_gets_the_text_for_the_name_of_any_model(transcriptions, recording, segments):
    for model in ("whisper-1", "transcriber"):
        answer = transcriptions.create(model=model, file=("speech.wav", recording))
        assert answer.text == " ".join(segment.text for segment in segments if segment.text)
        assert answer.usage.seconds == segments[-1].end_seconds


def test_the_client_gets_text_and_subtitles(transcriptions, recording, segments):
    def ask(response_format):
        return transcriptions.create(model="whisper-1", file=recording, response_format=response_format)

    assert ask("text") == " ".join(segment.text for segment in segments if segment.text) + "\n"
    assert ask("srt") == "".join(format_srt(segments))
    assert ask("vtt") == "".join(format_vtt(segments))


def test_the_client_gets_the_times_of_segments_and_words(transcriptions, recording, segments):
    answer = transcriptions.create(
        model="whisper-1", file=recording, response_format="verbose_json", language="en", prompt="Morse",
        temperature=0.2, timestamp_granularities=["word", "segment"],
    )  # fmt: skip
    assert [(each.id, each.text, each.start, each.end) for each in answer.segments] == [
        (number, each.text, each.start_seconds, each.end_seconds) for number, each in enumerate(segments)
    ]
    assert [each.avg_logprob for each in answer.segments] == pytest.approx([each.score for each in segments], abs=1e-4)
    assert [(each.word, each.start, each.end) for each in answer.words] == [
        (word.text, word.start_seconds, word.end_seconds) for segment in segments for word in segment.words
    ]
    assert (answer.language, answer.duration) == ("en", segments[-1].end_seconds)
    plain = transcriptions.create(model="whisper-1", file=recording, response_format="verbose_json")
    assert plain.words is None and len(plain.segments) == len(segments)


def test_the_client_shows_why_a_request_is_refused(transcriptions, recording):
    with pytest.raises(openai.UnprocessableEntityError, match="a text file; expected a sound file") as refused:
        transcriptions.create(model="whisper-1", file=("a.wav", b"text"))
    assert (refused.value.code, refused.value.param, refused.value.type) == (
        "bad_recording", "file", "invalid_request_error",
    )  # fmt: skip
    with pytest.raises(openai.UnprocessableEntityError, match="this server accepts at most 60"):
        transcriptions.create(model="whisper-1", file=encode_wav(np.zeros(61 * 8000, np.float32)))
    with pytest.raises(openai.UnprocessableEntityError, match="This model is a translator") as refused:
        transcriptions.create(model="toy", file=recording)
    assert refused.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="stream is not supported"):
        transcriptions.create(model="whisper-1", file=recording, stream=True)
    with pytest.raises(openai.BadRequestError, match="need response_format=verbose_json"):
        transcriptions.create(model="whisper-1", file=recording, timestamp_granularities=["word"])
    with pytest.raises(openai.UnprocessableEntityError, match="Input should be 'json'"):
        transcriptions.create(model="whisper-1", file=recording, response_format="diarized_json")


def test_the_client_shows_what_is_refused_before_the_body_is_read(server, recording):
    with client_of(server, "another-token") as client, pytest.raises(openai.AuthenticationError) as refused:
        client.audio.transcriptions.create(model="whisper-1", file=recording)
    assert refused.value.code == "unauthorized" and "A token is required" in refused.value.message
    with client_of(server) as client, pytest.raises(openai.APIStatusError, match="at most 1000000 bytes") as refused:
        client.audio.transcriptions.create(model="whisper-1", file=bytes(1_000_000))
    assert (refused.value.status_code, refused.value.code) == (413, "too_large")


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [(part("model", b"whisper-1") + f"--{BOUNDARY}--\r\n".encode(), 422, "file"), (part("model", b"a"), 400, None),
     (b"no form", 400, None)],
)  # fmt: skip
def test_errors_of_forms_have_openais_shape(server, body, status, param):
    answer = send_form(server, body, PATH)
    assert answer.status == status
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert answer.json()["error"]["param"] == param


def test_unknown_fields_are_ignored_and_another_method_is_refused(server, recording):
    answer = send_recording(server, recording, PATH, chunking_strategy="auto", model="whisper-1")
    assert answer.status == 200 and answer.json()["text"]
    refused = server.get(PATH)
    assert (refused.status, refused.json()["error"]["type"]) == (405, "invalid_request_error")


def test_the_list_of_routes_has_the_fields(server):
    described = server.get("/openapi.json").json()["paths"][PATH]["post"]
    schema = described["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert {"file", "model", "response_format", "timestamp_granularities[]"} <= schema["properties"].keys()
    assert "OpenAIErrorResponse" in json.dumps(described["responses"]["422"])
