"""D8, D9, D15: workers die, servers stop, trainings write new weights; every request is answered."""

import asyncio
import os
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn
from waiting import until

import dragoman
from dragoman.server.metrics import ServerMetrics
from dragoman.server.serve import _DrainingServer, bind_socket
from dragoman.server.worker_client import WorkerClient


@pytest.fixture
def own_run(run, tmp_path):
    return shutil.copytree(run, tmp_path / "toy")


@pytest.fixture(scope="module")
def hurried(start, run):
    return start(run, "--limit", "deadline_seconds=1")


def test_a_request_that_exceeds_the_deadline_is_a_503_and_frees_its_place(hurried):
    with hurried.paused():
        answer = hurried.post("/v1/translate", {"text": "a b"})
    assert (answer.status, answer.json()["code"]) == (503, "deadline")
    until(lambda: hurried.metric("waiting") == 0)
    until(lambda: hurried.get("/healthz").status == 200)


def test_requests_of_a_killed_worker_get_a_503_and_another_worker_is_started(server):
    with ThreadPoolExecutor(4) as pool:
        with server.paused():
            inside = [pool.submit(server.post, "/v1/translate", {"text": "a b c"}) for _ in range(4)]
            until(lambda: server.metric("waiting ") == 4)
            first = server.worker()
            os.kill(first, signal.SIGKILL)
            answers = [each.result() for each in inside]
        assert {answer.status for answer in answers} == {503}
        assert {answer.json()["code"] for answer in answers} == {"restarting"}
        assert all("retry-after" in answer.headers for answer in answers)
    until(lambda: server.get("/readyz").status == 200)  # benchmarks/server_load.py measures how soon
    until(lambda: server.get("/healthz").status == 200)
    assert server.worker() != first
    assert server.metric("restarts_total") >= 1


def test_a_worker_that_was_ready_is_restarted_at_once_and_one_that_never_was_after_growing_delays(monkeypatch):
    """D8: the delays were counted for every worker that died within 10 s, so that the fourth kill took 3 s more."""
    delays, lives = [], [[], [], [], [], [{"models": []}], [{"models": []}], []]

    class Worker:
        def __init__(self, messages):
            self.messages = messages

        async def receive(self):
            if not self.messages:
                raise EOFError
            return [self.messages.pop()]

        async def wait_killed(self):
            pass

    async def supervise():
        client = WorkerClient({}, ServerMetrics())

        async def spawn():
            client.is_closing = not lives
            return Worker(lives.pop(0) if lives else [])

        async def sleep(seconds):
            delays.append(seconds)

        monkeypatch.setattr(client, "_spawn", spawn)
        monkeypatch.setattr("dragoman.server.worker_client.asyncio.sleep", sleep)
        client.is_ready = True
        await client._supervise(Worker([{"models": []}]))

    asyncio.run(supervise())
    assert delays == [0.0, 0.2, 1.0, 3.0, 3.0, 0.0, 0.0, 0.2]


def test_a_stopping_server_answers_the_requests_that_it_has_accepted(start, run):
    server = start(run)
    kept = server.connection()
    assert asked(kept) == (200, None)
    with ThreadPoolExecutor(8) as pool, server.paused():
        inside = [pool.submit(server.post, "/v1/translate", {"text": "a b c"}) for _ in range(8)]
        until(lambda: server.metric("waiting ") == 8)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: asked(kept) == (503, "close"))
        os.kill(server.worker(), signal.SIGCONT)
        assert [each.result().status for each in inside] == [200] * 8
    assert server.process.wait(120) == 0
    with pytest.raises(ConnectionRefusedError):
        server.get("/readyz")


def test_a_connection_that_waits_when_the_server_stops_is_accepted_and_later_ones_are_refused(monkeypatch):
    """D9: it was reset if it came just before the listening socket was closed."""
    made = []

    class Protocol(asyncio.Protocol):
        def __init__(self, **_):
            pass

        def connection_made(self, transport):
            made.append(transport)

    async def stop():
        listen_socket = bind_socket("127.0.0.1", 0)
        server = _DrainingServer(SimpleNamespace(http_protocol_class=Protocol), None, None, listen_socket)
        server.lifespan = SimpleNamespace(state={})
        server.servers = [await asyncio.get_running_loop().create_server(Protocol, sock=listen_socket)]
        with socket.create_connection(listen_socket.getsockname()):  # nothing was awaited since: it is not accepted
            address = listen_socket.getsockname()
            await server.shutdown()
            assert len(made) == 1
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)

    async def finish(self, sockets=None):
        pass

    monkeypatch.setattr(uvicorn.Server, "shutdown", finish)
    asyncio.run(stop())


def asked(connection):
    """Ask whether requests are welcome; return the status, and whether the connection goes on."""
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("connection")


def test_the_worker_ends_when_the_http_process_is_killed(hurried):
    worker = hurried.worker()
    hurried.process.kill()
    until(lambda: not is_running(worker))


def is_running(process):
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_only_complete_new_weights_are_loaded_and_no_request_fails_meanwhile(start, own_run, run):
    """A checkpoint that is half there is passed over; one that is whole is taken, and no request fails meanwhile."""
    (own_run / "model.safetensors").unlink()
    steps = sorted((own_run / "checkpoints").iterdir())
    newest = steps[-1].rename(own_run / "newest")
    server = start(own_run)
    served = lambda: server.get("/v1/info").json()["models"][0]["weights"]  # noqa: E731
    assert served() == f"checkpoints/{steps[-2].name}"
    statuses, stop = [], threading.Event()

    def keep_asking():
        while not stop.is_set():
            statuses.append(server.post("/v1/translate", {"text": "a b c"}).status)

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(keep_asking) for _ in range(2)]
        half = own_run / "checkpoints" / "000999999"  # newer than all others
        half.mkdir()
        shutil.copy(newest / "model.safetensors", half)
        newest.rename(steps[-1])
        until(lambda: served() == f"checkpoints/{steps[-1].name}")
        os.replace(shutil.copy(run / "model.safetensors", own_run / "new"), own_run / "model.safetensors")  # noqa: PTH105
        until(lambda: served() == "model.safetensors")
        stop.set()
        [each.result() for each in asking]
    assert set(statuses) == {200}
    assert server.translate("a b c d") == dragoman.load(run).translate("a b c d")
    assert server.metric("reloads_total") == 2
    assert server.stop() == 0


@pytest.mark.long
def test_the_worker_is_restarted_a_hundred_times(server):
    for _ in range(100):
        os.kill(server.worker(), signal.SIGKILL)
        until(lambda: server.get("/readyz").status == 503)
        until(lambda: server.get("/healthz").status == 200)
    assert server.translate("a b")


@pytest.mark.long
def test_twenty_restarts_under_load_lose_no_request(start, run):
    """Each client opens a connection for each request; one that was accepted must be answered."""
    for _ in range(20):
        server = start(run)
        lost, answered, stop = [], [], threading.Event()

        def keep_asking(server=server, lost=lost, answered=answered, stop=stop):
            while not stop.is_set():
                try:
                    answered.append(server.post("/v1/translate", {"text": "a b c"}).status)
                except ConnectionRefusedError:
                    return
                except OSError as error:
                    lost.append(error)

        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(keep_asking) for _ in range(8)]
            until(lambda answered=answered: len(answered) > 40)
            assert server.stop() == 0
            stop.set()
            [each.result() for each in asking]
        assert not lost
        assert set(answered) == {200}
