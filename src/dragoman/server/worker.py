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
from dragoman.malloc import keep_freed_memory
from dragoman.server.decoder import BatchDecoder, parse_decode_request, stream_task
from dragoman.server.generation import generate_continuations
from dragoman.server.inspection import head_report, inspect_translation, list_checkpoints, translate_with_prefix
from dragoman.server.ipc import Message, WorkerChannel
from dragoman.server.registry import ModelRegistry, ServedModel
from dragoman.server.scheduler import BatchScheduler, Job

logger = logging.getLogger("dragoman.server")
_REFRESH_SECONDS = 1.0


class DecodingWorker:
    """What is done with each message."""

    def __init__(
        self, channel: WorkerChannel, registry: ModelRegistry, scheduler: BatchScheduler, limits: dict[str, Any]
    ) -> None:
        self.channel, self.registry, self.scheduler, self.limits = channel, registry, scheduler, limits
        self.operations: dict[str, Callable[[Message], None]] = {
            "translate": self.translate,
            "stream": self.stream,
            "continue": self.translate_with_prefix,
            "look": self.inspect_translation,
            "report": self.head_report,
            "checkpoints": self.list_checkpoints,
            "write": self.generate,
        }

    def handle_messages(self, messages: list[Message]) -> None:
        """Do what has been asked for meanwhile, but nothing for those who have gone again."""
        gone = {message["id"] for message in messages if message["op"] == "cancel"}
        for number in gone:
            self.scheduler.cancel(number)
        for message in messages:
            if message["id"] not in gone:
                self.handle_message(message)

    def handle_message(self, message: Message) -> None:
        """Do what a message asks for; what goes wrong is answered."""
        try:
            self.operations[message["op"]](message)
        except UserError as error:
            self.channel.send([{"id": message["id"], "problem": [422, "refused", str(error)]}])
        except Exception as error:
            logger.error("%s failed: %s", message.get("op"), type(error).__name__)
            self.channel.send([{"id": message["id"], "problem": [500, "internal", "The translator failed on this."]}])

    def translate(self, message: Message) -> None:
        """Translate texts, together with those of others."""
        self.scheduler.submit(parse_decode_request(message, self.find_model(message)).to_job(message["id"]))

    def stream(self, message: Message) -> None:
        """Translate texts one by one, and tell what has been written so far."""
        question = parse_decode_request(message, self.find_model(message))
        self.submit_task(message, stream_task(question, message["id"], self.channel))

    def generate(self, message: Message) -> None:
        """Go on with texts, of a language model, and tell what has been written so far if that is wanted."""
        model = self.find_model(message)
        self.submit_task(message, lambda pause: generate_continuations(model, message, pause, self.channel))

    def translate_with_prefix(self, message: Message) -> None:
        """Translate one text from a given beginning of its translation."""
        model = self.find_model(message)
        self.submit_task(message, lambda _pause: translate_with_prefix(model, message))

    def inspect_translation(self, message: Message) -> None:
        """Show one translation from inside."""
        model = self.find_checkpoint_model(message)
        self.submit_task(
            message, lambda _pause: inspect_translation(model, message, self.limits["look_pieces"]), "look"
        )

    def head_report(self, message: Message) -> None:
        """Send what was measured about the heads of a model."""
        self.channel.send([{"id": message["id"], "found": head_report(self.find_model(message))}])

    def list_checkpoints(self, message: Message) -> None:
        """Send which checkpoints a model's run has."""
        self.channel.send([{"id": message["id"], "found": list_checkpoints(self.find_model(message))}])

    def find_model(self, message: Message) -> ServedModel:
        """Return the model that a message names."""
        return self.registry.models[message["model"]]

    def find_checkpoint_model(self, message: Message) -> ServedModel:
        """Return the model that a message names, at the checkpoint that it names; our folders are not told."""
        step = message.get("checkpoint")
        try:
            return self.registry.at_checkpoint(message["model"], step)
        except UserError:
            raise UserError(
                f"There is no whole checkpoint of step {step}; /v1/checkpoints lists what there is."
            ) from None

    def submit_task(
        self, message: Message, task: Callable[[Callable[[Any], None]], Any], lane: Literal["alone", "look"] = "alone"
    ) -> None:
        """Let a task of its own wait for a thread."""
        self.scheduler.submit(Job(message["id"], None, [0], 0, payload=task, fixed_lane=lane))


def main(descriptor: int) -> None:
    """Load the models, say so, and work until the front is gone."""
    _raise_oom_score()
    keep_freed_memory()
    end = WorkerChannel(socket.socket(fileno=descriptor))
    messages = end.messages()
    (settings,) = next(messages)  # the front says nothing else before it has heard of us
    shelf = ModelRegistry(settings["device"], settings["precision"])
    try:
        shelf.load_all(settings["runs"], {name: (pair[0], pair[1]) for name, pair in settings["languages"].items()})
    except UserError as error:
        end.send([{"fatal": str(error)}])
        return
    line = BatchScheduler(settings["threads"])
    _start(line, shelf, end)
    worker = DecodingWorker(end, shelf, line, settings["limits"])
    for some in messages:
        worker.handle_messages(some)


def _start(scheduler: BatchScheduler, registry: ModelRegistry, channel: WorkerChannel) -> None:
    """Start the threads, and tell the front which models there are."""
    decoder = BatchDecoder(scheduler, channel)
    for _ in range(scheduler.threads):
        threading.Thread(target=decoder.decode_forever, daemon=True).start()
    _warm_up(registry)
    channel.send([{"models": [model.describe() for model in registry.models.values()]}])
    threading.Thread(target=_reload_forever, args=(registry, channel), daemon=True).start()


def _warm_up(registry: ModelRegistry) -> None:
    """Translate something with each model: what is compiled or packed when first used is so before anyone waits."""
    for model in registry.models.values():
        model.engine(model.decoding_config(None, 1)).search([model.translator.source_tokens("a")])


def _reload_forever(registry: ModelRegistry, channel: WorkerChannel) -> None:
    """Look for new weights now and then; a run that cannot be read just now keeps the weights it had."""

    def changed(_model: ServedModel) -> None:
        channel.send([{"models": [model.describe() for model in registry.models.values()]}])

    while True:
        time.sleep(_REFRESH_SECONDS)
        try:
            registry.reload_changed(changed)
        except (UserError, OSError) as error:
            logger.warning("new weights could not be loaded: %s", error)


def _raise_oom_score() -> None:
    """Tell the system which of us to end when memory runs out: this process can be started again."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, format="dragoman worker: %(message)s", level=logging.WARNING)
    with suppress(BrokenPipeError, ConnectionResetError):
        main(int(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)  # threads that are in the middle of something have nobody to tell
