"""Counters in the text format of Prometheus: routes, codes and numbers, never a text."""

import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

_BUCKET_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ServerMetrics:
    """Counts since the start of the server."""

    def __init__(self) -> None:
        self.responses: Counter[tuple[str, int]] = Counter()  # by route and status
        self.rejections: Counter[str] = Counter()  # by code
        self.duration_buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(_BUCKET_SECONDS) + 1))
        self.total_seconds: Counter[str] = Counter()
        self.sentences = self.characters = self.recordings = self.decoded = self.restarts = self.reloads = (
            self.abandoned
        ) = 0
        self.gauges: dict[str, Callable[[], float]] = {}

    def record_response(self, route: str, status: int, seconds: float) -> None:
        """Count one response."""
        self.responses[route, status] += 1
        self.duration_buckets[route][bisect_left(_BUCKET_SECONDS, seconds)] += 1
        self.total_seconds[route] += seconds  # type: ignore[assignment]

    def render(self) -> str:
        """Return all metrics in the format of Prometheus."""
        return "\n".join([*self._render_lines(), ""])

    def _render_lines(self) -> Iterator[str]:
        """Yield the lines of all metrics."""
        yield from _metric_header("requests_total", "counter", "Responses by route and status.")
        for (route, status), count in sorted(self.responses.items()):
            yield f'dragoman_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _metric_header("refused_total", "counter", "Refused requests by error code.")
        for code, count in sorted(self.rejections.items()):
            yield f'dragoman_refused_total{{code="{code}"}} {count}'
        yield from self._render_histogram()
        for name in ("sentences", "characters", "recordings", "decoded", "abandoned", "restarts", "reloads"):
            yield from _metric_header(f"{name}_total", "counter", _HELP[name])
            yield f"dragoman_{name}_total {getattr(self, name)}"
        for name, value in self.gauges.items():
            yield from _metric_header(name, "gauge", _HELP[name])
            yield f"dragoman_{name} {value():g}"

    def _render_histogram(self) -> Iterator[str]:
        yield from _metric_header("request_seconds", "histogram", "Seconds from a request to the end of its response.")
        for route, counts in sorted(self.duration_buckets.items()):
            for bound, count in zip((*map(str, _BUCKET_SECONDS), "+Inf"), accumulate(counts), strict=True):
                yield f'dragoman_request_seconds_bucket{{route="{route}",le="{bound}"}} {count}'
            yield f'dragoman_request_seconds_sum{{route="{route}"}} {self.total_seconds[route]:.6f}'
            yield f'dragoman_request_seconds_count{{route="{route}"}} {sum(counts)}'


_HELP = {
    "sentences": "Sentences translated, or processed by models of other tasks.",
    "characters": "Characters of text translated.",
    "recordings": "Recordings transcribed.",
    "decoded": "Sentences decoded by the worker, including those of abandoned requests.",
    "abandoned": "Requests whose client disconnected before the response.",
    "restarts": "Restarts of the worker after it exited unexpectedly.",
    "reloads": "Reloads of models whose weights changed.",
    "waiting": "Requests admitted and not yet answered.",
    "waiting_work": "Units of work (tokens times beam width) in requests admitted and not yet answered, at most.",
    "connections": "Open connections.",
    "worker_ready": "1 if the worker can translate.",
    "memory_bytes": "Resident memory of the HTTP server.",
    "worker_memory_bytes": "Resident memory of the worker.",
}


def _metric_header(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP dragoman_{name} {help_text}"
    yield f"# TYPE dragoman_{name} {kind}"


def resident_memory_bytes(process: int | str = "self") -> float:
    """Return the resident memory of a process; 0 if the system does not provide it."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0
