"""A language model at work for others: it goes on with texts, and stops when nobody waits any more.

Runs in the worker.
"""

from collections.abc import Callable
from typing import Any

from dragoman.server.decoder import finite
from dragoman.server.link import Message, WorkerEnd
from dragoman.server.shelf import Served

LENGTH = 200  # tokens, if nobody says how many
DRAWING = ("temperature", "top_k", "top_p", "seed", "stop")


Found = list[dict[str, Any]]  # ways in which one text goes on


def written(model: Served, message: Message, pause: Callable[[Any], None], end: WorkerEnd) -> list[Found]:
    """Return how each text goes on, in as many ways as were asked for."""

    def heard(text: str) -> None:
        pause(None)
        if message.get("tell"):
            end.send([{"id": message["id"], "part": {"place": 0, "text": text}}])

    return [
        [one_way(model, text, message, number, heard if number == 0 else pause) for number in range(message["n_best"])]
        for text in message["texts"]
    ]


def one_way(model: Served, text: str, message: Message, number: int, heard: Callable[[str], None]) -> dict[str, Any]:
    """Return one way in which a text goes on; `heard` is told what has been written so far."""
    how = {name: message[name] for name in DRAWING if name in message}
    writing = model.translator.stream(text, length=message.get("length", LENGTH), sample=number, **how)
    so_far = ""
    for piece in writing:
        so_far += piece
        heard(so_far)
    done = writing.result()
    return {
        "text": done.text, "score": finite(done.log_probability / max(1, done.tokens)),
        "log_probability": finite(done.log_probability), "truncated": done.ended == "length",
    }  # fmt: skip
