"""D1, D3, D4: what is valid HTTP, how large a head may be, and what becomes of refused and half-closed connections.

Each test has a server of its own in its event loop, with real sockets, and waits for events.
"""

import asyncio
import json
import socket
from dataclasses import replace

import pytest
from http_servers import PATIENT, listening, read_response, until

from dragoman.server import connections, protocol

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
WAIT = b"POST /wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


def asks(content, **options):
    """Return all that a server answers to bytes, until it closes the connection."""

    async def ask():
        async with listening(**options) as server, asyncio.timeout(60):
            return await server.ask(content)

    return asyncio.run(ask())


def status_and_problem(received):
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


INVALID = {
    "length and encoding":
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "encoding and length":
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx",
    "a length with a sign": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
    "two encodings": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunked and identity": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk that ends with LF": b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
    "an extension that ends with LF":
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nx\r\n0\r\n\r\n",
    "a chunk longer than it says":
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n0\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    "lines that end with LF": b"GET / HTTP/1.1\nHost: localhost\n\n",
    "one line that ends with LF": b"GET / HTTP/1.1\r\nHost: localhost\nX: a\r\n\r\n",
    "a space before the colon": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length : 1\r\n\r\nx",
    "a NUL": b"GET / HTTP/1.1\r\nHost: localhost\x00\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "no Host in HTTP/1.0": b"GET / HTTP/1.0\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "an empty Host": b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    "a Host with a path": b"GET / HTTP/1.1\r\nHost: localhost/\r\n\r\n",
    "a Host with a user": b"GET / HTTP/1.1\r\nHost: me@localhost\r\n\r\n",
    "a Host with a comma": b"GET / HTTP/1.1\r\nHost: localhost, evil\r\n\r\n",
    "half an address": b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", INVALID)
def test_what_two_servers_might_read_differently_is_a_400(kind):
    status, problem = status_and_problem(asks(INVALID[kind]))
    assert (status, problem["code"]) == (400, "invalid")
    assert problem.keys() == {"error", "code", "field", "request_id"}


@pytest.mark.parametrize("version", [b"2.0", b"0.9"])
def test_another_version_of_http_is_refused(version):
    assert status_and_problem(asks(b"GET / HTTP/%s\r\nHost: localhost\r\n\r\n" % version))[0] == 505


def test_extensions_of_chunks_and_fields_after_the_body_are_ignored():
    body = b"1;name=value\r\nx\r\n0\r\nHost: evil.example\r\n\r\n"
    received = asks(
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + body
    )
    assert received.endswith(b"POST / 1")


LARGE = {
    "many fields": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 100 + b"c", 431),
    "a large field": (b"GET / HTTP/1.1\r\nHost: localhost\r\na: " + b"x" * 8192 + b"\r\nc", 431),
    "a large name": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"x" * 8192 + b": a\r\nc", 431),
    "large fields": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + (b"a: " + b"x" * 4000 + b"\r\n") * 9, 431),
    "a field without end": (b"GET / HTTP/1.1\r\nHost: localhost\r\na: " + b"x" * 40_000, 431),
    "a large URL": (b"GET /" + b"x" * 8192 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
    "a URL without end": (b"GET /" + b"x" * 20_000, 414),
    "many fields after the body":
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 101, 431),
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
def test_a_head_that_is_too_large_is_refused_before_it_is_complete(kind):
    content, expected = LARGE[kind]
    status, problem = status_and_problem(asks(content))
    assert status == expected
    assert problem["code"] == {431: "large_header", 414: "long_url"}[expected]


def test_a_head_just_within_the_bounds_is_accepted():
    fields = b"".join(b"a%d: %s\r\n" % (number, b"x" * 300) for number in range(98))
    received = asks(GET + fields + b"Connection: close\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 ")


