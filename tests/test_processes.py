"""Child processes: messages, bytes in them, and an end with the parent's."""

import asyncio
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dragoman
from dragoman.processes import (
    AsyncChildProcess,
    ChildProcess,
    MessageSocket,
    available_cores,
    encode_message,
    terminate,
)

ECHO = """
from dragoman.processes import parent_socket
channel = parent_socket()
for messages in channel.receive_all():
    for message in messages:
        channel.send(message)
"""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that sends back what it receives."""
    (tmp_path / "echo_child.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return "echo_child"


@pytest.fixture
def pair():
    ends = socket.socketpair()
    yield tuple(map(MessageSocket, ends))
    for end in ends:
        end.close()


@given(VALUES)
@settings(max_examples=30)
def test_a_message_arrives_as_it_was_sent_with_the_bytes_in_it(value):
    left, right = socket.socketpair()
    with left, right:
        left.sendall(encode_message(value))
        left.close()
        channel = MessageSocket(right)
        assert channel.receive() == value
        with pytest.raises(EOFError):
            channel.receive()


def test_messages_that_have_arrived_together_are_received_together(pair):
    left, right = pair
    for number in range(3):
        left.send(number)
    left.close()
    assert list(right.receive_all()) == [[0, 1, 2]]


def test_a_value_that_json_does_not_know_is_refused(pair):
    with pytest.raises(TypeError, match="a message cannot contain a set"):
        pair[0].send({1})


@pytest.mark.slow
def test_a_child_answers_and_ends_when_its_socket_closes(echo):
    child = ChildProcess(echo)
    assert child.request({"data": b"\x00\xff", "text": "ä"}) == {"data": b"\x00\xff", "text": "ä"}
    assert child.stop(grace_seconds=120) == 0


@pytest.mark.slow
def test_a_child_that_has_died_raises_at_the_next_request(echo):
    child = ChildProcess(echo)
    child.process.kill()
    child.process.wait()
    with pytest.raises(EOFError):
        child.request(1)
    child.stop()


@pytest.mark.slow
def test_a_child_of_asyncio_answers_until_it_is_killed(echo):
    async def converse():
        child = await AsyncChildProcess.start(echo)
        child.send(["a", b"b"])
        answer = await child.receive()
        await child.wait_killed()
        with pytest.raises((EOFError, OSError)):
            await child.receive()
        return answer

    assert asyncio.run(converse()) == ["a", b"b"]


@pytest.mark.slow
def test_processes_are_terminated():
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    terminate([process], grace_seconds=120)
    assert process.returncode == -15
    process.stdin.close()


def test_all_children_are_started_in_one_way():
    """A `python -m` elsewhere would import from the current directory; the compiler is no Python program."""
    package = Path(dragoman.__file__).parent
    texts = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    assert [name for name, text in texts.items() if "sys.executable" in text] == ["processes.py"]
    starting = [
        name for name, text in texts.items() if re.search(r"multiprocessing|concurrent.*Process|os.spawn", text)
    ]
    assert starting == []


def test_there_is_a_core_to_work_on():
    assert 1 <= available_cores() <= os.cpu_count()
