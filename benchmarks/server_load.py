"""How does the service perform under load? Throughput, overload, idle and slow connections, kills and restarts.

    python benchmarks/server_load.py runs/quickstart --source runs/quickstart/corpus/train.en
    python benchmarks/server_load.py runs/quickstart --source … --only kills --only restarts

The server is `dragoman serve` with default options on a free port; clients are processes of their own on the same
cores. Capacity is the number of requests that the server admits at a time (64). Bulk decoding of the same sentences
with the same model is measured in turns with it. Prints a table and writes one JSON record. `kills` (100 times) and
`restarts` (20 times) take long and run only if they are named.
"""

import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from load_client import Clients, Reply, ask, get, post, send_all, send_for

import dragoman
from dragoman.data.lines import read_lines
from dragoman.text.sentences import split_sentences

Record = dict[str, Any]
BODY_BYTES = 64_000_000
PROBE_SECONDS = 0.1
ORDINARY_CLIENTS = 16
RUN = typer.Argument(help="A run directory.")


def main(
    run: Annotated[Path, RUN],
    source: Annotated[Path, typer.Option(help="Sentences to translate, one a line.")],
    sentences: Annotated[int, typer.Option(help="How many different ones.")] = 10_000,
    clients: Annotated[int, typer.Option(help="Clients at capacity.")] = 64,
    rounds: Annotated[int, typer.Option(help="Measurements of throughput; the medians count.")] = 3,
    connections: Annotated[int, typer.Option(help="Idle and slow connections.")] = 1000,
    seconds: Annotated[
        float, typer.Option(help="How long each row of overload, idle and slow connections lasts.")
    ] = 20.0,
    kills: Annotated[int, typer.Option(help="How often the worker is killed.")] = 100,
    restarts: Annotated[int, typer.Option(help="How often the server is restarted.")] = 20,
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
    how = {
        "clients": clients,
        "rounds": rounds,
        "connections": connections,
        "seconds": seconds,
        "kills": kills,
        "restarts": restarts,
    }
    record: Record = {"run": str(run), "sentences": len(lines), "cores": cores, **how}
    with write_lines_file(lines) as file:
        for name in only or [name for name in PARTS if name not in LONG_PARTS]:
            with serving(run) as server:
                record[name] = PARTS[name](server, file, how)
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

    @contextmanager
    def beside(self, name: str, *arguments: Any) -> Iterator[Record]:
        """Do something in a process of its own while the block runs; at its end, the record has what it found."""
        job = json.dumps([name, *arguments])
        command = [sys.executable, __file__, str(self.run), "--source", "-", "--one", job]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            found: Record = {}
            yield found
            found |= json.loads(process.communicate()[0])

    def apart(self, name: str, *arguments: Any) -> Record:
        """Do something in a process of its own, and return what it found."""
        with self.beside(name, *arguments) as found:
            pass
        return found

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


# ---- throughput


def throughput(server: Server, file: str, how: Record) -> Record:
    """Measure bulk decoding and the server in turns, and compare every answer."""
    rows: list[Record] = []
    for _ in range(how["rounds"]):
        before = cpu_of(server.process.pid), cpu_of(server.worker())
        served = server.apart("client", server.port, file, how["clients"])
        front, worker = cpu_of(server.process.pid) - before[0], cpu_of(server.worker()) - before[1]
        bulk = server.apart("bulk", file)
        count = len(bulk["texts"])
        mixed = sum(one != other for one, other in zip(served.pop("texts"), bulk.pop("texts"), strict=True))
        costs = {"front_us": 1e6 * front / count, "worker_us": 1e6 * worker / count}
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
    requests = read_requests(file)
    send_all(port, requests[: 4 * clients], clients)
    cpu, began_at = time.process_time(), time.perf_counter()
    replies = send_all(port, requests, clients)
    seconds, cpu = time.perf_counter() - began_at, time.process_time() - cpu
    texts = [reply.json()["translations"][0][0]["text"] if reply.status == 200 else None for reply in replies]
    costs = {"client_us": 1e6 * cpu / len(requests)}
    return {"rate": len(requests) / seconds, **latency_percentiles(replies), **costs, "texts": texts}


# ---- overload


def overload(server: Server, file: str, how: Record) -> Record:
    """Have 1, 5 and 20 times as many clients as the server admits, which wait as they are told, or return at once."""
    found: Record = {}
    capacity, seconds = how["clients"], how["seconds"]
    server.apart("crowd", server.port, file, capacity, seconds / 4, True)  # warms up
    rows = [
        ("1x", 1, True),
        ("5x", 5, True),
        ("20x", 20, True),
        ("5x impatient", 5, False),
        ("20x impatient", 20, False),
    ]
    for name, times, patient in rows:
        before = cpu_of(server.process.pid)
        row = server.apart("crowd", server.port, file, times * capacity, seconds, patient)
        row["front_cpu"] = (cpu_of(server.process.pid) - before) / seconds
        peak = found.get("1x", row)
        row["goodput"] = row["rate"] / peak["rate"]
        row["served_p99_ratio"] = row["served"].get("p99_ms", 0) / peak["served"]["p99_ms"]
        found[name] = row
    return found


def crowd_process(_run: Path, port: int, file: str, clients: int, seconds: float, patient: bool) -> Record:
    """Be a crowd for a while; the clients begin within the first tenth of the time."""
    requests = read_requests(file)
    cpu = time.process_time()
    crowd = Clients(port, send_for(seconds, requests), clients, patient=patient, ramp_seconds=seconds / 10)
    replies = crowd.run()
    return {"clients": clients, **summary(replies, seconds), "client_cpu": (time.process_time() - cpu) / seconds}


def summary(replies: Sequence[Reply], seconds: float) -> Record:
    """Return how many requests were served, refused and lost, and how long that took."""
    served = [reply for reply in replies if reply.status == 200]
    refused = [reply for reply in replies if reply.status in (429, 503)]
    return {
        "rate": len(served) / seconds, "served": latency_percentiles(served), "refused": latency_percentiles(refused),
        "refused_without_retry_after": sum(reply.retry_after < 1 for reply in refused),
        "lost": sum(reply.status == 0 for reply in replies),
        "other": len(replies) - len(served) - len(refused) - sum(reply.status == 0 for reply in replies),
    }  # fmt: skip


# ---- idle and slow connections


def slow(server: Server, file: str, how: Record) -> Record:
    """Measure ordinary clients alone, and beside slow connections of three kinds, in turns."""
    return beside_others(server, file, how, "slow")


def idle(server: Server, file: str, how: Record) -> Record:
    """Measure ordinary clients and probes alone, and beside idle connections, in turns."""
    return beside_others(server, file, how, "idle")


def beside_others(server: Server, file: str, how: Record, kind: str) -> Record:
    """Measure ordinary clients alone and beside connections of a kind, twice in turns."""
    seconds, found = how["seconds"] / 2, Record()
    server.apart("crowd", server.port, file, ORDINARY_CLIENTS, seconds / 4, True)  # warms up
    for turn in (1, 2):
        found[f"alone {turn}"] = ordinary_clients(server, file, seconds)
        with server.beside(kind, server.port, how["connections"], seconds + 6) as others:
            time.sleep(3)
            found[f"beside {turn}"] = ordinary_clients(server, file, seconds)
            held = send_all(server.port, [get("/metrics")], 1)[0].body
            found[f"beside {turn}"]["open"] = int(float(held.split(b"\ndragoman_connections ")[1].split()[0]))
        found[f"{kind} {turn}"] = others
    p99 = {name: [found[f"{name} {turn}"]["served"]["p99_ms"] for turn in (1, 2)] for name in ("alone", "beside")}
    return {"p99_ratio": sum(p99["beside"]) / sum(p99["alone"]), **found}


def ordinary_clients(server: Server, file: str, seconds: float) -> Record:
    """Have a few clients for a while, and probe the health of the server beside them."""
    with server.beside("crowd", server.port, file, ORDINARY_CLIENTS, seconds, True) as found:
        end_at, probes = time.perf_counter() + seconds, []
        while time.perf_counter() < end_at:
            probes.append(ask(server.port, get("/healthz")))
            time.sleep(PROBE_SECONDS)
    return {
        **found,
        "probes": latency_percentiles(probes),
        "failed_probes": sum(probe.status != 200 for probe in probes),
    }


SLOW_REQUESTS = {
    "head": b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nX: ",
    "body": b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{",
    "read": get("/openapi.json"),  # more than the client's buffer; nothing of it is read
}


def slow_process(_run: Path, port: int, count: int, seconds: float) -> Record:
    """Hold connections open, a third each with a slow head, a slow body and an unread response."""
    names = list(SLOW_REQUESTS)
    return hold_connections(port, [names[number % 3] for number in range(count)], seconds)


def idle_process(_run: Path, port: int, count: int, seconds: float) -> Record:
    """Hold connections open that send one request and then nothing."""
    return hold_connections(port, ["idle"] * count, seconds)


def hold_connections(port: int, kinds: list[str], seconds: float) -> Record:
    """Hold connections of some kinds, each of which sends a byte a second; open another when one is closed."""
    lives: dict[str, list[float]] = {kind: [] for kind in kinds}
    end_at, poll = time.perf_counter() + seconds, select.poll()
    held: dict[int, tuple[socket.socket, str, float]] = {}

    def hold(kind: str) -> None:
        own = socket.socket()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with suppress(OSError):
            own.connect(("127.0.0.1", port))
            own.sendall(SLOW_REQUESTS.get(kind, get("/readyz")))
        own.setblocking(False)
        held[own.fileno()] = own, kind, time.perf_counter()
        # Whoever reads nothing learns only from a reset that the connection is closed.
        poll.register(own.fileno(), 0 if kind == "read" else select.POLLIN)

    def is_closed(own: socket.socket, kind: str) -> bool:
        try:
            return kind == "read" or not own.recv(1 << 16)
        except OSError:
            return True

    for kind in kinds:
        hold(kind)
    trickle_at = time.perf_counter() + 1
    while time.perf_counter() < end_at:
        for file, _ in poll.poll(50):
            own, kind, began_at = held[file]
            if is_closed(own, kind):
                poll.unregister(file)
                del held[file]
                own.close()
                lives[kind].append(time.perf_counter() - began_at)
                hold(kind)
        if time.perf_counter() > trickle_at:
            trickle_at += 1
            for own, kind, _ in held.values():
                if kind in ("head", "body"):
                    with suppress(OSError):
                        own.send(b"x")
    return {kind: {"closed": len(each), "longest_seconds": max(each, default=0.0)} for kind, each in lives.items()}


# ---- large bodies, kills, restarts


def huge_body(server: Server, _file: str, _how: Record) -> Record:
    """Send a body that is far too large, and look at the memory of the front."""
    ask(server.port, post("/v1/translate", {"text": "a"}))
    before = memory_of(server.process.pid)
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n".encode()
    reply = ask(server.port, head, b" " * BODY_BYTES)
    grown = memory_of(server.process.pid) - before
    return {"status": reply.status, "seconds": reply.seconds, "grown_mb": grown / 1e6}


def kill_workers(server: Server, file: str, how: Record) -> Record:
    """Kill the worker again and again under load, and wait each time until a translation passes."""
    waited: list[float] = []
    with server.beside("until_gone", server.port, file, 8, True) as load:
        for _ in range(how["kills"]):
            os.kill(server.worker(), signal.SIGKILL)
            began_at = time.perf_counter()
            while ask(server.port, get("/readyz")).status == 200:  # until the server has noticed
                time.sleep(0.01)
            while ask(server.port, get("/healthz")).status != 200:
                time.sleep(0.05)
            waited.append(time.perf_counter() - began_at)
        server.process.terminate()
    waits = {"longest_seconds": max(waited), "median_seconds": statistics.median(waited)}
    return {"kills": len(waited), **waits, "above_5_seconds": sum(each > 5 for each in waited), "load": load}


def restart_servers(server: Server, file: str, how: Record) -> Record:
    """Stop a server under load and start another, again and again; count what was accepted and not answered."""
    rows: list[Record] = []
    for number in range(how["restarts"]):
        with serving(server.run) as next_server:
            keep_alive = number % 2 == 0  # or a connection for each request
            with next_server.beside("until_gone", next_server.port, file, 32, keep_alive) as load:
                time.sleep(3)
                began_at = time.perf_counter()
                next_server.process.terminate()
                next_server.process.wait()
                stopped = time.perf_counter() - began_at
            rows.append(
                {**load, "keep_alive": keep_alive, "stop_seconds": stopped, "code": next_server.process.returncode}
            )
    return {
        "restarts": len(rows), "served": sum(row["served"]["count"] for row in rows),
        "refused": sum(row["refused"]["count"] for row in rows), "lost": sum(row["lost"] for row in rows),
        "longest_stop_seconds": max(row["stop_seconds"] for row in rows),
        "exit_codes": sorted({row["code"] for row in rows}), "rounds": rows,
    }  # fmt: skip


def until_gone_process(_run: Path, port: int, file: str, clients: int, keep_alive: bool) -> Record:
    """Send requests until the server accepts no connection; what is refused then is not lost."""
    began_at = time.perf_counter()
    crowd = Clients(port, send_for(3600, read_requests(file)), clients, keep_alive=keep_alive)
    replies = crowd.run()
    found = summary(replies, time.perf_counter() - began_at)
    return {
        **found,
        "lost": found["lost"] - crowd.connections_refused,
        "refused_connections": crowd.connections_refused,
    }


PARTS: dict[str, Callable[[Server, str, Record], Record]] = {
    "throughput": throughput, "overload": overload, "idle": idle, "slow": slow, "body": huge_body,
    "kills": kill_workers, "restarts": restart_servers,
}  # fmt: skip
LONG_PARTS = {"kills", "restarts"}
PROCESSES: dict[str, Callable[..., Record]] = {
    "bulk": bulk_process, "client": client_process, "crowd": crowd_process, "slow": slow_process,
    "idle": idle_process, "until_gone": until_gone_process,
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


def read_requests(file: str) -> list[bytes]:
    """Return a request for each sentence of the file."""
    return [post("/v1/translate", {"text": line}) for line in json.loads(Path(file).read_text())]


def latency_percentiles(replies: Sequence[Reply]) -> Record:
    """Return how many replies there were, and how long they took, in milliseconds."""
    taken = sorted(1000 * reply.seconds for reply in replies)
    at = {f"p{share}_ms": taken[min(len(taken) - 1, len(taken) * share // 100)] for share in (50, 99)} if taken else {}
    return {"count": len(taken), **at}


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
            print(f"{name:>10}  {key:<15} {format_value(value)}", flush=True)


def format_value(value: Any) -> str:
    """Return a value for the table."""
    if isinstance(value, dict):
        return "  ".join(f"{key} {format_value(each)}" for key, each in value.items())
    return f"{value:,.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    typer.run(main)
