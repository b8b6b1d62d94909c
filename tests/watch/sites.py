"""A page that is served by a real process, and how to ask it."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Site:
    """A page, and the run that it shows."""

    address: str
    run: Path

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        request = urllib.request.Request(self.address + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as found:
                return Answer(found.status, dict(found.headers), found.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read())


def until(condition: Callable[[], bool], seconds: float = 120) -> bool:
    """Wait for something to come true."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()
