"""The work of a transcription in a worker that is driven by hand: in bounded parts, and stopped at any of them."""

import json

import numpy as np
import pytest
from forms import encode_wav
from workers import is_idle, slices_of, work_through, worker_of

from dragoman.corpora.morse import draw_recording
from dragoman.server.limits import Limits
from dragoman.server.registry import ModelRegistry
from dragoman.server.scheduler import BatchScheduler

TRANSLATE = {"id": 2, "operation": "translate", "model": "toy", "texts": ["a b c"], "client": "b"}


@pytest.fixture(scope="module")
def registry(run, transcriber):
    loaded = ModelRegistry("cpu")
    loaded.load_all([str(run), str(transcriber)], {"toy": ("en", "de")})
    return loaded


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A recording of a minute at a rate that is not the model's."""
    samples = np.tile(draw_recording("test", 0)[2], 40)[: 60 * 11025]
    file = tmp_path_factory.mktemp("recordings") / "upload"
    file.write_bytes(encode_wav(samples, 11025))
    return file


@pytest.fixture
def transcribe(path):
    return {"id": 1, "operation": "transcribe", "model": "transcriber", "path": str(path), "client": "a", "beam": 1}


def test_a_translation_of_another_client_comes_between_two_parts_of_a_recording(registry, transcribe, monkeypatch):
    worker, channel = worker_of(registry)
    slices = slices_of(worker, monkeypatch)
    charge = BatchScheduler.charge

    def ask_while_it_is_read(self, batch, seconds):
        charge(self, batch, seconds)
        if len(slices) == 5:
            worker.handle_messages([TRANSLATE])

    monkeypatch.setattr(BatchScheduler, "charge", ask_while_it_is_read)
    worker.handle_messages([transcribe])
    work_through(worker)
    names = [getattr(run, "__name__", "") for run in slices]
    assert names.count("_hear") > 60, "at least one part for each second"
    assert names.count("_to_transcripts") >= 8, "one for each segment"
    first, second = channel.results
    assert first[0][0]["text"] and json.loads(second)["duration_seconds"] == 60.0
    assert is_idle(worker.scheduler)


@pytest.mark.parametrize("stage", ["_hear", "_search", "_to_transcripts"])
def test_a_transcription_stops_wherever_it_is_cancelled(registry, transcribe, stage, monkeypatch):
    worker, channel = worker_of(registry)
    slices, charge, after = slices_of(worker, monkeypatch), BatchScheduler.charge, []

    def cancel(self, batch, seconds):
        charge(self, batch, seconds)
        after.extend([slices[-1].__name__] if after or slices[-1].__name__ == stage else [])
        if len(after) == 1:
            worker.handle_messages([{"id": 1, "operation": "cancel"}])

    monkeypatch.setattr(BatchScheduler, "charge", cancel)
    worker.handle_messages([{**transcribe, "details": True}])
    work_through(worker)
    assert after[0] == stage and len(after) <= 3
    assert not channel.results and not channel.problems
    assert is_idle(worker.scheduler)


@pytest.mark.parametrize(
    ("limits", "options", "code", "reason"),
    [
        ({"recording_seconds": 59.0}, {}, "too_long", "60.0 s long; this server accepts at most 59.0 s"),
        ({"request_work": 2900}, {"beam": 2}, "too_much_work", "needs 3,000 units of work"),
        ({"request_work": 7000}, {"details": True}, "too_much_work", "needs 7,500 units of work"),
        ({"response_bytes": 100_000}, {"details": True}, "answer_too_large", "details are sent for at most 46.9 s"),
    ],
)
def test_what_costs_too_much_is_refused_before_it_is_read(registry, transcribe, limits, options, code, reason):
    worker, channel = worker_of(registry, Limits(**limits))
    worker.handle_messages([{**transcribe, **options}])
    assert work_through(worker) == 1
    [problem] = channel.problems
    assert problem[:2] == (422, code)
    assert reason in problem[2]


def test_a_recording_without_a_length_in_its_header_is_read_up_to_the_limit(registry, transcribe, tmp_path):
    """The length of such an MP3 file is estimated; a WAV file written to a pipe promises 13 hours."""
    import soundfile

    path = tmp_path / "upload"
    soundfile.write(path, np.zeros(20 * 8000, np.float32), 8000, format="MP3", subtype="MPEG_LAYER_III")
    worker, channel = worker_of(registry, Limits(recording_seconds=19.5))
    worker.handle_messages([{**transcribe, "path": str(path)}])
    work_through(worker)
    assert channel.problems[0][1] == "too_long"


def test_a_file_that_has_been_removed_is_no_internal_error(registry, transcribe):
    worker, channel = worker_of(registry)
    worker.handle_messages([{**transcribe, "path": "/nowhere/upload"}])
    work_through(worker)
    assert channel.problems[0][:2] == (422, "bad_recording") and "nowhere" not in channel.problems[0][2]
