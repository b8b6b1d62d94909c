"""The decoding worker: a process with torch and the models, separate from the HTTP server so that a crash or a lack of
memory here does not end the server.

`python -m dragoman.server.worker FD` is started by `WorkerClient`. The main thread reads messages; other threads decode
batches. The worker ends when the server does.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from dragoman.decoding.hypothesis import Hypothesis
from dragoman.decoding.search import Beam
from dragoman.errors import UserError
from dragoman.malloc import keep_freed_memory
from dragoman.processes import Message, MessageSocket, parent_socket
from dragoman.server.inspection import head_report, inspect_translation, list_checkpoints, translation_details
from dragoman.server.registry import ModelRegistry, ServedModel
from dragoman.server.scheduler import BatchScheduler, DecodingBatch, Job
from dragoman.streams import protect_streams
from dragoman.tasks.generate import LanguageModel
from dragoman.tasks.sequence_model import Prediction
from dragoman.tokens import END

logger = logging.getLogger("dragoman.server")
_REFRESH_SECONDS = 1.0
_MIN_SCORE = -1e30  # JSON has no infinity
_DEFAULT_LENGTH = 200  # tokens that a language model generates
_SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "seed", "stop")

_StepCallback = Callable[[Any], None]  # called after each decoding step; may raise _RequestAbandoned


class _RequestAbandoned(Exception):
    """The client of a request has disconnected."""


@dataclass(eq=False)
class DecodeRequest:
    """Texts to decode with the same options, split into segments that fit the model."""

    model: ServedModel
    texts: Sequence[str]
    beam: int | None = None
    n_best: int = 1
    details: bool = False
    pictures: bool = False
    is_model_input: bool = False  # the texts are in the model's own format already
    split: bool = True  # False: read all sentences of a line at once

    def __post_init__(self) -> None:
        translator = self.model.translator
        self.config = self.model.decoding_config(self.beam, self.n_best)
        self.sources = (
            self.texts if self.is_model_input else [translator.task.to_model_input(text) for text in self.texts]
        )
        self.segmented = [translator.split_text(source, split=self.split) for source in self.sources]
        self.segments = [segment for text in self.segmented for segment in text.sentences]
        self.segment_tokens = [translator.source_tokens(segment) for segment in self.segments]

    def to_job(self, message_id: int) -> Job:
        """Return the job to schedule; its units are the segments."""
        key = id(self.model), id(self.config), self.n_best
        sizes = [len(tokens) for tokens in self.segment_tokens]
        return Job(message_id, key, sizes, budget=self.config.batch_tokens // self.config.beam, payload=self)

    def build_answer(self, hypotheses: Sequence[list[Hypothesis]]) -> list[list[dict[str, Any]]]:
        """Return the translations of each text, best first, from the hypotheses of each segment."""
        translator, remaining, answers = self.model.translator, iter(hypotheses), []
        for index, text in enumerate(self.segmented):
            rows = [next(remaining) for _ in text.sentences]
            merged = translator.merge_segments(text, rows, self.n_best)
            outputs = [translator.format_output(self.sources[index], translation) for translation in merged]
            answers.append([self._format(index, output, rows, rank) for rank, output in enumerate(outputs)])
        return answers

    def _format(self, index: int, output: Prediction, rows: list[list[Hypothesis]], rank: int) -> dict[str, Any]:
        formatted: dict[str, Any] = {
            "text": output.text,
            "score": max(output.score, _MIN_SCORE),
            "log_probability": max(output.log_probability, _MIN_SCORE),
            "truncated": output.truncated,
        }
        if self.pictures:
            formatted["pictures"] = list(filter(None, [self.model.translator.task.draw_output(output.text)]))
        if self.details:
            hypotheses = [row[min(rank, len(row) - 1)] for row in rows]
            formatted |= translation_details(
                self.model.translator, self.texts[index], self.segmented[index].sentences, hypotheses, output.text
            )
        return formatted


class DecodingWorker:
    """Handles messages from the server, and decodes batches in threads."""

    def __init__(
        self, channel: MessageSocket, registry: ModelRegistry, scheduler: BatchScheduler, limits: dict[str, Any]
    ) -> None:
        self.channel, self.registry, self.scheduler, self.limits = channel, registry, scheduler, limits
        self.operations: dict[str, Callable[[Message], None]] = {
            "translate": self.translate,
            "translate_with_prefix": self.translate_with_prefix,
            "stream": self.stream,
            "generate": self.generate,
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
        try:
            self.operations[message["operation"]](message)
        except UserError as error:
            self._send_problem(message["id"], 422, "refused", str(error))
        except Exception as error:
            logger.error("%s failed: %s", message.get("operation"), type(error).__name__)
            self._send_problem(
                message["id"], 500, "internal", "The request failed in the worker; the server log has details."
            )

    def translate(self, message: Message) -> None:
        """Translate texts, in batches with those of other requests."""
        self.scheduler.submit(self._decode_request(message).to_job(message["id"]))

    def translate_with_prefix(self, message: Message) -> None:
        """Translate one text; the translation begins with `prefix`."""
        request = self._decode_request(message)

        def task(_on_step: _StepCallback) -> Any:
            engine, n_best = request.model.engine(request.config), request.n_best
            prefix = request.model.translator.prefix_tokens(message["prefix"])
            first = engine.search(request.segment_tokens[:1], n_best=n_best, prefix=prefix)
            return request.build_answer([*first, *engine.search(request.segment_tokens[1:], n_best=n_best)])

        self._submit_task(message, task)

    def stream(self, message: Message) -> None:
        """Translate texts segment by segment and send the output so far after each step."""
        request = self._decode_request(message)

        def task(on_step: _StepCallback) -> Any:
            engine, hypotheses = request.model.engine(request.config), list[list[Hypothesis]]()
            for index, tokens in enumerate(request.segment_tokens):
                sender = _PartSender(request, message["id"], self.channel, index, on_step)
                hypotheses += engine.search([tokens], n_best=request.n_best, on_step=sender)
            return request.build_answer(hypotheses)

        self._submit_task(message, task)

    def generate(self, message: Message) -> None:
        """Continue texts with a language model; send the text so far if `send_parts` is set."""
        model = self._model(message)

        def task(on_step: _StepCallback) -> Any:
            def on_progress(text: str) -> None:
                on_step(None)
                if message.get("send_parts"):
                    self.channel.send([{"id": message["id"], "part": {"index": 0, "text": text}}])

            return [
                [
                    _generate_sample(model, text, message, sample, on_progress if sample == 0 else on_step)
                    for sample in range(message["n_best"])
                ]
                for text in message["texts"]
            ]

        self._submit_task(message, task)

    def inspect(self, message: Message) -> None:
        """Send the attention weights and alignment of one translation."""
        step = message.get("checkpoint")
        try:
            model = self.registry.at_checkpoint(message["model"], step)
        except UserError:  # whose text names directories of this machine
            raise UserError(f"No complete checkpoint at step {step}; /v1/checkpoints lists them.") from None

        def task(_on_step: _StepCallback) -> Any:
            document = inspect_translation(model.translator, message, self.limits["attention_tokens"])
            return {**document, "model": model.name}

        self._submit_task(message, task, "inspect")

    def head_report(self, message: Message) -> None:
        """Send the head report of a model."""
        self.channel.send([{"id": message["id"], "result": head_report(self._model(message))}])

    def checkpoints(self, message: Message) -> None:
        """Send the list of a run's checkpoints."""
        self.channel.send([{"id": message["id"], "result": list_checkpoints(self._model(message))}])

    def _model(self, message: Message) -> ServedModel:
        return self.registry.models[message["model"]]

    def _decode_request(self, message: Message) -> DecodeRequest:
        names = ("beam", "n_best", "details", "pictures", "is_model_input", "split")
        options = {name: message[name] for name in names if name in message}
        return DecodeRequest(self._model(message), message["texts"], **options)

    def _submit_task(
        self, message: Message, task: Callable[[_StepCallback], Any], lane: Literal["single", "inspect"] = "single"
    ) -> None:
        self.scheduler.submit(Job(message["id"], None, [0], 0, payload=task, fixed_lane=lane))

    def _send_problem(self, message_id: int, *problem: Any) -> None:
        self.channel.send([{"id": message_id, "problem": problem}])

    # ---- decoding threads

    def decode_forever(self) -> None:
        """Decode batches until the scheduler is closed."""
        torch.set_num_threads(1)
        while batch := self.scheduler.next_batch():
            self.decode_batch(batch)

    def decode_batch(self, batch: DecodingBatch) -> None:
        """Decode one batch and send the answers of all requests that it completes, in one message."""
        try:
            if batch.is_wanted:
                complete = self.scheduler.record_results(batch, self._results_of(batch))
                answers = [{"id": job.message_id, "result": _answer_of(job)} for job in complete]
                self.channel.send([{"decoded": len(batch.units)}, *answers])
        except _RequestAbandoned:
            pass
        except UserError as error:
            self._fail(batch, 422, "refused", str(error))
        except Exception as error:
            logger.error("decoding failed: %s", type(error).__name__)
            self._fail(batch, 500, "internal", "The request failed in the worker; the server log has details.")
        finally:
            self.scheduler.finish_batch(batch)

    def _results_of(self, batch: DecodingBatch) -> list[Any]:
        on_step = self._step_callback(batch)
        job, _ = batch.units[0]
        if job.fixed_lane:
            return [job.payload(on_step)]
        request: DecodeRequest = job.payload
        sources = [job.payload.segment_tokens[index] for job, index in batch.units]
        engine = request.model.engine(request.config)
        return engine.search(sources, n_best=request.n_best, on_step=None if batch.lane == "short" else on_step)

    def _step_callback(self, batch: DecodingBatch) -> _StepCallback:
        """Return a function that stops an abandoned batch and lets short sentences overtake a long one."""

        def on_step(_beam: Any) -> None:
            if not batch.is_wanted:
                raise _RequestAbandoned
            if short := self.scheduler.next_short_batch():
                self.decode_batch(short)

        return on_step

    def _fail(self, batch: DecodingBatch, *problem: Any) -> None:
        for job in dict.fromkeys(job for job, _ in batch.units if not job.is_cancelled):
            self.scheduler.cancel(job.message_id)
            self._send_problem(job.message_id, *problem)


