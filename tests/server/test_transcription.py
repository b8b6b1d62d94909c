"""A server with a transcriber, and a translator beside it."""

import base64
import io
import json
import os
import shutil
import signal
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from forms import BOUNDARY, encode_form, encode_wav, part, send_form, send_recording
from waiting import until

from dragoman.corpora.morse import draw_recording
from dragoman.tasks.transcribe import Transcriber
from dragoman.viewer.alignment import best_aligned_weights

END = f"--{BOUNDARY}--\r\n".encode()


@pytest.fixture(scope="module")
def uploads(tmp_path_factory) -> Path:
    """The directory for temporary files of the server."""
    return tmp_path_factory.mktemp("uploads")


@pytest.fixture(scope="module")
def server(start, run, transcriber, uploads):
    return start(run, transcriber, "--languages", "toy=en:de", "--limit", "recording_seconds=60", TMPDIR=str(uploads))


@pytest.fixture(scope="module")
def model(transcriber) -> Transcriber:
    return Transcriber.load(transcriber)


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    """Morse code with pauses, longer than any recording of the training."""
    message = draw_recording("test", 0)[2]
    return np.concatenate([message, np.zeros(4000, np.float32)] * 3)


@pytest.fixture(scope="module")
def recording(samples) -> bytes:
    return encode_wav(samples)


def stored_files(uploads: Path) -> list[str]:
    (folder,) = uploads.iterdir()
    return [file.name for file in folder.iterdir()]


def test_a_transcript_is_that_of_the_model_itself(server, model, recording):
    segments = [asdict(segment) for segment in model.transcribe_segments(io.BytesIO(recording))]
    answer = send_recording(server, recording).json()
    assert len(segments) > 1
    scores = [segment.pop("score") for segment in answer["segments"]]
    assert scores == pytest.approx([segment.pop("score") for segment in segments], abs=1e-4)
    assert answer["segments"] == json.loads(json.dumps(segments))
    assert answer["text"] == " ".join(segment["text"] for segment in segments if segment["text"])
    assert answer["duration_seconds"] == segments[-1]["end_seconds"]
    assert answer["model"] == "transcriber"