def test_a_refused_client_sees_the_response_although_it_is_still_sending(monkeypatch):
    """The head is refused after 32 KiB; the client sends 20 MB before it reads."""
    monkeypatch.setattr(protocol, "_LINGER_SECONDS", 600)

    async def send():
        async with listening() as server, asyncio.timeout(60):
            reader, writer = await server.connect(GET)
            for _ in range(20):
                writer.write(b"x" * 1_000_000)
                await writer.drain()
            assert (await read_response(reader))[0] == 431
            writer.close()

    asyncio.run(send())


def test_a_refused_client_that_goes_on_sending_is_dropped(monkeypatch):
    monkeypatch.setattr(protocol, "_LINGER_SECONDS", 0)

    async def send():
        async with listening() as server, asyncio.timeout(60):
            _, writer = await server.connect(GET)
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                while True:
                    writer.write(b"x" * 100_000)
                    await writer.drain()

    asyncio.run(send())


def test_a_client_that_has_shut_down_its_sending_side_is_answered():
    async def shut_down():
        async with listening() as server, asyncio.timeout(60):
            reader, writer = await server.connect(WAIT)
            writer.write_eof()
            await until(lambda: server.app.started)
            server.app.events["/wait"].set()
            status, headers, body = await read_response(reader)
            while status == 100:  # HTTP allows any number of these before a response
                status, headers, body = await read_response(reader)
            assert (status, body, headers["connection"]) == (200, b"POST /wait 0", "close")
            assert await reader.read() == b""
            writer.close()

    asyncio.run(shut_down())


def test_the_work_for_a_client_that_has_gone_is_cancelled():
    """Its FIN looks like that of a client that only sends no more; that it has gone shows when something is written."""

    async def go():
        async with listening() as server, asyncio.timeout(60):
            _, writer = await server.connect(WAIT)
            await until(lambda: server.app.started)
            writer.close()
            await until(lambda: server.app.cancelled)
            await until(lambda: len(server.guard.connections) == 0)

    asyncio.run(go())


def test_the_work_for_a_client_that_has_gone_after_a_large_body_is_cancelled():
    """uvicorn pauses reading when a body fills its buffer, and did not resume after the end of the body."""

    async def go():
        size = 200_000
        async with listening(replace(PATIENT, body_bytes=size)) as server, asyncio.timeout(60):
            _, writer = await server.connect(WAIT.replace(b"h: 0", b"h: %d" % size) + bytes(size))
            await until(lambda: server.app.started)
            writer.close()
            await until(lambda: server.app.cancelled)

    asyncio.run(go())


def test_the_work_for_a_client_that_resets_the_connection_is_cancelled():
    async def reset():
        async with listening() as server, asyncio.timeout(60):
            _, writer = await server.connect(WAIT)
            await until(lambda: server.app.started)
            own = writer.get_extra_info("socket")
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()
            await until(lambda: server.app.cancelled)

    asyncio.run(reset())


