"""Counters in the text format of Prometheus. They hold routes, codes and numbers, never a text."""

import os
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

_BUCKET_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ServerMetrics:
    """What has happened since the start."""

    def __init__(self) -> None:
        self.responses: Counter[tuple[str, int]] = Counter()  # by route and status
        self.rejections: Counter[str] = Counter()  # by code
        self.duration_buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(_BUCKET_SECONDS) + 1))
        self.total_seconds: Counter[str] = Counter()
        self.sentences = self.characters = self.decoded = self.restarts = self.reloads = self.abandoned = 0
        self.gauges: dict[str, Callable[[], float]] = {}
        self.started_at = time.time()

    def record_response(self, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self.responses[route, status] += 1
        self.duration_buckets[route][bisect_left(_BUCKET_SECONDS, seconds)] += 1
        self.total_seconds[route] += seconds  # type: ignore[assignment]

    def render(self) -> str:
        """Return everything as Prometheus reads it."""
        return "\n".join([*self.render_lines(), ""])

    def render_lines(self) -> Iterator[str]:
        """Yield a group of lines for each metric."""
        yield from _metric_header("requests_total", "counter", "Answers by route and status.")
        for (route, status), count in sorted(self.responses.items()):
            yield f'dragoman_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _metric_header("refused_total", "counter", "Requests that were refused, by the code of the answer.")
        for code, count in sorted(self.rejections.items()):
            yield f'dragoman_refused_total{{code="{code}"}} {count}'
        yield from self.render_histogram()
        for name in ("sentences", "characters", "decoded", "abandoned", "restarts", "reloads"):
            yield from _metric_header(f"{name}_total", "counter", _HELP[name])
            yield f"dragoman_{name}_total {getattr(self, name)}"
        for name, value in self.gauges.items():
            yield from _metric_header(name, "gauge", _HELP[name])
            yield f"dragoman_{name} {value():g}"

    def render_histogram(self) -> Iterator[str]:
        """Yield how long answers took."""
        yield from _metric_header("request_seconds", "histogram", "From the whole request to the whole answer.")
        for route, counts in sorted(self.duration_buckets.items()):
            for bound, count in zip((*map(str, _BUCKET_SECONDS), "+Inf"), accumulate(counts), strict=True):
                yield f'dragoman_request_seconds_bucket{{route="{route}",le="{bound}"}} {count}'
            yield f'dragoman_request_seconds_sum{{route="{route}"}} {self.total_seconds[route]:.6f}'
            yield f'dragoman_request_seconds_count{{route="{route}"}} {sum(counts)}'


_HELP = {
    "sentences": "Sentences translated, or whatever else the models do with them.",
    "characters": "Characters of text translated.",
    "decoded": "Sentences that the worker has decoded, though perhaps nobody waited for them any more.",
    "abandoned": "Requests whose client went away before the answer.",
    "restarts": "Times that the worker died and was started again.",
    "reloads": "Times that a training's new weights were taken.",
    "waiting": "Requests admitted and not yet answered.",
    "waiting_characters": "Characters of text in them.",
    "connections": "Open connections.",
    "worker_ready": "1 while the worker can translate.",
    "memory_bytes": "Resident memory of the front.",
    "worker_memory_bytes": "Resident memory of the worker.",
    "uptime_seconds": "Since the start.",
}


def _metric_header(name: str, kind: str, help_text: str) -> Iterator[str]:
    """Yield the lines before a metric's values."""
    yield f"# HELP dragoman_{name} {help_text}"
    yield f"# TYPE dragoman_{name} {kind}"


def resident_memory_bytes(process: int | str = "self") -> float:
    """Return the resident bytes of a process, 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0
