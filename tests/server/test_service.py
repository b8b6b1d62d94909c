"""What the HTTP process does with a request is little: everything else waits meanwhile."""

import asyncio

import pytest

from dragoman.server.admission import Admission
from dragoman.server.limits import Limits
from dragoman.server.metrics import ServerMetrics
from dragoman.server.problems import Problem
from dragoman.server.schemas import TranslateRequest
from dragoman.server.service import TranslationService

MODEL = {
    "name": "toy", "source": "en", "target": "de", "noun": "translator", "beam": 4,
    "is_language_model": False, "raw_text_io": True, "reads_sentences": True, "reads_signals": False,
}  # fmt: skip


class Worker:
    """Notes what is asked, and answers with something that nobody can read."""

    def __init__(self):
        self.models, self.asked = [MODEL], []

    async def request(self, operation, **fields):
        self.asked.append({"operation": operation, **fields})
        return b"<encoded>"

    async def stream(self, operation, **fields):
        self.asked.append({"operation": operation, **fields})
        yield {"part": {"index": 1, "text": "zwei"}}
        yield {"result": b"<encoded>"}


@pytest.fixture
def service():
    limits = Limits()
    return TranslationService(Worker(), Admission(limits), limits, ServerMetrics())


def test_what_the_worker_has_encoded_is_sent_as_it_is(service):
    body = asyncio.run(service.translate(TranslateRequest(texts=["One. Two.\n", "", "Three"], details=True)))
    assert body == b'{"translations":<encoded>,"model":"toy"}'
    (asked,) = service.worker.asked
    assert asked["texts"] == ["One.", "Two.", "Three"]
    assert asked["layout"] == [("", " ", "\n"), ("",), ("", "")]


def test_a_text_whose_translation_has_a_prefix_is_split_by_the_worker(service):
    asyncio.run(service.translate(TranslateRequest(text="One. Two.\n", prefix="Eins")))
    (asked,) = service.worker.asked
    assert (asked["texts"], asked["layout"], asked["prefix"]) == (["One. Two.\n"], [("", "")], "Eins")


def test_the_last_event_of_a_stream_is_what_the_worker_has_encoded(service):
    async def events():
        return [event async for event in service.stream(TranslateRequest(text="One. Two.", stream=True))]

    assert asyncio.run(events()) == [{"text": " zwei"}, b'{"translations":<encoded>,"model":"toy"}']


def test_a_text_with_too_many_lines_is_refused_before_it_is_split(service, monkeypatch):
    monkeypatch.setattr("dragoman.server.service.split_for", lambda *_arguments, **_options: pytest.fail("split"))
    with pytest.raises(Problem, match="units of work"):
        asyncio.run(service.translate(TranslateRequest(text="a\n" * 2500, n_best=8)))
    assert not service.worker.asked
