"""Engines in their own processes: started together, measured in turn, idle while another one works.

Threads, allocator settings and memory would otherwise carry over from one engine to the next. This module is also the
program of such a process. It imports no engine: each process imports only its own.

An engine is a class whose arguments are JSON values, and so are the arguments and the results of its turns.
"""

import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from dragoman.errors import UserError
from dragoman.processes import ChildProcess, MessageSocket, parent_socket
from dragoman.streams import protect_streams

_STDERR = 2  # standard output is for the report
OWN_PREFIX = "dragoman"  # of the names of Dragoman's own engines

OnBenchmarkNotice = Callable[[str], None]


EngineSpec = dict[str, Any]  # the module and the name of a class, and its arguments


def engine_spec(engine: type, *arguments: Any) -> EngineSpec:
    """Describe an engine, so that another process can construct it."""
    return {"module": engine.__module__, "name": engine.__name__, "arguments": arguments}


def build_engine(spec: EngineSpec) -> Any:
    """Construct the engine that was described."""
    return getattr(import_module(spec["module"]), spec["name"])(*spec["arguments"])


class _TurnTaker(Protocol):
    """An engine that is measured turn by turn."""

    def run_turn(self, *arguments: Any) -> Any:
        """Do some work and return its results: a JSON value, or a dataclass, which arrives as a dictionary."""
        ...


class EngineError(Exception):
    """An engine raised an exception in its process."""


class EngineProcess:
    """A handle of an engine in another process."""

    def __init__(self, name: str, spec: EngineSpec, pause_seconds: float = 0.0) -> None:
        self.name, self.pause_seconds = name, pause_seconds
        self.child = ChildProcess("dragoman.bench.workers", stdout=_STDERR)
        self._send(spec)

    def run_turn(self, *arguments: Any) -> Any:
        """Let the engine work and return its results."""
        time.sleep(self.pause_seconds)
        self._send(arguments)
        return self.receive()

    def receive(self) -> Any:
        """Wait for the results of the engine; raise EngineError if it failed."""
        try:
            reply = self.child.channel.receive()
        except (EOFError, OSError):
            raise UserError(
                f"The {self.name} process exited with code {self.child.stop()} during the measurement; -9 usually "
                "means that it ran out of memory. Choose a smaller --size."
            ) from None
        if "error" in reply:
            raise EngineError(f"{self.name} failed:\n{reply['error']}")
        return reply["result"]

    def stop(self) -> None:
        """End the process, even in the middle of a turn."""
        self.child.process.terminate()
        self.child.stop()

    def _send(self, content: Any) -> None:
        with suppress(OSError):  # if the process has ended, `receive` reports it
            self.child.channel.send(content)


@contextmanager
def start_engines(
    specs: Mapping[str, EngineSpec], on_notice: OnBenchmarkNotice, pause_seconds: float = 0.0
) -> Iterator[dict[str, EngineProcess]]:
    """Start a process per engine and end all of them afterwards; leave out other engines that cannot start."""
    engines: list[EngineProcess] = []
    try:
        engines.extend(EngineProcess(name, spec, pause_seconds) for name, spec in specs.items())
        yield {engine.name: engine for engine in engines if _is_ready(engine, on_notice)}
    finally:
        for engine in engines:
            engine.stop()


def _is_ready(engine: EngineProcess, on_notice: OnBenchmarkNotice) -> bool:
    try:
        engine.receive()
    except EngineError as error:
        if engine.name.startswith(OWN_PREFIX):
            raise
        on_notice(f"{engine.name} is skipped: {str(error).strip().splitlines()[-1]}")
        return False
    return True


def serve_turns(channel: MessageSocket) -> None:
    """Construct the engine of the first message, then run a turn per message until the channel is closed."""
    warnings.simplefilter("ignore")
    with suppress(EOFError, OSError):
        try:
            engine: _TurnTaker = build_engine(channel.receive())
            channel.send({"result": None})
            while True:
                result = engine.run_turn(*channel.receive())
                channel.send({"result": vars(result) if is_dataclass(result) else result})
        except (EOFError, OSError):
            raise
        except Exception:
            channel.send({"error": traceback.format_exc()})


def peak_memory_bytes() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status")
    # `getrusage` includes the peak of the process that started this one.
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used << 10


if __name__ == "__main__":
    protect_streams()
    serve_turns(parent_socket())
    os._exit(0)  # libraries may have left threads behind
