"""Real servers for the tests of the service: processes of their own, on free ports of this machine."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.recipe import Recipe


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A running server, and ways to talk to it."""

    process: subprocess.Popen[str]
    port: int
    log: Path
    token: str | None = None
    opened: list[http.client.HTTPConnection] = field(default_factory=list)

    def connection(self, timeout: float = 60) -> http.client.HTTPConnection:
        self.opened.append(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout))
        return self.opened[-1]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request over a connection of its own; anything but bytes is sent as JSON."""
        connection = self.connection()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body, named = json.dumps(body).encode(), {"content-type": "application/json", **named}
        if self.token and "authorization" not in named:
            named["authorization"] = f"Bearer {self.token}"
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        connection.close()
        return found

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.ask("POST", path, body, **headers)

    def translate(self, text: str) -> str:
        return self.post("/v1/translate", {"text": text}).json()["translations"][0][0]["text"]

    def raw(self, content: bytes, timeout: float = 30) -> socket.socket:
        """Open a connection and send bytes as they are."""
        own = socket.create_connection(("127.0.0.1", self.port), timeout)
        own.sendall(content)
        return own

    def metric(self, name: str) -> float:
        lines = self.get("/metrics").body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"dragoman_{name}"))

    def worker(self) -> int:
        """Return the number of the worker's process."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        assert len(children) == 1, "one worker"
        return int(children[0])

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the worker: requests wait meanwhile."""
        worker = self.worker()
        os.kill(worker, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)

    def memory(self) -> int:
        """Return the resident bytes of the HTTP server."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Start servers: start(run, "--option", …); all of them end with the tests."""
    running: list[Served] = []

    def started(*arguments: object, token: str | None = None, **environment: str) -> Served:
        log = tmp_path_factory.mktemp("server") / "log"
        more = {"OMP_NUM_THREADS": "1", **environment, **({"DRAGOMAN_TOKEN": token} if token else {})}
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "dragoman", "serve", *map(str, arguments), "--port", "0"],
                stdout=subprocess.PIPE, stderr=file, text=True, env={**os.environ, **more},
            )  # fmt: skip
        assert process.stdout, "a pipe"
        address = process.stdout.readline()
        assert address.startswith("http://127.0.0.1:"), log.read_text()
        running.append(Served(process, int(address.strip().rstrip("/").rpartition(":")[2]), log, token))
        return running[-1]

    yield started
    for server in running:
        for connection in server.opened:
            connection.close()
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="session")
def run(toy_recipe: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run called toy that has learned enough to give each sentence another translation."""
    learned = (
        "model.width=32", "model.inner_width=64", "model.dropout=0.0", "training.steps=300", "training.rate=0.01",
        "training.batch_tokens=512", "training.warmup=30", "training.validate_every=1000", "training.average=1",
        "training.checkpoint_every=100", "training.label_smoothing=0.0", "decoding.extra_length=8",
    )  # fmt: skip
    return dragoman.train(toy_recipe(tmp_path_factory.mktemp("served") / "toy", *learned)).folder


@pytest.fixture(scope="session")
def server(start: Callable[..., Served], run: Path) -> Served:
    """A server with a toy model from English into German and the default limits; tests do not stop it."""
    return start(run, "--languages", "toy=en:de", "--log-requests")


def limited(*limits: str) -> list[str]:
    """Return the options that set limits."""
    return [word for limit in limits for word in ("--limit", limit)]


@pytest.fixture(scope="session")
def small_server(start: Callable[..., Served], run: Path) -> Served:
    """A server with a short queue, and with times so long that a busy machine does not exceed them."""
    limits = limited(
        "queued_requests=4", "requests_per_client=2", "attention_tokens=20", "deadline_seconds=600", "body_seconds=600",
    )  # fmt: skip
    return start(run, "--languages", "toy=en:de", "--behind-proxy", *limits)


@pytest.fixture(scope="session")
def hasty_server(start: Callable[..., Served], run: Path) -> Served:
    """A server with short timeouts and few connections."""
    limits = limited(
        "header_seconds=0.5", "body_seconds=0.5", "idle_seconds=1", "write_seconds=0.5", "connections=24",
        "deadline_seconds=600",
    )  # fmt: skip
    return start(run, "--languages", "toy=en:de", *limits)
