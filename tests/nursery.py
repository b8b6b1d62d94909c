"""A process that has imported all it needs and forks a `dragoman` for each request that it reads: real processes to
kill and to send signals to, several a second instead of one in several seconds.

A request is a JSON object on a line; each is answered by one number. `{"wait": 123}` waits for a process. All others
start one: `arguments` of the program, `err` the file for its messages, and, where wanted, `pause` [stage, how often to
pass it first], to stop there for good after making the file err + ".paused" (a stage of saving a checkpoint, or
"prepare"); `file_limit`, the size no file may exceed;
`folder`, where to be; `unset`, names to take out of the environment, and `set`, what to add to it; `network`, a file
for the attempts to reach other machines, without whom the process then runs; `input` and `out`, files for the standard
streams, and `closed`, numbers of streams that are closed.
"""

import ctypes
import fcntl
import json
import os
import resource
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch._dynamo  # noqa: F401  the optimiser imports it when it is first used

import dragoman.__main__
import dragoman.cli.display
import dragoman.cli.main
import dragoman.cli.signals
import dragoman.figures
import dragoman.training.trainer
from dragoman import checkpoints


def pause_at(stage: str, passes: int, marker: Path) -> None:
    """Stop for good before preparing the data or in the middle of saving; a test that waits for the marker ends it."""
    passed = 0
    prepare_data = dragoman.training.planning.prepare_data

    def between(here: str) -> None:
        nonlocal passed
        passed += here == stage
        if passed > passes:
            marker.touch()
            time.sleep(600)

    def prepare_after_hook(*arguments: Any) -> Any:
        between("prepare")
        return prepare_data(*arguments)

    checkpoints.save_hook = between
    dragoman.training.planning.prepare_data = prepare_after_hook


def leave_the_network(record: Path) -> None:
    """Record every attempt to reach an address, and go where there is none but loopback, if the kernel permits it."""

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith("socket.") and event.rpartition(".")[2] in ("connect", "getaddrinfo", "sendto"):
            address = arguments[1] if event != "socket.getaddrinfo" else arguments[:2]
            if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
                with record.open("a") as file:
                    print(event, address, file=file)

    sys.addaudithook(hear)
    new_user, new_network = 0x10000000, 0x40000000
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    if unshare and (unshare(new_network) == 0 or unshare(new_user | new_network) == 0):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def become(request: dict[str, Any]) -> None:
    """Turn this process into the program that was asked for."""
    err = os.open(request["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    out = os.open(request["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if "out" in request else err
    for stream, target in ((0, os.open(request.get("input", os.devnull), os.O_RDONLY)), (1, out), (2, err)):
        os.dup2(target, stream)
    for stream in request.get("closed", []):
        os.close(stream)
        setattr(sys, ("stdin", "stdout", "stderr")[stream], None)  # as Python does when it starts
    if "pause" in request:
        pause_at(*request["pause"], marker=Path(request["err"] + ".paused"))
    if "file_limit" in request:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"], request["file_limit"]))
    os.chdir(request.get("folder", "."))
    for name in request.get("unset", []):
        os.environ.pop(name, None)
    os.environ.update(request.get("set", {}))
    tempfile.tempdir = None  # found anew
    if "network" in request:
        leave_the_network(Path(request["network"]))
    sys.argv = ["dragoman", *request["arguments"]]
    dragoman.__main__.main()


def answer(request: dict[str, Any]) -> int:
    """Wait for a process and return its exit code, or start one and return its number."""
    if "wait" in request:
        return os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
    number = os.fork()
    if number == 0:
        try:
            become(request)
        except SystemExit as left:
            sys.stdout.flush()
            os._exit(left.code if isinstance(left.code, int) else 1)
        except BaseException:
            import traceback

            traceback.print_exc()
        os._exit(1)
    return number


if __name__ == "__main__":
    for line in sys.stdin:
        print(answer(json.loads(line)), flush=True)
