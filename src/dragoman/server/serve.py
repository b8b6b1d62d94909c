"""One server from its start to its end: socket, worker, guard, uvicorn; and how it leaves without dropping anyone."""

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import uvicorn

from dragoman.errors import UserError
from dragoman.server.access import AccessPolicy
from dragoman.server.app import DirectRouter, build_app
from dragoman.server.connections import Connection, sweep_connections
from dragoman.server.limits import Limits
from dragoman.server.metrics import resident_memory_bytes
from dragoman.server.middleware import GuardMiddleware
from dragoman.server.service import TranslationService
from dragoman.server.shutdown import StoppableServer
from dragoman.server.worker_client import WorkerClient

logger = logging.getLogger("dragoman.server")
_BACKLOG = 1024
_SEND_BUFFER_BYTES = 256 << 10  # bytes that the system keeps for a client that does not read; otherwise megabytes
_DRAIN_GRACE_SECONDS = 0.3  # in which clients with an open connection may still ask, and hear that it closes


@dataclass(frozen=True)
class ServerConfig:
    """What to serve, where, and to whom."""

    runs: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    languages: dict[str, tuple[str, str]] = field(default_factory=dict)
    host_names: tuple[str, ...] = ()  # that this machine is called by
    behind_proxy: bool = False
    threads: int = 0  # 0: one a core
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)
    precision: str | None = None  # of the weights; None: as each recipe says

    def worker_config(self) -> dict[str, Any]:
        """Return what the worker has to know."""
        threads = self.threads or max(2, len(os.sched_getaffinity(0)))
        return {
            "runs": self.runs, "languages": self.languages, "threads": threads, "device": self.device,
            "precision": self.precision, "limits": vars(self.limits),
        }  # fmt: skip


class DrainingServer(StoppableServer):
    """Hears everyone out before it leaves."""

    def __init__(
        self, config: uvicorn.Config, guard: GuardMiddleware, service: TranslationService, listen_socket: socket.socket
    ) -> None:
        super().__init__(config)
        self.guard, self.service, self.listen_socket = guard, service, listen_socket

    def stop(self) -> None:
        """Begin to leave; asked twice, leave at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.guard.draining = self.service.is_draining = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take in whoever is at the door, let open connections have their last answer, then close."""
        self.listen_socket.listen(0)
        await asyncio.sleep(_DRAIN_GRACE_SECONDS)
        await super().shutdown(sockets)


async def serve(
    config: ServerConfig, listen_socket: socket.socket, on_ready: Callable[[TranslationService], None]
) -> None:
    """Serve until asked to stop; `opened` is called when requests are welcome."""
    guard = GuardMiddleware(
        _unbuilt_app, config.limits, AccessPolicy(config.token, config.host_names), behind_proxy=config.behind_proxy
    )
    keeper = WorkerClient(config.worker_config(), guard.metrics)
    service = TranslationService(keeper, guard.admission, config.limits, guard.metrics)
    guard.app = DirectRouter(build_app(service, key_required=config.token is not None))
    guard.on_deadline = keeper.schedule_hang_check
    await keeper.start()
    server = DrainingServer(uvicorn_config(guard, config.limits), guard, service, listen_socket)
    _register_gauges(guard, service, server)
    sweeping = asyncio.create_task(_sweep_server(server, config.limits))
    on_ready(service)
    try:
        await server.serve(sockets=[listen_socket])
    finally:
        sweeping.cancel()
        await keeper.stop()


def uvicorn_config(guard: GuardMiddleware, limits: Limits) -> uvicorn.Config:
    """Return how uvicorn is to work: parse and write, while all else is ours."""
    turned_away: set[Connection] = set()
    config = uvicorn.Config(
        guard, http=partial(Connection, limits=limits, rejected=turned_away), ws="none", lifespan="off",  # type: ignore[arg-type]
        log_config=None, access_log=False, server_header=False, backlog=_BACKLOG, proxy_headers=False,
        timeout_keep_alive=max(1, round(limits.idle_seconds)),
        timeout_graceful_shutdown=max(1, round(limits.deadline_seconds)),
    )  # fmt: skip
    config.turned_away = turned_away  # type: ignore[attr-defined]
    return config


async def _sweep_server(server: DrainingServer, limits: Limits) -> None:
    """Watch the clock for all connections of a server."""
    turned_away: set[Connection] = server.config.turned_away  # type: ignore[attr-defined]
    await sweep_connections(server.server_state.connections, turned_away, limits)


async def _unbuilt_app(_scope: Any, _receive: Any, _send: Any) -> None:
    """Stand in for the application until it is built."""
    raise AssertionError("the application is built before the first request")


def _register_gauges(guard: GuardMiddleware, service: TranslationService, server: DrainingServer) -> None:
    """Name the numbers that are read when someone asks for them."""
    guard.metrics.gauges |= {
        "waiting": lambda: guard.admission.requests,
        "waiting_characters": lambda: guard.admission.characters,
        "connections": lambda: len(server.server_state.connections),
        "worker_ready": lambda: float(service.worker.is_ready),
        "memory_bytes": resident_memory_bytes,
        "worker_memory_bytes": service.worker.memory_bytes,
    }


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or say why it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"Cannot listen on {host}, port {port}: {why}. Choose another --port or --host.") from None
    except UnicodeError:
        raise UserError(f"--host {host}: no possible name of a host.") from None
    listening.setblocking(False)
    return listening


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
