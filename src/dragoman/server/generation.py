"""A language model at work for others: it goes on with texts, and stops when nobody waits any more.

Runs in the worker.
"""

from collections.abc import Callable
from typing import Any

from dragoman.server.decoder import clamp_score
from dragoman.server.ipc import Message, WorkerChannel
from dragoman.server.registry import ServedModel

_DEFAULT_LENGTH = 200  # tokens, if nobody says how many
_SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "seed", "stop")


_Continuations = list[dict[str, Any]]  # ways in which one text goes on


def generate_continuations(
    model: ServedModel, message: Message, on_step: Callable[[Any], None], channel: WorkerChannel
) -> list[_Continuations]:
    """Return how each text goes on, in as many ways as were asked for."""

    def heard(text: str) -> None:
        on_step(None)
        if message.get("tell"):
            channel.send([{"id": message["id"], "part": {"place": 0, "text": text}}])

    return [
        [
            _generate_one(model, text, message, number, heard if number == 0 else on_step)
            for number in range(message["n_best"])
        ]
        for text in message["texts"]
    ]


def _generate_one(
    model: ServedModel, text: str, message: Message, sample: int, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Return one way in which a text goes on; `heard` is told what has been written so far."""
    how = {name: message[name] for name in _SAMPLING_FIELDS if name in message}
    writing = model.translator.stream(text, length=message.get("length", _DEFAULT_LENGTH), sample=sample, **how)
    so_far = ""
    for piece in writing:
        so_far += piece
        on_progress(so_far)
    done = writing.result()
    return {
        "text": done.text, "score": clamp_score(done.log_probability / max(1, done.tokens)),
        "log_probability": clamp_score(done.log_probability), "truncated": done.ended == "length",
    }  # fmt: skip
