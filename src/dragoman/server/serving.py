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
from dragoman.server.app import Switchboard, build
from dragoman.server.connections import Connection, keep_sweeping
from dragoman.server.doors import Doors
from dragoman.server.guard import Guard
from dragoman.server.keeper import Keeper
from dragoman.server.leaving import Leaving
from dragoman.server.limits import Limits
from dragoman.server.metrics import memory_of
from dragoman.server.service import Service

LOG = logging.getLogger("dragoman.server")
BACKLOG = 1024
SEND_BUFFER = 256 << 10  # bytes that the system keeps for a client that does not read; otherwise megabytes
LAST_CALL_SECONDS = 0.3  # in which clients with an open connection may still ask, and hear that it closes


@dataclass(frozen=True)
class Plan:
    """What to serve, where, and to whom."""

    runs: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    languages: dict[str, tuple[str, str]] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # that this machine is called by
    behind_proxy: bool = False
    threads: int = 0  # 0: one a core
    device: str = "auto"
    limits: Limits = field(default_factory=Limits)
    precision: str | None = None  # of the weights; None: as each recipe says

    def for_worker(self) -> dict[str, Any]:
        """Return what the worker has to know."""
        threads = self.threads or max(2, len(os.sched_getaffinity(0)))
        return {
            "runs": self.runs, "languages": self.languages, "threads": threads, "device": self.device,
            "precision": self.precision, "limits": vars(self.limits),
        }  # fmt: skip


class Server(Leaving):
    """Hears everyone out before it leaves."""

    def __init__(self, config: uvicorn.Config, guard: Guard, service: Service, listening: socket.socket) -> None:
        super().__init__(config)
        self.guard, self.service, self.listening = guard, service, listening

    def stop(self) -> None:
        """Begin to leave; asked twice, leave at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.guard.draining = self.service.draining = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take in whoever is at the door, let open connections have their last answer, then close."""
        self.listening.listen(0)
        await asyncio.sleep(LAST_CALL_SECONDS)
        await super().shutdown(sockets)


async def serve(plan: Plan, listening: socket.socket, opened: Callable[[Service], None]) -> None:
    """Serve until asked to stop; `opened` is called when requests are welcome."""
    guard = Guard(refuse_all, plan.limits, Doors(plan.token, plan.names), behind_proxy=plan.behind_proxy)
    keeper = Keeper(plan.for_worker(), guard.metrics)
    service = Service(keeper, guard.admission, plan.limits, guard.metrics)
    guard.app = Switchboard(build(service, key_required=plan.token is not None))
    guard.overdue = keeper.suspect
    await keeper.start()
    server = Server(configured(guard, plan.limits), guard, service, listening)
    measure(guard, service, server)
    sweeping = asyncio.create_task(server_sweeping(server, plan.limits))
    opened(service)
    try:
        await server.serve(sockets=[listening])
    finally:
        sweeping.cancel()
        await keeper.stop()


def configured(guard: Guard, limits: Limits) -> uvicorn.Config:
    """Return how uvicorn is to work: parse and write, while all else is ours."""
    turned_away: set[Connection] = set()
    config = uvicorn.Config(
        guard, http=partial(Connection, limits=limits, turned_away=turned_away), ws="none", lifespan="off",  # type: ignore[arg-type]
        log_config=None, access_log=False, server_header=False, backlog=BACKLOG, proxy_headers=False,
        timeout_keep_alive=max(1, round(limits.idle_seconds)),
        timeout_graceful_shutdown=max(1, round(limits.deadline_seconds)),
    )  # fmt: skip
    config.turned_away = turned_away  # type: ignore[attr-defined]
    return config


async def server_sweeping(server: Server, limits: Limits) -> None:
    """Watch the clock for all connections of a server."""
    turned_away: set[Connection] = server.config.turned_away  # type: ignore[attr-defined]
    await keep_sweeping(server.server_state.connections, turned_away, limits)


async def refuse_all(_scope: Any, _receive: Any, _send: Any) -> None:
    """Stand in for the application until it is built."""
    raise AssertionError("the application is built before the first request")


def measure(guard: Guard, service: Service, server: Server) -> None:
    """Name the numbers that are read when someone asks for them."""
    guard.metrics.gauges |= {
        "waiting": lambda: guard.admission.requests,
        "waiting_characters": lambda: guard.admission.characters,
        "connections": lambda: len(server.server_state.connections),
        "worker_ready": lambda: float(service.keeper.ready),
        "memory_bytes": memory_of,
        "worker_memory_bytes": service.keeper.memory,
    }


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or say why it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        listening.bind(address)
        listening.listen(BACKLOG)
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
