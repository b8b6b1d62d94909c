"""How does the service perform under load? Throughput, mixed-up answers, overload, slow clients, and more.

    python benchmarks/server_load.py runs/quickstart --source runs/quickstart/corpus/train.en

The server is `dragoman serve` with default options on a free port; the client is another process. Bulk decoding of the
same sentences with the same model is measured in turns with it. Prints a table and writes one JSON record.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from load_client import Client, Reply, closed_loop, post

import dragoman
from dragoman.data.lines import read_lines
from dragoman.text.sentences import split_sentences

Record = dict[str, Any]
BODY_BYTES = 64_000_000
RUN = typer.Argument(help="A run directory.")


def main(
    run: Annotated[Path, RUN],
    source: Annotated[Path, typer.Option(help="Sentences to translate, one a line.")],
    sentences: Annotated[int, typer.Option(help="How many different ones.")] = 10_000,
    clients: Annotated[int, typer.Option(help="Clients at a time.")] = 64,
    rounds: Annotated[int, typer.Option(help="Measurements of throughput; the medians count.")] = 3,
    overload: Annotated[int, typer.Option(help="So many times as many clients in the test of overload.")] = 20,
    slow: Annotated[int, typer.Option(help="Slow connections.")] = 1000,
    seconds: Annotated[float, typer.Option(help="How long overload and slow connections last.")] = 20.0,
    only: Annotated[list[str] | None, typer.Option(help="Only this part; repeatable.")] = None,
    output: Annotated[Path, typer.Option(help="Where to write the record.")] = Path("server_load.json"),
    one: Annotated[str, typer.Option(help="Used by this script itself: what a process of its own does.")] = "",
) -> None:
    """Start a server, load it in several ways, and report."""
    if one:
        name, *arguments = json.loads(one)
        print(json.dumps(PROCESSES[name](run, *arguments)))
        return
    lines = single_sentences(source, sentences)
    cores = len(os.sched_getaffinity(0))
    record: Record = {"run": str(run), "sentences": len(lines), "clients": clients, "cores": cores}
    with serving(run) as server:
        for name, measure in PARTS.items():
            if not only or name in only:
                how = {"clients": clients, "rounds": rounds, "overload": overload, "slow": slow, "seconds": seconds}
                record[name] = measure(server, lines, how)
                print_record(name, record[name])
    output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def single_sentences(source: Path, count: int) -> list[str]:
    """Return so many different lines of one sentence each: the server reads them as bulk decoding does."""
    unique = dict.fromkeys(line.strip() for line in read_lines(source))
    return list(islice((line for line in unique if split_sentences(line).sentences == (line,)), count))


class Server:
    """A server in a process of its own."""

    def __init__(self, run: Path, *options: str) -> None:
        command = [sys.executable, "-m", "dragoman", "serve", str(run), "--port", "0", *options]
        self.run = run
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout, "a pipe"
        address = self.process.stdout.readline().strip()
        if not address.startswith("http://127.0.0.1:"):
            raise SystemExit("The server did not start.")
        self.port = int(address.rstrip("/").rpartition(":")[2])

    def apart(self, name: str, *arguments: Any) -> Any:
        """Do something in a process of its own, and return what it found."""
        job = json.dumps([name, *arguments])
        command = [sys.executable, __file__, str(self.run), "--source", "-", "--one", job]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)

    def ask(self, request: bytes) -> Reply:
        """Send one request."""
        return asyncio.run(closed_loop(("127.0.0.1", self.port), [request], 1))[0]

    def worker(self) -> int:
        """Return the number of the worker's process."""
        front = self.process.pid
        return int(Path(f"/proc/{front}/task/{front}/children").read_text().split()[0])


@contextmanager
def serving(run: Path) -> Iterator[Server]:
    """Have a server for a while."""
    server = Server(run)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()


