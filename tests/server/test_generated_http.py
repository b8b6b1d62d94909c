"""D10: whatever bytes arrive in whatever pieces, valid responses come back, and nothing fails or is left over."""

import asyncio
import re
from contextlib import suppress
from dataclasses import replace

import pytest
from http_servers import PATIENT, listening, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

METHODS = st.sampled_from(
    [b"GET", b"POST", b"POST", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"get", b"", b"PRI"]
)
TARGETS = st.sampled_from(
    [b"/", b"/queued", b"/queued", b"/queued", b"/?a=%00", b"*", b"//", b"/\xff", b"http://a/", b"/" + b"x" * 9000, b""]
)
VERSIONS = st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1 ", b""])
FIELDS = st.sampled_from([
    b"Host: localhost", b"Host: localhost", b"Host: localhost", b"Host: evil", b"Host:", b"Connection: close",
    b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c", b"Expect: 100-continue", b"Content-Length: 0",
    b"Content-Length: 3", b"Content-Length: 300000", b"Content-Length: -1", b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Content-Encoding: gzip", b"Origin: http://evil",
    b" folded", b"X: " + b"x" * 9000, b"\r", b": empty", b"no colon", b"X: \xff\xfe", b"\x00: a",
])  # fmt: skip
BODIES = st.sampled_from(
    [b"", b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n", b"zz\r\n", b"x" * 70_000]
)


@st.composite
def requests(draw):
    """Something like a request, often a valid one."""
    ending = draw(st.sampled_from([b"\r\n"] * 9 + [b"\n"]))
    line = b" ".join([draw(METHODS), draw(TARGETS), draw(VERSIONS)])
    host = draw(st.sampled_from([[b"Host: localhost"]] * 5 + [[]]))
    lines = [line, *host, *draw(st.lists(FIELDS, max_size=2)), b"", draw(BODIES)]
    return ending.join(lines)


INPUTS = st.one_of(st.lists(requests(), min_size=1, max_size=4).map(b"".join), st.binary(max_size=200))
PIECES = st.lists(st.integers(1, 4000), max_size=6)
ENDINGS = st.sampled_from(["shut down", "close", "reset"])
RESPONSE = re.compile(rb"HTTP/1\.1 (\d\d\d) [A-Za-z -]+\r\n")


async def send_in_pieces(server, content, pieces, ending):
    """Send bytes in pieces, end the connection in some way, and return what came back."""
    reader, writer = await server.connect()
    received = b""
    with suppress(OSError):  # the server has closed the connection
        for size in [*pieces, len(content)]:
            writer.write(content[:size])
            content = content[size:]
            await asyncio.sleep(0)
        await writer.drain()
        if ending == "shut down":
            writer.write_eof()
            received = await reader.read()
    writer.transport.abort() if ending == "reset" else writer.close()
    return received


def check(examples, **options):
    """Send generated input to one server after the other, which answers an ordinary request after each."""

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), **options)
    @given(st.lists(st.tuples(INPUTS, PIECES, ENDINGS), min_size=1, max_size=6))
    def one(clients):
        async def run():
            failures = []
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
            limits = replace(PATIENT, queued_requests=2)
            async with listening(limits) as server, asyncio.timeout(60):
                for received in await asyncio.gather(*(send_in_pieces(server, *client) for client in clients)):
                    assert not received or RESPONSE.match(received), received[:100]
                    assert {int(status) for status in RESPONSE.findall(received)} <= {
                        100, 200, 400, 403, 408, 413, 414, 415, 421, 431, 503, 505,
                    }  # fmt: skip
                assert await server.status(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200
                table = server.guard.connections
                await until(lambda: len(table) == table.body_bytes == server.guard.admission.requests == 0)
                assert not table._waiting
            assert not failures

        asyncio.run(run())

    one()


def test_generated_input_is_answered_or_dropped():
    check(40, derandomize=True)


@pytest.mark.long
def test_much_generated_input_is_answered_or_dropped():
    check(1500)
