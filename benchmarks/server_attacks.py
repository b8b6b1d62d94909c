"""What can one client do to the others? Latency of ordinary clients while somebody sends the most expensive requests.

    python benchmarks/server_attacks.py runs/quickstart --language-model tests/released/0.1.0/generate

The server is `dragoman serve` with default options. Ordinary clients, each with an address of its own in 127.0.0.0/8,
send a short sentence, wait, and send another. Beside each attack, which has one address and several connections, their
latency is compared with that right before and after it. Prints a table and writes one JSON record.
"""

import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from load_client import post

Record = dict[str, Any]
_ATTACKER = "127.0.99.1"
_LONG = 5000  # characters: the limit of a text
_PROSE = "The old man reads a very long book about the sea in the garden of his friend. "
_SENTENCES = [
    f"{who} {does} {what}."
    for who in ("A man", "The woman", "My brother", "The old teacher", "A dog")
    for does in ("sees", "buys", "finds", "likes")
    for what in ("a book", "the red house", "an apple", "the small car", "your mother")
]


def _maximum(**fields: Any) -> Record:
    return {"beam": 8, "n_best": 8, "details": True, "details_of": "all", **fields}


def _heads(number: int) -> list[list[Any]]:
    chosen = random.Random(number)
    return [["cross", chosen.randrange(2), chosen.randrange(2)], ["encoder", chosen.randrange(2), chosen.randrange(2)]]


