"""Contenders in processes of their own: started together, asked in turn, idle while another works.

One process each, because threads, allocator settings and memory would otherwise carry over from one contender to the
next. A worker waits on its pipe; when the pipe closes, however the parent ended, it leaves.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from dragoman.errors import UserError

_START_METHOD = "spawn"  # an engine shares neither threads nor allocator settings with the process that starts it
_EXIT_SECONDS = 5.0  # that an idle worker has for leaving
OWN_PREFIX = "dragoman"  # how the names of our own contenders begin

OnBenchmarkNotice = Callable[[str], None]


class _TurnTaker(Protocol):
    """Whatever is measured: made in its worker, then asked for turns."""

    def run_turn(self, *arguments: Any) -> Any:
        """Do some work and say how long it took."""
        ...


EngineFactory = tuple[Callable[..., _TurnTaker], tuple[Any, ...]]  # a class and its arguments, to be sent to a worker


class EngineError(Exception):
    """A contender raised an exception in its worker."""


class EngineProcess:
    """A contender in a process of its own, seen from outside."""

    def __init__(self, name: str, make: EngineFactory, pause_seconds: float = 0.0) -> None:
        context: Any = multiprocessing.get_context(_START_METHOD)
        self.name, self.pause_seconds = name, pause_seconds
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve_turns, args=(theirs, *make), daemon=True)
        with _ignore_interrupts():
            self.process.start()
        theirs.close()

    def run_turn(self, *arguments: Any) -> Any:
        """Let the contender have a turn and return what it says."""
        time.sleep(self.pause_seconds)
        with suppress(BrokenPipeError):  # `answer` says what happened
            self.pipe.send(arguments)
        return self.receive()

    def receive(self) -> Any:
        """Wait for what the worker says."""
        try:
            fine, said = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(_EXIT_SECONDS)
            raise UserError(
                f"The process of {self.name} ended with code {self.process.exitcode} while it was measured; -9 means "
                "as a rule that memory ran out. Choose a smaller --size."
            ) from None
        if not fine:
            raise EngineError(f"{self.name} failed in its worker:\n{said}")
        return said

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.pipe.close()
        self.process.terminate()
        self.process.join(_EXIT_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C for a moment: a process that is started meanwhile ignores it for good, and we are to end it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def start_engines(
    factories: Mapping[str, EngineFactory], on_notice: OnBenchmarkNotice, pause_seconds: float = 0.0
) -> Iterator[dict[str, EngineProcess]]:
    """Start a worker for each contender and end them all afterwards; a rival that cannot start is left out."""
    workers: list[EngineProcess] = []
    try:
        workers.extend(EngineProcess(name, make, pause_seconds) for name, make in factories.items())
        yield {worker.name: worker for worker in workers if _is_ready(worker, on_notice)}
    finally:
        for worker in workers:
            worker.stop()


def _is_ready(worker: EngineProcess, on_notice: OnBenchmarkNotice) -> bool:
    """Wait until a contender is made; without us there is nothing to compare, without a rival there is."""
    try:
        worker.receive()
    except EngineError as failure:
        if worker.name.startswith(OWN_PREFIX):
            raise
        on_notice(f"{worker.name} is left out: {str(failure).strip().splitlines()[-1]}")
        return False
    return True


def _serve_turns(pipe: Connection, make: Callable[..., _TurnTaker], arguments: tuple[Any, ...]) -> None:
    """Be a worker: make the contender, then answer questions until the pipe closes."""
    os.dup2(sys.__stderr__.fileno() if sys.__stderr__ else 2, 1)  # the standard output is the parent's
    warnings.simplefilter("ignore")
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            contender = make(*arguments)
            pipe.send((True, None))
            while True:
                pipe.send((True, contender.run_turn(*pipe.recv())))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception:
            pipe.send((False, traceback.format_exc()))


def peak_memory_bytes() -> int:
    """Return the most memory, in bytes, that this process ever had resident."""
    status = Path("/proc/self/status")
    # What `getrusage` says is inherited from the process that started this one: a parent's peak would be ours.
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used << 10
