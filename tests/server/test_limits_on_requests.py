"""D3, D4: nothing too large is read, and nobody too slow is waited for."""

import gzip
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

HEAD = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
QUESTION = json.dumps({"text": "a b c"}).encode()


def answer_to(own):
    """Return all that comes back until the other side closes, and how long that took."""
    began_at = time.monotonic()
    own.settimeout(20)
    received = b""
    try:
        while chunk := own.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    own.close()
    return received, time.monotonic() - began_at


def test_a_body_of_64_megabytes_is_refused_and_costs_no_memory(server):
    server.translate("a b c")
    before = server.memory()
    own = server.raw(HEAD + b"Content-Length: 64000000\r\n\r\n")
    block = b" " * 1_000_000
    for _ in range(64):
        own.sendall(block)
    received, _ = answer_to(own)
    assert b" 413 " in received.splitlines()[0]
    assert len(received) < 2000
    assert server.memory() - before < 5e6


def test_a_body_in_chunks_is_counted_while_it_comes(server):
    server.translate("a b c")
    before = server.memory()
    own = server.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    one = b"1\r\n \r\n"
    own.sendall(one * 600_000)
    received, _ = answer_to(own)
    assert b" 413 " in received.splitlines()[0]
    assert server.memory() - before < 5e6


def test_a_length_that_says_too_much_ends_in_a_timeout_and_one_that_says_too_little_in_no_answer(strict_server):
    long = strict_server.raw(HEAD + b"Content-Length: 500\r\n\r\n" + QUESTION)
    received, seconds = answer_to(long)
    assert b" 408 " in received.splitlines()[0]
    assert seconds < 9, "the limit is half a second, otherwise ten"
    short = strict_server.raw(HEAD + b"Content-Length: 5\r\n\r\n" + QUESTION)
    received, _ = answer_to(short)
    assert b" 400 " in received.splitlines()[0]
    assert json.loads(received.rpartition(b"\r\n\r\n")[2])["code"] == "not_http"


def test_a_packed_body_is_not_unpacked(server):
    bomb = gzip.compress(b" " * 10_000_000)
    assert server.post("/v1/translate", bomb, content_encoding="gzip").status == 415


@pytest.mark.parametrize("name", ["header", "request line"])
def test_a_head_without_end_is_dropped(server, name):
    begin = {"header": b"GET / HTTP/1.1\r\nX: ", "request line": b"GET /"}[name]
    own = server.raw(begin)
    began_at = time.monotonic()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        while time.monotonic() - began_at < 4:  # after five it would be too slow, not too long
            own.sendall(b"x" * 10_000)
            time.sleep(0.01)


SLOW = {
    "nothing at all": b"",
    "half a head": HEAD,
    "half a body": HEAD + b"Content-Length: 500\r\n\r\n" + QUESTION,
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_client_is_dropped_however_it_trickles(strict_server, kind):
    own = strict_server.raw(SLOW[kind])
    began_at = time.monotonic()
    with pytest.raises((ConnectionResetError, BrokenPipeError, TimeoutError)):
        own.settimeout(0.1)
        while time.monotonic() - began_at < 10:
            own.sendall(b"x")
            try:
                if own.recv(1 << 16) == b"":
                    raise ConnectionResetError
            except TimeoutError:
                continue
    assert time.monotonic() - began_at < 5, "the limit is half a second, otherwise five"


def test_a_client_that_does_not_read_is_dropped(strict_server):
    question = json.dumps({"texts": ["a b c d. " * 500] * 2, "n_best": 8}).encode()
    request = HEAD + f"Content-Length: {len(question)}\r\n\r\n".encode() + question
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    own.connect(("127.0.0.1", strict_server.port))
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        own.settimeout(60)
        for _ in range(1000):
            own.sendall(request)
            time.sleep(0.01)
    own.close()


def test_many_slow_connections_do_not_keep_the_others_out(strict_server):
    """Ten times as many as there is room for, each opened again when it is dropped."""
    slow = [strict_server.raw(HEAD) for _ in range(240)]
    time.sleep(0.5)  # who has only just come is heard out first
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: strict_server.post("/v1/translate", {"text": "a b c"}), range(20)))
    assert {answer.status for answer in answers} == {200}
    for own in slow:
        own.close()
