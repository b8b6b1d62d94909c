"""The worker's threads: take batches out of the line, decode them, send the answers.

Runs in the worker. All of a batch's answers leave in one message.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import torch

from dragoman.decoding.hypothesis import Hypothesis
from dragoman.decoding.search import Beam
from dragoman.errors import UserError
from dragoman.server.alignment import translation_details
from dragoman.server.ipc import Message, WorkerChannel
from dragoman.server.registry import ServedModel
from dragoman.server.scheduler import BatchScheduler, DecodingBatch, Job
from dragoman.tasks.translator import Translation
from dragoman.tokens import END

logger = logging.getLogger("dragoman.server")
_MIN_SCORE = -1e30  # JSON has no infinity


class _RequestAbandoned(Exception):
    """Nobody waits for this any more."""


@dataclass(eq=False)
class DecodeRequest:
    """Texts to work on alike, cut into what the model can read at once."""

    model: ServedModel
    texts: Sequence[str]
    beam: int | None = None
    n_best: int = 1
    details: bool = False
    pictures: bool = False
    read: bool = False  # whether the texts are what the model reads already

    def __post_init__(self) -> None:
        translator = self.model.translator
        self.config = self.model.decoding_config(self.beam, self.n_best)
        self.sources = self.texts if self.read else [translator.task.to_model_input(text) for text in self.texts]
        self.segments = [translator.split_text(source) for source in self.sources]
        self.segment_tokens = [translator.source_tokens(part) for row in self.segments for part in row]

    def to_job(self, message_id: int) -> Job:
        """Return the job that answers it."""
        key = id(self.model), id(self.config), self.n_best
        sizes = [len(tokens) for tokens in self.segment_tokens]
        return Job(message_id, key, sizes, budget=self.config.batch_tokens // self.config.beam, payload=self)

    def build_answer(self, hypotheses: Sequence[list[Hypothesis]]) -> list[list[dict[str, Any]]]:
        """Return the translations of each text, the best first."""
        start, answers = 0, []
        for number, parts in enumerate(self.segments):
            rows = list(hypotheses[start : start + len(parts)])
            best = self.model.translator.merge_parts(rows, self.n_best)
            shown = [self.model.translator.format_output(self.sources[number], one) for one in best]
            answers.append([self.format_translation(number, one, rows, rank) for rank, one in enumerate(shown)])
            start += len(parts)
        return answers

    def format_translation(
        self, text_index: int, translation: Translation, rows: list[list[Hypothesis]], rank: int
    ) -> dict[str, Any]:
        """Return one translation of a text as it is sent; `rows` are the hypotheses for each of its parts."""
        told = {
            "text": translation.text,
            "score": clamp_score(translation.score),
            "log_probability": clamp_score(translation.log_probability),
        }
        told["truncated"] = translation.truncated
        if self.pictures:
            told["pictures"] = list(filter(None, [self.model.translator.task.draw_output(translation.text)]))
        if not self.details:
            return told
        parts = [row[min(rank, len(row) - 1)] for row in rows]
        return told | translation_details(
            self.model.translator, self.texts[text_index], self.segments[text_index], parts, translation.text
        )


def clamp_score(number: float) -> float:
    """Return a number that JSON can hold."""
    return max(number, _MIN_SCORE)


class BatchDecoder:
    """What the threads share."""

    def __init__(self, scheduler: BatchScheduler, channel: WorkerChannel) -> None:
        self.scheduler = scheduler
        self.channel = channel

    def decode_forever(self) -> None:
        """Decode until the line is closed."""
        torch.set_num_threads(1)
        while batch := self.scheduler.next_batch():
            self.decode_batch(batch)

    def decode_batch(self, batch: DecodingBatch) -> None:
        """Decode one batch and send what is complete."""
        try:
            if batch.is_wanted:
                results = self.run_task(batch) if batch.units[0][0].fixed_lane else self.search_batch(batch)
                complete = self.scheduler.record_results(batch, results)
                answers = [{"id": job.message_id, **_job_answer(job)} for job in complete]
                self.channel.send([{"decoded": len(batch.units)}, *answers])
        except _RequestAbandoned:
            pass
        except UserError as error:
            self.send_problem(batch, [422, "refused", str(error)])
        except Exception as error:
            logger.error("decoding failed: %s", type(error).__name__)
            self.send_problem(batch, [500, "internal", "The translator failed on this request."])
        finally:
            self.scheduler.finish_batch(batch)

    def search_batch(self, batch: DecodingBatch) -> list[list[Hypothesis]]:
        """Return the hypotheses for each unit."""
        question: DecodeRequest = batch.units[0][0].payload
        sources = [job.payload.tokens[place] for job, place in batch.units]
        watch = None if batch.lane == "short" else self.step_callback(batch)
        return question.model.engine(question.config).search(sources, n_best=question.n_best, on_step=watch)

    def run_task(self, batch: DecodingBatch) -> list[Any]:
        """Return what a task of its own gives."""
        ((job, _),) = batch.units
        return [job.payload(self.step_callback(batch))]

    def step_callback(self, batch: DecodingBatch) -> Callable[[Any], None]:
        """Return what a longer search does after each step: stop if nobody waits, let short sentences pass."""

        def pause(_beam: Any) -> None:
            if not batch.is_wanted:
                raise _RequestAbandoned
            if passing := self.scheduler.next_short_batch():
                self.decode_batch(passing)

        return pause

    def send_problem(self, batch: DecodingBatch, problem: list[Any]) -> None:
        """Tell the front that a batch's jobs will have no answer."""
        wanted = [job for job in dict.fromkeys(job for job, _ in batch.units) if not job.is_cancelled]
        for job in wanted:
            self.scheduler.cancel(job.message_id)
        self.channel.send([{"id": job.message_id, "problem": problem} for job in wanted])


