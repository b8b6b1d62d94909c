"""Runs one server: the listening socket, the worker, the application, uvicorn, and a shutdown that loses no request."""

import asyncio
import gc
import ipaddress
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import uvicorn

from dragoman.errors import UserError
from dragoman.processes import available_cores
from dragoman.server.access import AccessPolicy
from dragoman.server.app import build_app, route_limits
from dragoman.server.connections import MAX_SURPLUS
from dragoman.server.limits import Limits
from dragoman.server.metrics import resident_memory_bytes
from dragoman.server.middleware import GuardMiddleware
from dragoman.server.protocol import Connection
from dragoman.server.service import TranslationService
from dragoman.server.uploads import UploadFolder
from dragoman.server.worker_client import WorkerClient

_BACKLOG = 4096  # connections that the system holds until they are accepted
_ACCEPTED_PER_TURN = 16  # of the event loop: in between, open connections are served
_OTHER_FILES = 64  # open files that are not connections
_SEND_BUFFER_BYTES = 256 << 10  # that the system keeps for a client that does not read; its default is megabytes
_DRAIN_GRACE_SECONDS = 0.3  # in which clients with an open connection may still send a request


@dataclass(frozen=True)
class ServerConfig:
    """What to serve, where, and to whom."""

    runs: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    languages: dict[str, tuple[str, str]] = field(default_factory=dict)
    host_names: tuple[str, ...] = ()  # of this machine, besides localhost
    behind_proxy: bool = False
    threads: int = 0  # that decode; 0: one per core
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)
    precision: str | None = None  # of the weights; None: each recipe's

    def worker_config(self) -> dict[str, Any]:
        """Return the part that the worker needs."""
        return {
            "runs": self.runs,
            "languages": self.languages,
            "threads": self.threads or max(2, available_cores()),
            "device": self.device,
            "precision": self.precision,
            "limits": vars(self.limits),
        }


class StoppableServer(uvicorn.Server):
    """A uvicorn server that calls `stop` on SIGTERM and SIGINT and exits with code 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Call `stop` on SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen with the full backlog; uvicorn's setting is also how many are accepted in one turn."""
        await super().startup(sockets)
        for listen_socket in sockets or ():
            listen_socket.listen(_BACKLOG)

    def stop(self) -> None:
        """Stop at once, without waiting for requests."""
        self.should_exit = self.force_exit = True


class _DrainingServer(StoppableServer):
    """A server that answers all accepted requests before it stops."""

    def __init__(
        self, config: uvicorn.Config, guard: GuardMiddleware, service: TranslationService, listen_socket: socket.socket
    ) -> None:
        super().__init__(config)
        self.guard, self.service, self.listen_socket = guard, service, listen_socket

    def stop(self) -> None:
        """Stop after all accepted requests are answered; a second call stops at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.guard.connections.is_draining = self.service.is_draining = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections in the backlog, listen no longer, and close after a time for last requests.

        The system resets what is in the backlog of a socket that is closed, and uvicorn closes connections that have
        not sent a request yet, so nothing may be accepted after the time for last requests has begun.
        """
        accepting = self._accept_backlog()
        for server in self.servers:
            server.close()
        await asyncio.gather(*accepting, asyncio.sleep(_DRAIN_GRACE_SECONDS), return_exceptions=True)
        await super().shutdown(sockets)

    def _accept_backlog(self) -> list[asyncio.Task[Any]]:
        """Accept all connections that wait, without a turn of the event loop in which others could come."""
        loop, accepting = asyncio.get_running_loop(), []
        with suppress(OSError):  # none is left
            while True:
                connection, _ = self.listen_socket.accept()
                connection.setblocking(False)
                accepting.append(loop.create_task(loop.connect_accepted_socket(self._build_connection, connection)))
        return accepting

    def _build_connection(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        return cast(
            asyncio.Protocol,
            protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state),
        )


async def serve(
    config: ServerConfig, listen_socket: socket.socket, on_ready: Callable[[TranslationService], None]
) -> None:
    """Serve until the process is asked to stop; call `on_ready` when requests are accepted."""
    limits, access = fit_connections(config.limits), AccessPolicy(config.token, config.host_names)
    guard = GuardMiddleware(_unbuilt_app, limits, access, routes=route_limits(limits), behind_proxy=config.behind_proxy)
    uploads = UploadFolder(limits)
    worker = WorkerClient({**config.worker_config(), "upload_folder": str(uploads.path)}, guard.metrics)
    service = TranslationService(worker, guard.admission, limits, guard.metrics, uploads)
    guard.app = build_app(service, access)
    guard.on_deadline = worker.schedule_hang_check
    guard.metrics.gauges |= {
        "waiting": lambda: guard.admission.requests,
        "waiting_work": lambda: guard.admission.work,
        "connections": lambda: len(guard.connections),
        "worker_ready": lambda: float(worker.is_ready),
        "memory_bytes": resident_memory_bytes,
        "worker_memory_bytes": worker.memory_bytes,
    }
    try:
        await _serve_until_stopped(guard, worker, service, listen_socket, on_ready)
    finally:
        uploads.remove()


async def _serve_until_stopped(
    guard: GuardMiddleware,
    worker: WorkerClient,
    service: TranslationService,
    listen_socket: socket.socket,
    on_ready: Callable[[TranslationService], None],
) -> None:
    limits = service.limits
    await worker.start()
    server = _DrainingServer(uvicorn_config(guard, limits), guard, service, listen_socket)
    timeouts = asyncio.create_task(guard.connections.enforce_timeouts_forever())
    gc.freeze()  # what has been imported and built stays: the collector, which stops everything, need not look at it
    on_ready(service)
    try:
        await server.serve(sockets=[listen_socket])
    finally:
        timeouts.cancel()
        await worker.stop()


async def _unbuilt_app(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("the application is built before the first request")


def fit_connections(limits: Limits) -> Limits:
    """Allow this process as many open files as its connections need; return limits that fit what the system allows."""
    needed = limits.connections + MAX_SURPLUS + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            return replace(limits, connections=max(1, soft - MAX_SURPLUS - _OTHER_FILES))
    return limits


def uvicorn_config(guard: GuardMiddleware, limits: Limits) -> uvicorn.Config:
    """Return the uvicorn config; the middleware and its connections enforce the limits."""
    return uvicorn.Config(
        guard,
        http=partial(Connection, guard.connections),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # the middleware logs what fails; uvicorn would also report streams that a shutdown ends
        access_log=False,
        server_header=False,
        backlog=_ACCEPTED_PER_TURN,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(max(limits.deadline_seconds, limits.audio_deadline_seconds))),
    )


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise UserError if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listen_socket = socket.socket(family, kind, protocol)
        listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listen_socket.bind(address)
        listen_socket.listen(_BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"Cannot listen on {host}, port {port}: {reason}. Choose another --port or --host.") from None
    except UnicodeError:
        raise UserError(f"--host {host}: not a valid host name.") from None
    listen_socket.setblocking(False)
    return listen_socket


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
