"""The worker: a process of its own with torch and the models, so that whatever happens here, the front still answers.

`python -m dragoman.server.worker NUMBER` is started by the front with one end of a pair of sockets, by its number. It
reads messages in its first thread and decodes in others; when the front is gone, so is the worker.
"""

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from dragoman.errors import UserError
from dragoman.memory import keep_freed_memory
from dragoman.server.decoder import Decoder, question_of, stream
from dragoman.server.inside import checkpoints, look, report, written_on
from dragoman.server.line import Job, Line
from dragoman.server.link import Message, WorkerEnd
from dragoman.server.shelf import Served, Shelf
from dragoman.server.writing import written

LOG = logging.getLogger("dragoman.server")
REFRESH_SECONDS = 1.0


class Worker:
    """What is done with each message."""

    def __init__(self, end: WorkerEnd, shelf: Shelf, line: Line, limits: dict[str, Any]) -> None:
        self.end, self.shelf, self.line, self.limits = end, shelf, line, limits
        self.operations: dict[str, Callable[[Message], None]] = {
            "translate": self.translate, "stream": self.stream, "continue": self.go_on, "look": self.look,
            "report": self.report, "checkpoints": self.checkpoints, "write": self.write,
        }  # fmt: skip

    def hear(self, messages: list[Message]) -> None:
        """Do what has been asked for meanwhile, but nothing for those who have gone again."""
        gone = {message["id"] for message in messages if message["op"] == "cancel"}
        for number in gone:
            self.line.cancel(number)
        for message in messages:
            if message["id"] not in gone:
                self.handle(message)

    def handle(self, message: Message) -> None:
        """Do what a message asks for; what goes wrong is answered."""
        try:
            self.operations[message["op"]](message)
        except UserError as error:
            self.end.send([{"id": message["id"], "problem": [422, "refused", str(error)]}])
        except Exception as error:
            LOG.error("%s failed: %s", message.get("op"), type(error).__name__)
            self.end.send([{"id": message["id"], "problem": [500, "internal", "The translator failed on this."]}])

    def translate(self, message: Message) -> None:
        """Translate texts, together with those of others."""
        self.line.put(question_of(message, self.model(message)).job(message["id"]))

    def stream(self, message: Message) -> None:
        """Translate texts one by one, and tell what has been written so far."""
        question = question_of(message, self.model(message))
        self.put_alone(message, stream(question, message["id"], self.end))

    def write(self, message: Message) -> None:
        """Go on with texts, of a language model, and tell what has been written so far if that is wanted."""
        model = self.model(message)
        self.put_alone(message, lambda pause: written(model, message, pause, self.end))

    def go_on(self, message: Message) -> None:
        """Translate one text from a given beginning of its translation."""
        model = self.model(message)
        self.put_alone(message, lambda _pause: written_on(model, message))

    def look(self, message: Message) -> None:
        """Show one translation from inside."""
        model = self.then(message)
        self.put_alone(message, lambda _pause: look(model, message, self.limits["look_pieces"]), "look")

    def report(self, message: Message) -> None:
        """Send what was measured about the heads of a model."""
        self.end.send([{"id": message["id"], "found": report(self.model(message))}])

    def checkpoints(self, message: Message) -> None:
        """Send which checkpoints a model's run has."""
        self.end.send([{"id": message["id"], "found": checkpoints(self.model(message))}])

    def model(self, message: Message) -> Served:
        """Return the model that a message names."""
        return self.shelf.models[message["model"]]

    def then(self, message: Message) -> Served:
        """Return the model that a message names, at the checkpoint that it names; our folders are not told."""
        step = message.get("checkpoint")
        try:
            return self.shelf.at(message["model"], step)
        except UserError:
            raise UserError(
                f"There is no whole checkpoint of step {step}; /v1/checkpoints lists what there is."
            ) from None

    def put_alone(
        self, message: Message, task: Callable[[Callable[[Any], None]], Any], lane: Literal["alone", "look"] = "alone"
    ) -> None:
        """Let a task of its own wait for a thread."""
        self.line.put(Job(message["id"], None, [0], 0, what=task, own_lane=lane))


def main(number: int) -> None:
    """Load the models, say so, and work until the front is gone."""
    prefer_to_die()
    keep_freed_memory()
    end = WorkerEnd(socket.socket(fileno=number))
    messages = end.messages()
    (settings,) = next(messages)  # the front says nothing else before it has heard of us
    shelf = Shelf(settings["device"], settings["precision"])
    try:
        shelf.fill(settings["runs"], {name: (pair[0], pair[1]) for name, pair in settings["languages"].items()})
    except UserError as error:
        end.send([{"fatal": str(error)}])
        return
    line = Line(settings["threads"])
    begin(line, shelf, end)
    worker = Worker(end, shelf, line, settings["limits"])
    for some in messages:
        worker.hear(some)


def begin(line: Line, shelf: Shelf, end: WorkerEnd) -> None:
    """Start the threads, and tell the front which models there are."""
    decoder = Decoder(line, end)
    for _ in range(line.threads):
        threading.Thread(target=decoder.work, daemon=True).start()
    warm_up(shelf)
    end.send([{"models": [model.facts() for model in shelf.models.values()]}])
    threading.Thread(target=keep_fresh, args=(shelf, end), daemon=True).start()


def warm_up(shelf: Shelf) -> None:
    """Translate something with each model: what is compiled or packed when first used is so before anyone waits."""
    for model in shelf.models.values():
        model.engine(model.how(None, 1)).search([model.translator.source_tokens("a")])


def keep_fresh(shelf: Shelf, end: WorkerEnd) -> None:
    """Look for new weights now and then; a run that cannot be read just now keeps the weights it had."""

    def changed(_model: Served) -> None:
        end.send([{"models": [model.facts() for model in shelf.models.values()]}])

    while True:
        time.sleep(REFRESH_SECONDS)
        try:
            shelf.refresh(changed)
        except (UserError, OSError) as error:
            LOG.warning("new weights could not be loaded: %s", error)


def prefer_to_die() -> None:
    """Tell the system which of us to end when memory runs out: this process can be started again."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, format="dragoman worker: %(message)s", level=logging.WARNING)
    with suppress(BrokenPipeError, ConnectionResetError):
        main(int(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)  # threads that are in the middle of something have nobody to tell