def test_half_a_request_before_the_end_is_dropped():
    async def shut_down():
        async with listening() as server, asyncio.timeout(60):
            reader, writer = await server.connect(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab")
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()

    asyncio.run(shut_down())


def test_requests_that_are_sent_at_once_are_answered_in_order():
    async def pipeline():
        async with listening() as server, asyncio.timeout(60):
            paths = (b"/wait/1", b"/2", b"/wait/2", b"/4")
            content = b"".join(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in paths)
            reader, writer = await server.connect(content)
            server.app.events["/wait/2"].set()
            await until(lambda: server.app.started == ["/wait/1"])
            server.app.events["/wait/1"].set()
            answers = [(await read_response(reader))[2] for _ in paths]
            assert answers == [b"GET %s 0" % path for path in paths]
            writer.close()

    asyncio.run(pipeline())


def test_too_many_requests_at_once_are_answered_in_part_and_the_connection_is_closed():
    async def pipeline():
        async with listening() as server, asyncio.timeout(60):
            reader, writer = await server.connect(GET.replace(b" / ", b" /wait/1 ") + b"\r\n" + (GET + b"\r\n") * 100)
            await until(lambda: server.app.started)
            server.app.events["/wait/1"].set()
            received = await reader.read()
            assert received.count(b"HTTP/1.1 200 ") == 17
            assert received.count(b"connection: close") == 1
            writer.close()

    asyncio.run(pipeline())


def test_what_is_not_http_behind_a_request_does_not_mix_with_its_response():
    async def pipeline():
        async with listening() as server, asyncio.timeout(60):
            reader, writer = await server.connect(GET.replace(b" / ", b" /wait/1 ") + b"\r\nnonsense\r\n\r\n")
            await until(lambda: server.app.started)
            server.app.events["/wait/1"].set()
            received = await reader.read()
            assert received.endswith(b"GET /wait/1 0")
            assert received.count(b"HTTP/1.1 ") == 1
            writer.close()

    asyncio.run(pipeline())


def test_a_client_that_expects_100_continue_gets_it():
    async def expect():
        async with listening() as server, asyncio.timeout(60):
            head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
            reader, writer = await server.connect(head)
            assert (await read_response(reader))[0] == 100
            writer.write(b"abc")
            assert (await read_response(reader))[2] == b"POST / 3"
            writer.close()

    asyncio.run(expect())


def test_a_client_that_expects_100_continue_is_refused_without_it():
    head = b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    assert status_and_problem(asks(head))[0] == 421


def test_another_protocol_is_not_offered_and_the_request_is_answered():
    head = GET + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    received = asks(head + b"PRI * HTTP/2.0\r\n\r\n")
    assert received.endswith(b"GET / 0")
    assert b"connection: close" in received


def test_refused_requests_keep_their_connection_and_are_counted():
    """Under overload most requests are refused: opening a connection for each would cost more than refusing."""

    async def overload():
        async with listening(replace(PATIENT, queued_requests=1)) as server, asyncio.timeout(60):
            _, inside = await server.connect(WAIT)
            await until(lambda: server.guard.admission.requests == 1)
            reader, writer = await server.connect()
            for _ in range(3):
                writer.write(b"POST /wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nab")
                writer.write(b"cd")
                status, headers, _body = await read_response(reader)
                assert (status, headers["retry-after"]) == (503, "1")
                assert "connection" not in headers
                assert len(headers["x-request-id"]) == 16
            writer.write(GET + b"\r\n")
            assert (await read_response(reader))[0] == 200, "the same connection"
            assert server.guard.metrics.responses["/wait", 503] == 3
            assert server.guard.metrics.rejections["busy"] == 3
            assert server.app.started == ["/wait", "/"], "the refused ones did not reach the application"
            for each in (inside, writer):
                each.close()

    asyncio.run(overload())


def test_requests_that_arrive_together_are_refused_before_the_application_sees_them():
    """Their tasks would all start before one of them is counted."""

    async def overload():
        async with listening(replace(PATIENT, queued_requests=2)) as server, asyncio.timeout(60):
            opened = [await server.connect() for _ in range(10)]
            for _, writer in opened:
                writer.write(WAIT)
            await until(lambda: server.guard.metrics.responses["/wait", 503] == 8)
            await until(lambda: server.app.started == ["/wait", "/wait"])
            server.app.events["/wait"].set()
            statuses = [(await read_response(reader))[0] for reader, _ in opened]
            assert sorted(statuses) == [200, 200] + [503] * 8
            await until(lambda: server.guard.admission.requests == 0)
            assert server.app.started == ["/wait", "/wait"]
            for _, writer in opened:
                writer.close()

    asyncio.run(overload())


def test_a_slow_body_has_no_place_in_the_queue_until_it_is_complete():
    async def overload():
        async with listening(replace(PATIENT, queued_requests=1)) as server, asyncio.timeout(60):
            slow, slow_writer = await server.connect(WAIT.replace(b"h: 0", b"h: 4") + b"ab")
            await until(lambda: server.guard.connections.body_bytes == 2)
            assert server.guard.admission.requests == 0
            quick, quick_writer = await server.connect(WAIT)
            await until(lambda: server.guard.admission.requests == 1)
            slow_writer.write(b"cd")
            assert (await read_response(slow))[0] == 503
            server.app.events["/wait"].set()
            assert (await read_response(quick))[0] == 200
            await until(lambda: server.guard.admission.requests == server.guard.connections.body_bytes == 0)
            for each in (slow_writer, quick_writer):
                each.close()

    asyncio.run(overload())


def test_a_refused_body_of_unknown_length_closes_the_connection():
    async def overload():
        async with listening(replace(PATIENT, queued_requests=1)) as server, asyncio.timeout(60):
            _, inside = await server.connect(WAIT)
            await until(lambda: server.guard.admission.requests == 1)
            head = b"POST /wait HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            reader, writer = await server.connect(head + b"1\r\nx\r\n" * 1000)
            status, headers, _ = await read_response(reader)
            assert (status, headers["connection"]) == (503, "close")
            assert await reader.read() == b""
            for each in (inside, writer):
                each.close()

    asyncio.run(overload())


def test_above_the_limit_of_connections_the_longest_idle_one_is_closed_and_probes_are_answered(monkeypatch):
    monkeypatch.setattr(connections, "_EVICTION_GRACE_SECONDS", -1)

    async def crowd():
        async with listening(replace(PATIENT, connections=3)) as server, asyncio.timeout(60):
            idle = []
            for _ in range(3):
                idle.append(await server.connect(GET + b"\r\n"))
                assert (await read_response(idle[-1][0]))[0] == 200
            idle[0][1].write(GET + b"\r\n")  # so that the second has been idle for longest
            assert (await read_response(idle[0][0]))[0] == 200
            assert await server.status(GET + b"\r\n") == 200
            assert await idle[1][0].read() == b""
            assert not idle[0][0].at_eof() and not idle[2][0].at_eof()
            for _ in range(3):
                assert await server.status(GET + b"\r\n") == 200
            for _, writer in idle:
                writer.close()

    asyncio.run(crowd())


def test_a_connection_above_the_limit_is_answered_with_a_503_if_no_other_is_idle():
    async def crowd():
        async with listening(replace(PATIENT, connections=1)) as server, asyncio.timeout(60):
            _, inside = await server.connect(GET.replace(b" / ", b" /wait/1 ") + b"\r\n")
            await until(lambda: server.app.started)
            reader, writer = await server.connect(GET + b"\r\n")
            status, headers, _ = await read_response(reader)
            assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
            for each in (inside, writer):
                each.close()

    asyncio.run(crowd())


@pytest.mark.parametrize("content", [b"", b"GET / HT", WAIT[:-2], WAIT.replace(b"h: 0", b"h: 9") + b"half"])
def test_slow_connections_are_closed(content):
    limits = replace(PATIENT, header_seconds=0.1, body_seconds=0.1)

    async def wait():
        async with listening(limits) as server, asyncio.timeout(60):
            reader, writer = await server.connect(content)
            try:
                received = await reader.read()
            except ConnectionResetError:
                received = b""
            assert received[:13] in (b"", b"HTTP/1.1 408 ")
            await until(lambda: len(server.guard.connections) == 0)
            writer.close()

    asyncio.run(wait())


def test_a_client_that_does_not_read_is_dropped():
    async def wait():
        async with listening(replace(PATIENT, write_seconds=0.1)) as server, asyncio.timeout(60):
            own = socket.create_connection(("127.0.0.1", server.port))
            own.sendall(GET.replace(b" / ", b" /large ") + b"\r\n")
            await until(lambda: server.app.started)
            await until(lambda: len(server.guard.connections) == 0)
            own.close()

    asyncio.run(wait())