def throughput(server: Server, lines: list[str], how: Record) -> Record:
    """Measure bulk decoding and the server in turns, and compare every answer."""
    rows: list[Record] = []
    with write_lines_file(lines) as file:
        for _ in range(how["rounds"]):
            before = cpu_of(server.process.pid), cpu_of(server.worker())
            served = server.apart("client", server.port, file, how["clients"])
            front, worker = cpu_of(server.process.pid) - before[0], cpu_of(server.worker()) - before[1]
            bulk = server.apart("bulk", file)
            mixed = sum(one != other for one, other in zip(served.pop("texts"), bulk.pop("texts"), strict=True))
            count = len(lines)
            costs = {"front_us": 1e6 * front / count, "worker_us": 1e6 * worker / count, "client_us": served["us"]}
            rows.append({"bulk": bulk["rate"], "mixed": mixed, **served, **costs})
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0] if name != "statuses"}
    medians["mixed"] = sum(row["mixed"] for row in rows)
    return {**medians, "share": medians["rate"] / medians["bulk"], "rounds": rows}


def bulk_process(run: Path, file: str) -> Record:
    """Translate all sentences at once."""
    lines = json.loads(Path(file).read_text())
    model = dragoman.load(run)
    model.translate(lines[:256])
    began_at = time.perf_counter()
    texts = model.translate(lines)
    return {"rate": len(lines) / (time.perf_counter() - began_at), "texts": texts}


def client_process(_run: Path, port: int, file: str, clients: int) -> Record:
    """Send each sentence in a request of its own, from so many clients."""
    requests = [post("/v1/translate", {"text": line}) for line in json.loads(Path(file).read_text())]
    asyncio.run(closed_loop(("127.0.0.1", port), requests[: 4 * clients], clients))
    cpu, began_at = time.process_time(), time.perf_counter()
    replies = asyncio.run(closed_loop(("127.0.0.1", port), requests, clients))
    seconds, cpu = time.perf_counter() - began_at, time.process_time() - cpu
    texts = [reply.json()["translations"][0][0]["text"] if reply.status == 200 else None for reply in replies]
    return {
        "rate": len(requests) / seconds,
        **latency_percentiles(replies),
        "us": 1e6 * cpu / len(requests),
        "texts": texts,
    }


def under_overload(server: Server, lines: list[str], how: Record) -> Record:
    """Have many times as many clients as can be inside; once they wait as they are told, once they do not."""
    found = {}
    with write_lines_file(lines) as file:
        many = how["overload"] * how["clients"]
        for name, count, patient in (("1x", how["clients"], True), ("patient", many, True), ("impatient", many, False)):
            found[name] = server.apart("crowd", server.port, file, count, how["seconds"], patient)
    return found


def crowd_process(_run: Path, port: int, file: str, clients: int, seconds: float, patient: bool) -> Record:
    """Be a crowd for a while."""
    requests = [post("/v1/translate", {"text": line}) for line in json.loads(Path(file).read_text())]
    replies = asyncio.run(crowd(port, requests, clients, seconds, patient))
    admitted = [reply for reply in replies if reply.status == 200]
    refused = [reply for reply in replies if reply.status in (429, 503)]
    with_hint = sum(reply.retry_after >= 1 for reply in refused)
    return {
        "clients": clients, "rate": len(admitted) / seconds, "admitted": latency_percentiles(admitted),
        "refused": latency_percentiles(refused),
        "refused_with_retry_after": with_hint, "lost": len(replies) - len(admitted) - len(refused),
    }  # fmt: skip


async def crowd(port: int, requests: list[bytes], clients: int, seconds: float, patient: bool) -> list[Reply]:
    """Have clients ask again and again."""
    replies: list[Reply] = []
    end_at = time.perf_counter() + seconds

    async def one(number: int) -> None:
        client = Client("127.0.0.1", port)
        while time.perf_counter() < end_at:
            reply = await client.ask(requests[number % len(requests)])
            replies.append(reply)
            await asyncio.sleep(reply.retry_after if patient else 0)
        client.close()

    await asyncio.gather(*(one(number) for number in range(clients)))
    return replies


def beside_slow_clients(server: Server, lines: list[str], how: Record) -> Record:
    """Measure 16 ordinary clients alone, and then beside slow connections."""
    with write_lines_file(lines) as file:
        alone = server.apart("crowd", server.port, file, 16, how["seconds"] / 2, True)
        job = json.dumps(["slow", server.port, how["slow"], how["seconds"] / 2 + 5])
        command = [sys.executable, __file__, str(server.run), "--source", "-", "--one", job]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as crawling:
            time.sleep(3)
            beside = server.apart("crowd", server.port, file, 16, how["seconds"] / 2, True)
            told = json.loads(crawling.communicate()[0])
    return {"alone": alone, "beside": beside, "slow": told}


