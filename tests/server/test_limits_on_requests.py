"""D3, D4: nothing too large is read, and nobody too slow is waited for."""

import asyncio
import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from waiting import until

from dragoman.server.access import AccessPolicy
from dragoman.server.connections import ConnectionTable
from dragoman.server.limits import Limits, RouteLimits
from dragoman.server.middleware import GuardMiddleware

HEAD = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
QUESTION = json.dumps({"text": "a b c"}).encode()
WATCHDOG_SECONDS = 120  # nothing is proven by it but that the server has hung


def answer_to(own):
    """Return all that comes back until the other side closes."""
    own.settimeout(WATCHDOG_SECONDS)
    received = b""
    try:
        while chunk := own.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    own.close()
    return received


def test_a_body_of_64_megabytes_is_refused_and_not_kept_in_memory(server):
    server.translate("a b c")
    before = server.memory()
    own = server.raw(HEAD + b"Content-Length: 64000000\r\n\r\n")
    block = b" " * 1_000_000
    for _ in range(64):
        own.sendall(block)
    received = answer_to(own)
    assert b" 413 " in received.splitlines()[0]
    assert len(received) < 2000
    assert server.memory() - before < 5e6


def test_a_body_in_chunks_is_counted_while_it_arrives(server):
    own = server.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    own.sendall(b"1\r\n \r\n" * 600_000)
    assert b" 413 " in answer_to(own).splitlines()[0]


def test_a_length_above_the_body_ends_in_a_timeout_and_one_below_it_closes_the_connection(hasty_server):
    long = hasty_server.raw(HEAD + b"Content-Length: 500\r\n\r\n" + QUESTION)
    assert b" 408 " in answer_to(long).splitlines()[0]
    short = answer_to(hasty_server.raw(HEAD + b"Content-Length: 5\r\n\r\n" + QUESTION))
    assert b" 422 " in short.splitlines()[0], "its first five bytes are not JSON"
    assert short.count(b"HTTP/1.1 ") == 1


def test_a_compressed_body_is_not_decompressed(server):
    bomb = gzip.compress(b" " * 10_000_000)
    assert server.post("/v1/translate", bomb, content_encoding="gzip").status == 415


SLOW = {
    "nothing at all": b"",
    "half a head": HEAD,
    "half a body": HEAD + b"Content-Length: 500\r\n\r\n" + QUESTION,
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_client_is_dropped_however_it_trickles(hasty_server, kind):
    own = hasty_server.raw(SLOW[kind])
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        own.settimeout(0.1)
        for _ in range(10 * WATCHDOG_SECONDS):
            own.sendall(b"x")
            try:
                if own.recv(1 << 16) == b"":
                    raise ConnectionResetError
            except TimeoutError:
                continue


def test_many_slow_connections_do_not_keep_the_others_out(hasty_server):
    """Ten times as many as the server accepts."""
    slow = [hasty_server.raw(HEAD) for _ in range(240)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: until_answered(hasty_server), range(20)))
    assert {answer.status for answer in answers} == {200}
    for own in slow:
        own.close()


def until_answered(server):
    """Send a request again as long as the server has no room or drops the connection, as it may at first."""
    answers = []

    def is_answered():
        with suppress(OSError):
            answers.append(server.post("/v1/translate", {"text": "a b c"}))
        return answers and answers[-1].status != 503

    until(is_answered, WATCHDOG_SECONDS)
    return answers[-1]


class Waiting:
    """A connection without a socket: what `ConnectionTable` needs of one."""

    def __init__(self, seconds):
        self.loop = asyncio.get_running_loop()
        self.seconds, self.is_surplus, self.is_receiving_body, self.aborted = seconds, False, False, False
        self.transport = self

    @property
    def waiting_since(self):
        return self.loop.time() - self.seconds

    @waiting_since.setter
    def waiting_since(self, _now):
        """The time that a connection has waited is given by the test."""

    def abort(self):
        self.aborted = True


def table_of(limits):
    return ConnectionTable(limits, guard=None)


def test_a_new_connection_replaces_the_one_that_has_waited_longest_without_a_request():
    async def fill():
        table = table_of(Limits(connections=3))
        busy, first, second = Waiting(9), Waiting(8), Waiting(7)
        for connection in (busy, first, second):
            table.add(connection)
        table.mark_busy(busy)
        table.mark_waiting(first)  # it has had a response meanwhile
        table.add(new := Waiting(0))
        assert [each.aborted for each in (busy, first, second, new)] == [False, False, True, False]
        table.add(newer := Waiting(0))
        assert first.aborted
        table.add(surplus := Waiting(0))
        assert [each.is_surplus for each in (new, newer, surplus)] == [False, False, True]
        assert len(table) == 4

    asyncio.run(fill())


def test_connections_that_are_too_slow_are_closed_a_few_at_a_time_the_oldest_first():
    class Slow(Waiting):
        def enforce_timeouts(self, _limits, _now):
            self.abort()
            return True

    async def fill():
        table = table_of(Limits(connections=64 * 32))
        slow = [Slow(9) for _ in range(100)]
        for connection in slow:
            table.add(connection)
        table.enforce_timeouts(0.0)
        assert [each.aborted for each in slow] == [True] * 64 + [False] * 36

    asyncio.run(fill())


def test_too_many_bytes_in_incomplete_bodies_close_the_connection_that_has_waited_longest_with_one():
    async def receive():
        table = table_of(Limits(queued_requests=2, body_bytes=100))
        idle, slow, slower = Waiting(9), Waiting(8), Waiting(7)
        for connection in (idle, slow, slower):
            table.add(connection)
        slow.is_receiving_body = slower.is_receiving_body = True
        table.count_body(150)
        table.count_body(50)
        assert not slow.aborted
        table.count_body(1)
        assert [each.aborted for each in (idle, slow, slower)] == [False, True, False]

    asyncio.run(receive())


def test_the_limits_of_a_route_hold_for_that_route_alone():
    """The middleware enforces them before the application has read anything."""

    async def app(_scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    limits = Limits(body_bytes=10)
    uploads = RouteLimits(body_bytes=100, body_seconds=60, deadline_seconds=60)
    guard = GuardMiddleware(app, limits, AccessPolicy(None), routes={"/upload": uploads})

    async def status_of(path, size):
        events = [{"type": "http.request", "body": b"x" * size}]
        sent = []

        async def receive():
            return events.pop(0)

        async def send(event):
            sent.append(event)

        headers = [(b"host", b"localhost"), (b"content-length", str(size).encode())]
        await guard({"type": "http", "path": path, "method": "POST", "headers": headers, "state": {}}, receive, send)
        return sent[0]["status"]

    statuses = [asyncio.run(status_of(path, size)) for path in ("/", "/upload") for size in (10, 11, 100, 101)]
    assert statuses == [200, 413, 413, 413, 200, 200, 200, 413]
