"""D1, D2, D5, D6: the queue is bounded, and the work of a client that disconnects is dropped."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import until

from dragoman.errors import UserError
from dragoman.server.admission import Admission
from dragoman.server.limits import Limits
from dragoman.server.problems import Problem
from dragoman.server.registry import ModelRegistry
from dragoman.server.scheduler import BatchScheduler
from dragoman.server.worker import DecodingWorker


def test_requests_above_capacity_are_refused_at_once_with_retry_after_and_the_others_are_answered(small_server):
    ask = lambda _: small_server.post("/v1/translate", {"text": "a b c"})  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        with small_server.paused():
            admitted = [pool.submit(ask, n) for n in range(4)]
            until(lambda: small_server.metric("waiting ") == 4)
            refused = [ask(n) for n in range(20)]  # while the worker does nothing: they wait for none of its work
            assert not any(each.done() for each in admitted)
        answers = [each.result() for each in admitted]
    assert {answer.status for answer in refused} == {503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert {answer.json()["code"] for answer in refused} == {"busy"}
    assert {answer.status for answer in answers} == {200}


def test_the_requests_of_one_address_are_limited(small_server):
    ask = lambda who: small_server.post("/v1/translate", {"text": "a"}, x_forwarded_for=f"1.1.1.1, {who}")  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        with small_server.paused():
            first = [pool.submit(ask, "10.0.0.1") for _ in range(2)]
            until(lambda: small_server.metric("waiting ") == 2)
            third = ask("10.0.0.1")
            other = pool.submit(ask, "10.0.0.2")
            until(lambda: small_server.metric("waiting ") == 3)
        assert third.status == 429
        assert third.headers["retry-after"] == "1"
        assert [each.result().status for each in (*first, other)] == [200, 200, 200]


def test_the_work_of_a_disconnected_client_is_dropped(server):
    body = json.dumps({"text": "a b c\n" * 250}).encode()
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    abandoned, decoded = server.metric("abandoned_total"), server.metric("decoded_total")
    assert server.post("/v1/translate", body, content_type="application/json").status == 200
    until(lambda: server.metric("decoded_total") == decoded + 250)
    with server.paused():
        gone = [server.raw(head + body) for _ in range(20)]
        until(lambda: server.metric("waiting ") == 20)
        for own in gone:
            own.shutdown(socket.SHUT_RDWR)
            own.close()
        until(lambda: server.metric("waiting ") == 0)
        assert server.metric("waiting_work") == 0
        decoded = server.metric("decoded_total")
    until(lambda: server.metric("abandoned_total") == abandoned + 20)
    server.post("/v1/translate", body, content_type="application/json")  # takes turns with whatever else is to be done
    assert server.metric("decoded_total") - decoded < 3 * 250, "its own, and little of the twenty"


ADVERSARIES = {
    "one letter": "a" * 5000, "emoji": "😀" * 5000, "words": "ab " * 1666, "one word": "x" * 5000,
    "lines": "a\n" * 2500, "accents": "e" + "\u0301" * 4999, "right to left": "\u202eabc " * 1000, "dots": "." * 5000,
}  # fmt: skip


@pytest.mark.parametrize("kind", ADVERSARIES)
def test_adversarial_text_is_translated_line_by_line(small_server, kind):
    answer = small_server.post("/v1/translate", {"text": ADVERSARIES[kind], "beam": 2})
    assert answer.status == 200
    written = answer.json()["translations"][0][0]["text"]
    assert written.count("\n") == ADVERSARIES[kind].count("\n")


class AnswerLog:
    """A channel that notes which requests were answered, and how many sentences had been decoded by then."""

    def __init__(self):
        self.decoded, self.answers = 0, []

    def send(self, messages):
        self.decoded += sum(message.get("decoded", 0) for message in messages)
        self.answers += [(message["id"], self.decoded) for message in messages if "result" in message]


HUGE = {"many short sentences": ["a b c d e f."] * 2000, "long sentences": [" ".join("abcdefgh" * 20)] * 2000}


@pytest.mark.parametrize("kind", HUGE)
def test_a_short_text_does_not_wait_for_a_huge_one(run, kind):
    """One thread decodes; the short text comes after the first batch of the huge one, or between two of its steps."""
    registry, scheduler, channel = ModelRegistry("cpu"), BatchScheduler(threads=1), AnswerLog()
    registry.load_all([str(run)], {"toy": ("en", "de")})
    registry.models["toy"].translator.max_length = 200  # so that long sentences stay whole
    worker = DecodingWorker(channel, registry, scheduler, Limits(request_work=10**9))
    request = {"operation": "translate", "model": "toy"}
    huge = {"id": 1, "texts": HUGE[kind], "beam": 4, **request}
    worker.handle_messages([huge, {"id": 2, "texts": ["a b c"], **request}])
    while not channel.answers:
        worker.decode_batch(scheduler.next_batch())
    [(answered, decoded)] = channel.answers
    assert answered == 2
    assert decoded < 200, "a tenth of the huge text"


def test_memory_does_not_grow_under_bodies_of_full_size(small_server):
    """D2: the measured bodies would take 15 MB if they were kept."""
    body = {"texts": ["é" * 1000] * 32, "nonsense": "x" * 60_000}
    for _ in range(60):
        small_server.post("/v1/translate", body)
    before = small_server.memory()
    for _ in range(60):
        assert small_server.post("/v1/translate", body).status == 422
    assert small_server.memory() - before < 5e6


def test_more_text_than_can_be_done_in_time_is_refused():
    clock = [0.0]
    admission = Admission(Limits(deadline_seconds=7), clock=lambda: clock[0])
    with admission.reserve(1000):
        clock[0] = 1.0
    assert admission.rate == 1000
    with admission.reserve(4000):
        with pytest.raises(Problem) as refused, admission.reserve(2000):
            pytest.fail("2,000 of each, one after the other, are not done in half of the deadline")
        assert refused.value.retry_after == 4
        with admission.reserve(10):
            assert admission.work == 4010  # it does not wait for the rest of the long one
    with admission.reserve(100_000):
        assert admission.work == 100_000  # whoever is alone is let in


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("queued_request=3", 'Did you mean "queued_requests"'),
        ("waiting=0", "queued_requests must be a positive integer"),
        ("texts=x", "must be a positive integer"),
        ("deadline_seconds=-1", "must be a positive number"),
    ],
)
def test_an_invalid_limit_is_explained(change, words):
    with pytest.raises(UserError, match=words):
        Limits().with_changes([change])


def test_limits_of_version_0_1_are_accepted_by_their_old_names():
    assert Limits().with_changes(["waiting=3", "look_pieces=7"]) == Limits(queued_requests=3, attention_tokens=7)