def slow_process(_run: Path, port: int, count: int, seconds: float) -> Record:
    """Hold connections open with half a request each, a byte a second; open another when one is dropped."""
    return asyncio.run(crawl(port, count, seconds))


async def crawl(port: int, count: int, seconds: float) -> Record:
    """Be slow clients."""
    end_at = time.perf_counter() + seconds
    lives: list[float] = []

    async def one() -> None:
        while time.perf_counter() < end_at:
            began_at = time.perf_counter()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nX: ")
                while time.perf_counter() < end_at and await still_there(reader):
                    writer.write(b"x")
                writer.close()
            except OSError:
                await asyncio.sleep(0.1)
            lives.append(time.perf_counter() - began_at)

    await asyncio.gather(*(one() for _ in range(count)))
    return {"connections": count, "opened": len(lives), "longest_seconds": max(lives)}


async def still_there(reader: asyncio.StreamReader) -> bool:
    """Wait for a second, and say whether the other side has not closed meanwhile."""
    try:
        async with asyncio.timeout(1):
            return bool(await reader.read(1))
    except TimeoutError:
        return True


def huge_body(server: Server, _lines: list[str], _how: Record) -> Record:
    """Send a body that is far too large, and look at the memory of the front."""
    server.ask(post("/v1/translate", {"text": "a"}))
    before = memory_of(server.process.pid)
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n".encode()
    reply = server.ask(head + b" " * BODY_BYTES)
    grown = memory_of(server.process.pid) - before
    return {"status": reply.status, "seconds": reply.seconds, "grown_mb": grown / 1e6}


def restarts(server: Server, _lines: list[str], _how: Record) -> Record:
    """Kill the worker several times, and wait until a translation passes again."""
    waited = []
    for _ in range(5):
        os.kill(server.worker(), signal.SIGKILL)
        began_at = time.perf_counter()
        time.sleep(0.1)
        while server.ask(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").status != 200:
            time.sleep(0.05)
        waited.append(time.perf_counter() - began_at)
    return {"kills": len(waited), "longest_seconds": max(waited), "median_seconds": statistics.median(waited)}


PARTS: dict[str, Callable[[Server, list[str], Record], Record]] = {
    "throughput": throughput, "overload": under_overload, "slow": beside_slow_clients, "body": huge_body,
    "restarts": restarts,
}  # fmt: skip
PROCESSES: dict[str, Callable[..., Record]] = {
    "bulk": bulk_process, "client": client_process, "crowd": crowd_process, "slow": slow_process,
}  # fmt: skip


@contextmanager
def write_lines_file(lines: list[str]) -> Iterator[str]:
    """Have the sentences in a file, for other processes."""
    file = Path(f"server_load.{os.getpid()}.lines")
    file.write_text(json.dumps(lines), encoding="utf-8")
    try:
        yield str(file)
    finally:
        file.unlink()


def latency_percentiles(replies: list[Reply]) -> Record:
    """Return how many replies there were, and how long they took, in milliseconds."""
    taken = sorted(1000 * reply.seconds for reply in replies)
    at = {f"p{share}_ms": taken[min(len(taken) - 1, len(taken) * share // 100)] for share in (50, 99)} if taken else {}
    statuses = {str(status): sum(reply.status == status for reply in replies) for status in {r.status for r in replies}}
    return {"count": len(taken), **at, "statuses": statuses}


def cpu_of(process: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def print_record(name: str, found: Record) -> None:
    """Print the rows of one part."""
    for key, value in found.items():
        if key != "rounds":
            print(f"{name:>12}  {key:<24} {format_value(value)}", flush=True)


def format_value(value: Any) -> str:
    """Return a value for the table."""
    if isinstance(value, dict):
        return "  ".join(f"{key} {format_value(each)}" for key, each in value.items())
    return f"{value:,.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    typer.run(main)