def test_details_have_the_signal_and_the_attention_of_every_token(server, model, recording):
    answer = send_recording(server, recording, details="true").json()
    heard = list(model.hear([io.BytesIO(recording)]))
    for segment, frames in zip(answer["segments"], (each.frames for each in heard), strict=True):
        signal, attention = segment["signal"], segment["attention"]
        levels = np.frombuffer(base64.b64decode(signal["frames"]), np.uint8).reshape(signal["length"], signal["bands"])
        lowest, highest = frames.min(), frames.max()
        assert np.abs(levels / 255 * (highest - lowest) + lowest - frames).max() < (highest - lowest) / 500
        rows = np.frombuffer(base64.b64decode(attention["weights"]), np.uint8).reshape(-1, attention["positions"])
        assert attention["positions"] == -(-signal["length"] // 4)
        assert rows.max(axis=1).tolist() == [255] * len(attention["tokens"])
        text = "".join(segment["text"][token["start"] : token["end"]] for token in attention["tokens"])
        assert text == segment["text"]


def test_the_attention_is_that_of_the_picture(server, model, samples):
    short = encode_wav(samples[:16000])
    record = model.inspect(io.BytesIO(short))
    weights = best_aligned_weights(record.cross)[0][:-1]
    (segment,) = send_recording(server, short, details="true").json()["segments"]
    rows = np.frombuffer(base64.b64decode(segment["attention"]["weights"]), np.uint8).reshape(weights.shape)
    assert np.abs(rows / 255 - weights / weights.max(axis=1, keepdims=True)).max() < 1 / 250


def test_the_beam_can_be_chosen(server, model, recording):
    segments = list(model.transcribe_segments(io.BytesIO(recording), beam=1))
    answer = send_recording(server, recording, beam=1, model="transcriber").json()
    assert [segment["text"] for segment in answer["segments"]] == [segment.text for segment in segments]


@pytest.mark.parametrize(("kind", "subtype"), [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III")])
def test_other_formats_are_recognised_by_their_content(server, model, samples, kind, subtype):
    import soundfile

    content = io.BytesIO()
    soundfile.write(content, samples[:24000], 8000, format=kind, subtype=subtype)
    answer = send_recording(server, content.getvalue(), filename="sound.wav")
    assert answer.json()["text"] == model.transcribe(io.BytesIO(content.getvalue()))


def test_8_bits_and_96_khz_stereo_are_transcribed(server, samples):
    import soundfile

    for rate, subtype in ((8000, "PCM_U8"), (96000, "PCM_24")):
        content = io.BytesIO()
        soundfile.write(content, np.stack([samples[:9000]] * 2, axis=1), rate, format="WAV", subtype=subtype)
        assert send_recording(server, content.getvalue()).status == 200


def test_models_are_described_with_what_they_read(server):
    models = {model["task"]: model for model in server.get("/v1/info").json()["models"]}
    assert (models["transcribe"]["reads_signals"], models["transcribe"]["sampling_rate"]) == (True, 8000)
    assert (models["translate"]["reads_signals"], models["translate"]["sampling_rate"]) == (False, None)
    limits = server.get("/v1/info").json()["limits"]
    assert limits["recording_seconds"] == 60 and limits["audio_bytes"] == 25 << 20


def test_text_goes_to_the_first_model_that_reads_text(server, recording):
    assert server.translate("a b c")
    refused = server.post("/v1/translate", {"text": "a", "model": "transcriber"})
    assert (refused.status, refused.json()["field"]) == (422, "model")
    assert "/v1/transcribe" in refused.json()["error"]
    refused = server.post("/v1/attention", {"text": "a", "model": "transcriber"})
    assert (refused.status, refused.json()["field"]) == (422, "model")
    refused = send_recording(server, recording, model="toy")
    assert (refused.status, refused.json()["field"]) == (422, "model")
    assert "transcriber of this server is transcriber" in refused.json()["error"]
    assert send_recording(server, recording, model="other").status == 404


def test_the_routes_of_libretranslate_ignore_transcribers(server):
    assert [language["code"] for language in server.get("/languages").json()] == ["en", "de"]
    assert server.post("/translate", {"q": "a", "source": "en", "target": "de"}).status == 200


def long_wav() -> bytes:
    return encode_wav(np.zeros(61 * 8000, np.float32))


def nan_wav() -> bytes:
    import soundfile

    content = io.BytesIO()
    soundfile.write(content, np.full(8000, np.nan, np.float32), 8000, format="WAV", subtype="FLOAT")
    return content.getvalue()


BAD_RECORDINGS = {
    "a text file": (lambda wav: b"Just text.\n" * 100, "bad_recording", "a text file; expected a sound file"),
    "an empty file": (lambda wav: b"", "bad_recording", "is empty"),
    "no samples": (lambda wav: encode_wav(np.zeros(0, np.float32)), "bad_recording", "contains no samples"),
    "a truncated file": (lambda wav: wav[:-1000], "bad_recording", "is truncated"),
    "not a number": (lambda wav: nan_wav(), "bad_recording", "is nan"),
    "only a header": (lambda wav: wav[:30], "bad_recording", "cannot be decoded"),
    "noise": (lambda wav: bytes(range(256)) * 40, "bad_recording", "of an unknown kind"),
    "too long": (lambda wav: long_wav(), "too_long", "at most 60.0 s"),
}


@pytest.mark.parametrize("kind", BAD_RECORDINGS)
def test_a_bad_recording_is_refused_with_the_reason(server, recording, uploads, kind):
    make, code, reason = BAD_RECORDINGS[kind]
    answer = send_recording(server, make(recording), filename="my-own-name.wav")
    assert (answer.status, answer.json()["code"], answer.json()["field"]) == (422, code, "file")
    assert reason in answer.json()["error"]
    assert str(uploads) not in answer.json()["error"] and "my-own" not in answer.json()["error"]
    assert stored_files(uploads) == []


WAV = part("file", b"RIFF", "sound.wav")
BAD_FORMS = {
    "no file": (part("beam", b"1") + END, 422, "file", "The field file is missing"),
    "an empty form": (END, 422, "file", "The field file is missing"),
    "two files": (WAV + WAV + END, 422, "file", "one recording at a time"),
    "another field for the file": (part("audio", b"RIFF", "a.wav") + END, 422, "file", "must be in the field file"),
    "a huge field": (part("model", b"x" * 9000) + WAV + END, 422, None, "at most 8192 bytes"),
    "many fields": (part("model", b"x") * 33 + END, 422, None, "at most 32 fields"),
    "an unknown field": (WAV + part("bean", b"1") + END, 422, "bean", 'Did you mean "beam"'),
    "a beam that is no number": (WAV + part("beam", b"wide") + END, 422, "beam", "valid integer"),
    "a beam that is too wide": (WAV + part("beam", b"9") + END, 422, "beam", "less than or equal to 8"),
    "no end": (WAV, 400, None, "is truncated"),
    "nothing": (b"", 400, None, "is truncated"),
    "no form": (b"just bytes", 400, None, "is not valid multipart/form-data"),
    "a part without a name": (WAV.replace(b'; name="file"', b"") + END, 400, None, "is not valid multipart/form-data"),
}


@pytest.mark.parametrize("kind", BAD_FORMS)
def test_a_bad_form_is_refused_with_the_reason(server, uploads, kind):
    body, status, field, reason = BAD_FORMS[kind]
    answer = send_form(server, body)
    assert (answer.status, answer.json()["field"]) == (status, field)
    assert reason in answer.json()["error"]
    assert stored_files(uploads) == []


@pytest.mark.parametrize(
    ("content_type", "status"),
    [("application/json", 415), ("audio/wav", 415), ("multipart/form-data", 400), ("", 415),
     (f"multipart/form-data; boundary={'b' * 300}", 400)],
)  # fmt: skip
def test_another_content_type_is_refused(server, recording, content_type, status):
    answer = server.post("/v1/transcribe", recording, content_type=content_type)
    assert answer.status == status and "multipart/form-data" in answer.json()["error"]


def test_a_body_above_the_limit_is_refused_whether_or_not_its_length_is_announced(start, transcriber, recording):
    server = start(transcriber, "--limit", f"audio_bytes={len(recording)}")
    answer = send_recording(server, recording)
    assert (answer.status, answer.json()["code"]) == (413, "too_large")
    connection = server.connection()
    chunks = iter([encode_form(recording)[:20000], encode_form(recording)[20000:]])
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    connection.request("POST", "/v1/transcribe", chunks, headers, encode_chunked=True)
    assert connection.getresponse().status == 413


def test_a_recording_is_removed_when_its_client_leaves(server, recording, uploads):
    body = encode_form(recording)
    head = (
        f"POST /v1/transcribe HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        f"content-type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
    ).encode()
    half = server.raw(head + body[: len(body) // 2])
    until(lambda: len(stored_files(uploads)) == 1)
    half.close()
    until(lambda: stored_files(uploads) == [])
    with server.paused():
        whole = server.raw(head + body)
        until(lambda: len(stored_files(uploads)) == 1 and server.metric("waiting ") == 1)
        whole.close()
        until(lambda: stored_files(uploads) == [])


def test_a_server_of_transcribers_is_healthy_reloads_them_and_leaves_no_files_when_killed(
    start, transcriber, uploads, recording, tmp_path
):
    copy = tmp_path / "speech"
    shutil.copytree(transcriber, copy)
    server = start(copy, TMPDIR=str(tmp_path))
    until(lambda: server.get("/healthz").status == 200)
    refused = server.post("/v1/translate", {"text": "a"})
    assert refused.status == 422 and "/v1/transcribe" in refused.json()["error"]
    assert server.get("/languages").json() == []

    stamp = time.time_ns() + 10**9
    os.utime(copy / "model.safetensors", ns=(stamp, stamp))
    until(lambda: server.metric("reloads_total") == 1)
    assert send_recording(server, recording).status == 200

    (folder,) = (path for path in tmp_path.iterdir() if path.name.startswith("dragoman-"))
    assert folder.stat().st_mode & 0o777 == 0o700
    os.kill(server.process.pid, signal.SIGKILL)
    until(lambda: not folder.exists())


def test_a_server_without_a_transcriber_says_so(start, run, recording):
    answer = send_recording(start(run, "--languages", "toy=en:de"), recording)
    assert (answer.status, answer.json()["field"]) == (404, "model")
