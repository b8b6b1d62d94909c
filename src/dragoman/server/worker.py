"""The decoding worker: a process with torch and the models, separate from the HTTP server so that a crash or a lack of
memory here does not end the server.

`python -m dragoman.server.worker FD` is started by `WorkerClient`. The main thread reads messages and does nothing that
takes long, so that it always hears of a cancelled request; other threads work on the stages of the requests. The worker
ends when the server does.
"""

import gc
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from dragoman.errors import UserError
from dragoman.malloc import keep_freed_memory
from dragoman.processes import Message, MessageSocket, parent_socket
from dragoman.server.generation_request import generate
from dragoman.server.inspection import head_report, inspect_translation, list_checkpoints
from dragoman.server.limits import Limits
from dragoman.server.registry import ModelRegistry, ServedModel
from dragoman.server.scheduler import BRIEF_LANES, BatchScheduler, DecodingBatch, Job
from dragoman.server.stage import Look, Request, Stage, advance
from dragoman.server.transcription_request import RefusedRecording, TranscriptionRequest
from dragoman.server.translation_request import OnPart, TranslationRequest
from dragoman.server.work import TooMuchWork
from dragoman.streams import protect_streams

logger = logging.getLogger("dragoman.server")
_REFRESH_SECONDS = 1.0
_SWITCH_SECONDS = (
    0.0001  # that a Python thread runs while others wait: a finished batch must not wait for a busy thread
)
_SIGN_OF_LIFE_SECONDS = 1.0  # between two messages while a task takes many steps
_FILE_READING_SIZE = 1024  # what reading small files of a run counts for
_BRIEF_SECONDS = 0.003  # of brief work between two looks: who came first would often be last if there were more
_MAX_NESTED = 3  # batches that interrupt one another; the innermost is not interrupted


class _RequestAbandoned(Exception):
    """The client of a request has disconnected, or its deadline has passed."""


class DecodingWorker:
    """Handles messages from the server, and works on the stages of requests in threads."""

    def __init__(
        self, channel: MessageSocket, registry: ModelRegistry, scheduler: BatchScheduler, limits: Limits
    ) -> None:
        self.channel, self.registry, self.scheduler, self.limits = channel, registry, scheduler, limits
        self.last_sign_at = 0.0
        self.operations: dict[str, Callable[[Message], Request]] = {
            "translate": self.translate,
            "stream": self.stream,
            "generate": self.generate,
            "transcribe": self.transcribe,
            "inspect": self.inspect,
            "head_report": self.head_report,
            "checkpoints": self.checkpoints,
        }

    # ---- messages

    def handle_messages(self, messages: list[Message]) -> None:
        """Handle all messages that have arrived, except requests that are cancelled among them."""
        cancelled = {message["id"] for message in messages if message["operation"] == "cancel"}
        for message_id in cancelled:
            self.scheduler.cancel(message_id)
        for message in messages:
            if message["id"] not in cancelled:
                self.handle_message(message)

    def handle_message(self, message: Message) -> None:
        """Start the operation that a message names; send a problem if it fails."""
        message_id = message["id"]
        try:
            request = self.operations[message["operation"]](message)
            self.scheduler.submit(advance(request).to_job(message_id, message.get("client", ""), request))
        except StopIteration as answer:
            self.channel.send([{"id": message_id, "result": answer.value}])
        except Exception as error:
            self._send_problem(message_id, error)

    def translate(self, message: Message) -> Request:
        """Translate texts, in batches with those of other requests."""
        return TranslationRequest(self._model(message), message, self.limits).stages()

    def stream(self, message: Message) -> Request:
        """Translate texts segment by segment and send the output so far after each step."""
        on_part = self._part_sender(message)
        return TranslationRequest(self._model(message), message, self.limits, on_part).stages()

    def generate(self, message: Message) -> Request:
        """Continue texts with a language model; send the text so far if `send_parts` is set."""
        on_part = self._part_sender(message) if message.get("send_parts") else None
        return generate(self._model(message), message, self.limits.request_work, on_part)

    def transcribe(self, message: Message) -> Request:
        """Transcribe a recording in a file, or a sound of the server's own if the message names no file."""
        return TranscriptionRequest(self._model(message), message, self.limits).stages()

    def inspect(self, message: Message) -> Request:
        """Send the attention weights and alignment of one translation."""

        def run(_items: list[Any], look: Look) -> list[Any]:
            step = message.get("checkpoint")
            try:
                model = self.registry.at_checkpoint(message["model"], step)
            except UserError:  # whose text names directories of this machine
                raise UserError(f"No complete checkpoint at step {step}; /v1/checkpoints lists them.") from None
            document = inspect_translation(model.translator, message, self.limits.attention_tokens, look)
            return [{**document, "model": model.name}]

        (document,) = yield Stage(run, [message], [0], lane="inspect")
        return document

    def head_report(self, message: Message) -> Request:
        """Send the head report of a model."""
        return _read_files(head_report, self._model(message))

    def checkpoints(self, message: Message) -> Request:
        """Send the list of a run's checkpoints."""
        return _read_files(list_checkpoints, self._model(message))

    def _model(self, message: Message) -> ServedModel:
        return self.registry.models[message["model"]]

    def _part_sender(self, message: Message) -> OnPart:
        def send_part(index: int, text: str) -> None:
            self.channel.send([{"id": message["id"], "part": {"index": index, "text": text}}])

        return send_part

    def _send_problem(self, message_id: int, error: Exception) -> None:
        field = None
        if isinstance(error, RefusedRecording):
            problem, field = (422, error.code, str(error)), error.field
        elif isinstance(error, TooMuchWork):
            problem = (422, "too_much_work", str(error))
        elif isinstance(error, UserError):
            problem = (422, "refused", str(error))
        else:
            logger.error("a request failed: %s", type(error).__name__)
            problem = (500, "internal", "The request failed in the worker; the server log has details.")
        self.channel.send([{"id": message_id, "problem": problem, "field": field}])

    # ---- threads

    def decode_forever(self) -> None:
        """Work on batches until the scheduler is closed."""
        torch.set_num_threads(1)
        while batch := self.scheduler.next_batch():
            self.decode_batch(batch)

    def decode_batch(self, batch: DecodingBatch, interrupted: int = 0) -> None:
        """Work on one batch and send the answers of all requests that it completes, in one message.

        `interrupted` is the number of batches of this thread that wait for this one.
        """
        meter = _Meter()
        try:
            if batch.is_wanted:
                stage: Stage = batch.units[0][0].payload[0]
                items = [job.payload[0].items[index] for job, index in batch.units]
                results = stage.run(items, self._look(batch, meter, interrupted))
                complete = self.scheduler.record_results(batch, results)
                answers = [message for job in complete if (message := self._continue(job))]
                decoded = len(batch.units) if batch.lane in ("short", "long") else 0
                self.channel.send([{"decoded": decoded}, *answers])
        except _RequestAbandoned:
            pass
        except Exception as error:
            for job in batch.jobs:
                self._fail(job, error)
        finally:
            self.scheduler.charge(batch, meter.lap())
            self.scheduler.finish_batch(batch)

    def _continue(self, job: Job) -> Message | None:
        """Queue the next stage of a request; return the message with its answer if there is none."""
        request: Request = job.payload[1]
        try:
            self.scheduler.submit(advance(request, job.results).to_job(job.message_id, job.client, request), after=job)
        except StopIteration as answer:
            return {"id": job.message_id, "result": answer.value}
        except Exception as error:
            self._fail(job, error)
        return None

    def _look(self, batch: DecodingBatch, meter: "_Meter", interrupted: int) -> Callable[[], None]:
        """Return a function that stops an abandoned batch and lets the brief work of others overtake it."""
        is_brief, is_innermost = batch.lane in BRIEF_LANES, interrupted == _MAX_NESTED

        def look() -> None:
            if is_brief and meter.seconds < _BRIEF_SECONDS:
                return
            if not batch.is_wanted:
                raise _RequestAbandoned
            self.scheduler.charge(batch, meter.lap())
            self._send_sign_of_life()
            while not is_innermost and (brief := self.scheduler.next_brief_batch(batch)):
                self.decode_batch(brief, interrupted + 1)
                meter.lap()

        return look

    def _send_sign_of_life(self) -> None:
        """Send an empty message from time to time: the server kills a worker that says nothing for long."""
        if (now := time.monotonic()) - self.last_sign_at > _SIGN_OF_LIFE_SECONDS:
            self.last_sign_at = now
            self.channel.send([{"decoded": 0}])

    def _fail(self, job: Job, error: Exception) -> None:
        if not job.is_cancelled:
            self.scheduler.cancel(job.message_id)
            self._send_problem(job.message_id, error)