def _job_answer(job: Job) -> dict[str, Any]:
    """Return the answer of a complete job."""
    return {"found": job.results[0] if job.fixed_lane else job.payload.answer(job.results)}


def stream_task(
    request: DecodeRequest, message_id: int, channel: WorkerChannel
) -> Callable[[Callable[[Any], None]], Any]:
    """Return a task that translates sentence by sentence and sends each as it grows."""

    def task(pause: Callable[[Any], None]) -> Any:
        engine = request.model.engine(request.config)
        found: list[list[Hypothesis]] = []
        for place, tokens in enumerate(request.segment_tokens):
            watch = _PartialOutputSender(request, message_id, channel, place, pause)
            found += engine.search([tokens], n_best=request.n_best, on_step=watch)
        return request.build_answer(found)

    return task


class _PartialOutputSender:
    """Sends the best beginning of a sentence's output while it is searched for."""

    def __init__(
        self,
        request: DecodeRequest,
        message_id: int,
        channel: WorkerChannel,
        segment_index: int,
        on_step: Callable[[Any], None],
    ) -> None:
        self.request, self.message_id, self.channel, self.segment_index, self.on_step = (
            request,
            message_id,
            channel,
            segment_index,
            on_step,
        )
        self.last_sent = ""

    def __call__(self, beam: Beam) -> None:
        """Tell what the best hypothesis says after a step."""
        self.on_step(beam)
        text = self.best_text(beam)
        if text != self.last_sent:
            self.last_sent = text
            self.channel.send([{"id": self.message_id, "part": {"place": self.segment_index, "text": text}}])

    def best_text(self, beam: Beam) -> str:
        """Return what the likeliest hypothesis spells so far."""
        best = int(beam.log_probabilities[0].argmax())
        tokens = [token for token in beam.tokens[0, best].tolist()[1:] if token != END]
        translator = self.request.model.translator
        source = next(islice(chain.from_iterable(self.request.segments), self.segment_index, None))
        return translator.task.from_model_output(source, translator.target_tokenizer.decode(tokens))


def parse_decode_request(message: Message, model: ServedModel) -> DecodeRequest:
    """Read a question."""
    wish = {name: message[name] for name in ("beam", "n_best", "details", "pictures", "read") if name in message}
    return DecodeRequest(model, message["texts"], **wish)