# Each returns the path and the fields of the n-th request; "lm" stands for the name of the language model.
ATTACKS: dict[str, Callable[[int], tuple[str, Record]]] = {
    "letters": lambda _: ("/v1/translate", {"text": "x" * _LONG, "beam": 8, "n_best": 8, "details": True}),
    "letters, all details": lambda _: ("/v1/translate", _maximum(text="x" * _LONG)),
    "Chinese": lambda _: ("/v1/translate", _maximum(text="漢字の試験" * 1000)),
    "emoji": lambda _: ("/v1/translate", {"text": "😀" * _LONG, "beam": 8}),
    "one word": lambda n: ("/v1/translate", _maximum(text="".join(random.Random(n).choices("abcdefghij", k=_LONG)))),
    "short lines": lambda _: ("/v1/translate", {"text": "a\n" * (_LONG // 2)}),
    "short lines, 8 best": lambda _: ("/v1/translate", {"text": "a\n" * (_LONG // 2), "n_best": 8}),
    "prose, all details": lambda _: ("/v1/translate", _maximum(text=(_PROSE * 70)[:_LONG])),
    "32 texts": lambda _: ("/v1/translate", {"texts": [(_PROSE * 70)[:_LONG]] * 32}),
    "every option": lambda _: ("/v1/translate", _maximum(texts=["x" * _LONG] * 32, pictures=True)),
    "not split": lambda _: ("/v1/translate", _maximum(text=(_PROSE * 70)[:_LONG], split=False)),
    "prefix": lambda _: ("/v1/translate", _maximum(text="x" * _LONG, prefix=("Der alte Mann " * 400)[:_LONG])),
    "stream": lambda _: ("/v1/translate", {"text": "x" * _LONG, "beam": 8, "stream": True}),
    "sampling": lambda n: ("/v1/translate", {"model": "lm", "text": "The", "length": 2000, "n_best": 8, "seed": n}),
    "sampling, long prompt": lambda n: (
        "/v1/translate",
        {"model": "lm", "text": (_PROSE * 70)[:_LONG], "length": 2000, "n_best": 8, "seed": n, "top_p": 0.999},
    ),
    "HTML": lambda _: (
        "/translate",
        {"q": "<b>x</b><i>y" * 400, "source": "en", "target": "de", "format": "html", "alternatives": 7},
    ),
    "32 texts, other API": lambda _: (
        "/translate",
        {"q": [(_PROSE * 70)[:_LONG]] * 32, "source": "auto", "target": "de", "alternatives": 7},
    ),
    "detect": lambda _: ("/detect", {"q": "x" * _LONG}),
    "attention": lambda n: (
        "/v1/attention",
        {"text": (_PROSE * 9)[:380], "beam": 8, "trace": True, "ablate_heads": _heads(n)},
    ),
    "attention of checkpoints": lambda n: ("/v1/attention", {"text": _PROSE, "checkpoint": 100 * (1 + n % 9)}),
    "checkpoints": lambda _: ("GET /v1/checkpoints", {}),
}


def main(
    run: Annotated[Path, typer.Argument(help="Run directory of an English-German translator.")],
    language_model: Annotated[Path | None, typer.Option(help="Run directory of a language model.")] = None,
    clients: Annotated[int, typer.Option(help="Ordinary clients.")] = 16,
    pause: Annotated[float, typer.Option(help="Seconds between two requests of a client.")] = 0.05,
    connections: Annotated[int, typer.Option(help="Connections of the attacking client.")] = 4,
    seconds: Annotated[float, typer.Option(help="How long each measurement lasts.")] = 4.0,
    rounds: Annotated[int, typer.Option(help="Measurements of each attack, in turns.")] = 2,
    only: Annotated[list[str] | None, typer.Option(help="Only this attack; repeatable.")] = None,
    shared_address: Annotated[bool, typer.Option(help="All clients have the same address.")] = False,
    output: Annotated[Path, typer.Option(help="Where to write the record.")] = Path("server_attacks.json"),
    attack: Annotated[str, typer.Option(help="Used by this script itself: attack a server.")] = "",
) -> None:
    """Attack a server in several ways, and report how ordinary clients fare."""
    if attack:
        asyncio.run(attack_forever(**json.loads(attack)))
        return
    chosen = [name for name in ATTACKS if name in (only or ATTACKS) and (language_model or "sampling" not in name)]
    server = Server(run, language_model, connections, shared_address)
    try:
        record = asyncio.run(measure(server, chosen, clients=clients, pause=pause, seconds=seconds, rounds=rounds))
    finally:
        server.process.terminate()
        server.process.wait()
    facts = {"run": str(run), "cores": len(os.sched_getaffinity(0)), "machine": platform.processor()}
    settings = {"clients": clients, "pause": pause, "connections": connections, "seconds": seconds, "rounds": rounds}
    output.write_text(json.dumps({**facts, **settings, "attacks": record}, indent=2) + "\n", encoding="utf-8")


class Server:
    """A server in a process of its own, and whoever attacks it."""

    def __init__(self, run: Path, language_model: Path | None, connections: int, shared_address: bool) -> None:
        runs = [str(run), *([str(language_model)] if language_model else [])]
        command = [sys.executable, "-m", "dragoman", "serve", *runs, "--port", "0", "--languages", f"{run.name}=en:de"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout, "a pipe"
        address = self.process.stdout.readline().strip()
        if not address.startswith("http://127.0.0.1:"):
            raise SystemExit("The server did not start.")
        self.run, self.connections, self.shared_address = run, connections, shared_address
        self.port = int(address.rstrip("/").rpartition(":")[2])
        self.language_model = language_model.name if language_model else ""

    def attack(self, name: str) -> "subprocess.Popen[str]":
        """Start an attack in a process of its own, and wait until its first requests are on their way."""
        job = {"name": name, "port": self.port, "connections": self.connections, "model": self.language_model}
        job["address"] = None if self.shared_address else _ATTACKER
        command = [sys.executable, __file__, str(self.run), "--attack", json.dumps(job)]
        attacker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert attacker.stdout, "a pipe"
        attacker.stdout.readline()
        return attacker


# ---- ordinary clients


async def measure(
    server: Server, names: list[str], *, clients: int, pause: float, seconds: float, rounds: int
) -> dict[str, Record]:
    """Measure ordinary clients alone and beside each attack, in turns."""
    ordinary = Ordinary(server, clients, pause)
    await ordinary.latencies(2.0)  # warm up
    alone: dict[str, list[float]] = {name: [] for name in names}
    beside: dict[str, list[float]] = {name: [] for name in names}
    replies: dict[str, Counter[str]] = {name: Counter() for name in names}
    before = await ordinary.latencies(seconds / 2)
    for _ in range(rounds):
        for name in names:
            attacker = await asyncio.to_thread(server.attack, name)
            beside[name] += await ordinary.latencies(seconds)
            told = (await asyncio.to_thread(attacker.communicate, "stop\n"))[0]
            replies[name].update(json.loads(told.splitlines()[-1]))
            await asyncio.sleep(0.2)
            after = await ordinary.latencies(seconds / 2)
            alone[name] += before + after
            before = after
    record = {}
    for name in names:
        record[name] = row = compare(alone[name], beside[name]) | {"replies": dict(replies[name])}
        print_row(name, row)
    return record


class Ordinary:
    """Clients that translate short sentences; every reply must be a translation."""

    def __init__(self, server: Server, clients: int, pause: float) -> None:
        self.port, self.clients, self.pause, self.shared = server.port, clients, pause, server.shared_address
        self.requests = [post("/v1/translate", {"text": sentence}) for sentence in _SENTENCES]

    async def latencies(self, seconds: float) -> list[float]:
        """Return the latencies, in milliseconds, of all requests within so many seconds; infinite if one failed."""
        end_at = time.perf_counter() + seconds
        found: list[float] = []
        await asyncio.gather(*(self._one(number, end_at, found) for number in range(self.clients)))
        return found

    async def _one(self, number: int, end_at: float, found: list[float]) -> None:
        client = Client(self.port, None if self.shared else f"127.0.1.{number + 1}")
        chosen = random.Random(number)
        await asyncio.sleep(self.pause * chosen.random())
        while time.perf_counter() < end_at:
            status, seconds = await client.ask(chosen.choice(self.requests))
            found.append(1000 * seconds if status == 200 else float("inf"))
            await asyncio.sleep(2 * self.pause * chosen.random())
        client.close()


def compare(alone: list[float], beside: list[float]) -> Record:
    """Return percentiles and their ratios."""
    row: Record = {"requests": len(beside), "failed": sum(value == float("inf") for value in beside)}
    for share in (50, 99):
        row[f"p{share}_alone_ms"], row[f"p{share}_ms"] = percentile(alone, share), percentile(beside, share)
        row[f"p{share}_ratio"] = row[f"p{share}_ms"] / row[f"p{share}_alone_ms"]
    return row


def percentile(values: list[float], share: int) -> float:
    """Return a percentile."""
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)]


def print_row(name: str, row: Record) -> None:
    """Print one row of the table."""
    print(
        f"{name:<26} {row['requests']:>5} requests, {row['failed']} failed   p50 {row['p50_alone_ms']:6.1f} → "
        f"{row['p50_ms']:6.1f} ms   p99 {row['p99_alone_ms']:6.1f} → {row['p99_ms']:6.1f} ms   "
        f"ratio {row['p99_ratio']:.2f}   attack {row['replies']}",
        flush=True,
    )


class Client:
    """Sends one request after the other over one connection, from an address of its own."""

    def __init__(self, port: int, address: str | None) -> None:
        self.port, self.local = port, (address, 0) if address else None
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, float]:
        """Return the status, 0 if there is no response, and the seconds that it took."""
        began_at = time.perf_counter()
        try:
            if self.streams is None:
                self.streams = await asyncio.open_connection("127.0.0.1", self.port, local_addr=self.local)
            reader, writer = self.streams
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]))
            if b"connection: close" in head:
                self.close()
            return int(head.split()[1]), time.perf_counter() - began_at
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0, time.perf_counter() - began_at

    def close(self) -> None:
        """Close the connection."""
        if self.streams:
            self.streams[1].close()
        self.streams = None


# ---- the attack


async def attack_forever(name: str, port: int, connections: int, model: str, address: str | None) -> None:
    """Send the requests of an attack over several connections until a line comes; then print the statuses."""
    statuses: Counter[str] = Counter()
    print("begun", flush=True)
    tasks = [
        asyncio.create_task(attack_over_one(name, port, number, connections, model, address, statuses))
        for number in range(connections)
    ]
    await asyncio.to_thread(sys.stdin.readline)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps({**statuses, "unanswered": connections}), flush=True)


async def attack_over_one(
    name: str, port: int, number: int, step: int, model: str, address: str | None, statuses: Counter[str]
) -> None:
    """Send one request after the other."""
    while True:
        path, fields = ATTACKS[name](number)
        request = post(path, {key: model if value == "lm" else value for key, value in fields.items()})
        if path.startswith("GET "):
            request = f"{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        statuses[str(await ask_and_discard(port, request, address))] += 1
        number += step


async def ask_and_discard(port: int, request: bytes, address: str | None) -> int:
    """Send a request over a connection of its own and read the whole response, also a stream; return its status."""
    status = 0
    with suppress(OSError, asyncio.IncompleteReadError):
        local = (address, 0) if address else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=local)
        try:
            writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            status = int((await reader.readline()).split()[1])
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()
    return status


if __name__ == "__main__":
    typer.run(main)