def _answer_of(job: Job) -> Any:
    return job.results[0] if job.fixed_lane else job.payload.build_answer(job.results)


class _PartSender:
    """Sends the best partial hypothesis of a segment after each step in which it changes."""

    def __init__(
        self, request: DecodeRequest, message_id: int, channel: MessageSocket, index: int, on_step: _StepCallback
    ) -> None:
        self.request, self.message_id, self.channel = request, message_id, channel
        self.index, self.on_step = index, on_step
        self.source = request.segments[index]
        self.last_sent = ""

    def __call__(self, beam: Beam) -> None:
        self.on_step(beam)
        text = self._best_text(beam)
        if text != self.last_sent:
            self.last_sent = text
            self.channel.send([{"id": self.message_id, "part": {"index": self.index, "text": text}}])

    def _best_text(self, beam: Beam) -> str:
        best = int(beam.log_probabilities[0].argmax())
        tokens = [token for token in beam.tokens[0, best].tolist()[1:] if token != END]
        translator = self.request.model.translator
        return translator.task.from_model_output(self.source, translator.target_tokenizer.decode(tokens))


def _generate_sample(
    model: ServedModel, text: str, message: Message, sample: int, on_progress: Callable[[str], None]
) -> dict[str, Any]:
    options = {name: message[name] for name in _SAMPLING_FIELDS if name in message}
    assert isinstance(model.translator, LanguageModel), f"{type(model.translator)} is not a language model"
    stream = model.translator.stream(text, length=message.get("length", _DEFAULT_LENGTH), sample=sample, **options)
    generated = ""
    for piece in stream:
        generated += piece
        on_progress(generated)
    result = stream.result()
    return {
        "text": result.text,
        "score": max(result.log_probability / max(1, result.tokens), _MIN_SCORE),
        "log_probability": max(result.log_probability, _MIN_SCORE),
        "truncated": result.finish_reason == "length",
    }


# ---- the process


def main() -> None:
    """Load the models, report them to the server, and work until the server has ended."""
    with suppress(OSError):  # when memory runs out, the system should kill this process: it can be restarted
        Path("/proc/self/oom_score_adj").write_text("500")
    keep_freed_memory()
    channel = parent_socket()
    config = channel.receive()
    registry = ModelRegistry(config["device"], config["precision"])
    try:
        registry.load_all(config["runs"], {name: (pair[0], pair[1]) for name, pair in config["languages"].items()})
    except UserError as error:
        channel.send([{"fatal": str(error)}])
        return
    worker = DecodingWorker(channel, registry, BatchScheduler(config["threads"]), config["limits"])
    for _ in range(config["threads"]):
        threading.Thread(target=worker.decode_forever, daemon=True).start()
    for model in registry.models.values():
        model.warm_up()
    _send_models(registry, channel)
    threading.Thread(target=_reload_forever, args=(registry, channel), daemon=True).start()
    for messages in channel.receive_all():
        worker.handle_messages(messages)


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