class _Meter:
    """Measures the processor time of a thread in laps."""

    def __init__(self) -> None:
        self.started_at = time.thread_time()

    @property
    def seconds(self) -> float:
        """The seconds since the last lap."""
        return time.thread_time() - self.started_at

    def lap(self) -> float:
        """Return the seconds since the last lap, and begin another."""
        started_at, self.started_at = self.started_at, time.thread_time()
        return self.started_at - started_at


def _read_files(read: Callable[[ServedModel], Any], model: ServedModel) -> Request:
    (found,) = yield Stage(lambda _items, _look: [read(model)], [model], [_FILE_READING_SIZE], lane="slice")
    return found


# ---- the process


def main() -> None:
    """Load the models, report them to the server, and work until the server has ended."""
    with suppress(OSError):  # when memory runs out, the system should kill this process: it can be restarted
        Path("/proc/self/oom_score_adj").write_text("500")
    keep_freed_memory()
    channel = parent_socket()
    config = channel.receive()
    limits = Limits(**config["limits"])
    registry = ModelRegistry(config["device"], config["precision"], limits)
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        registry.load_all(config["runs"], {name: (pair[0], pair[1]) for name, pair in config["languages"].items()})
    except UserError as error:
        channel.send([{"fatal": str(error)}])
        return
    worker = DecodingWorker(channel, registry, BatchScheduler(config["threads"]), limits)
    for _ in range(config["threads"]):
        threading.Thread(target=worker.decode_forever, daemon=True).start()
    for model in registry.models.values():
        model.warm_up()
    gc.freeze()  # a collection would look at every object of the libraries, for a tenth of a second
    _send_models(registry, channel)
    threading.Thread(target=_reload_forever, args=(registry, channel), daemon=True).start()
    with suppress(ConnectionError):
        for messages in channel.receive_all():
            worker.handle_messages(messages)
    shutil.rmtree(config["upload_folder"], ignore_errors=True)  # the server has ended, perhaps without removing it


def _send_models(registry: ModelRegistry, channel: MessageSocket) -> None:
    channel.send([{"models": [model.describe() for model in registry.models.values()]}])


def _reload_forever(registry: ModelRegistry, channel: MessageSocket) -> None:
    while True:
        time.sleep(_REFRESH_SECONDS)
        try:
            registry.reload_changed(lambda _model: _send_models(registry, channel))
        except (UserError, OSError) as error:
            logger.warning("new weights could not be loaded: %s", error)


if __name__ == "__main__":
    protect_streams()
    logging.basicConfig(stream=sys.stderr, format="dragoman worker: %(message)s", level=logging.WARNING)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        main()
    sys.stderr.flush()
    os._exit(0)  # do not wait for decoding threads
