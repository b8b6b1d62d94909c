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
from dragoman.server.details import details
from dragoman.server.line import Batch, Job, Line
from dragoman.server.link import Message, WorkerEnd
from dragoman.server.shelf import Served
from dragoman.tasks.translator import Translation
from dragoman.tokens import END

LOG = logging.getLogger("dragoman.server")
LOWEST = -1e30  # JSON has no infinity


class Abandoned(Exception):
    """Nobody waits for this any more."""


@dataclass(eq=False)
class Question:
    """Texts to work on alike, cut into what the model can read at once."""

    model: Served
    texts: Sequence[str]
    beam: int | None = None
    n_best: int = 1
    details: bool = False
    pictures: bool = False
    read: bool = False  # whether the texts are what the model reads already

    def __post_init__(self) -> None:
        translator = self.model.translator
        self.how = self.model.how(self.beam, self.n_best)
        self.sources = self.texts if self.read else [translator.task.read(text) for text in self.texts]
        self.parts = [translator.windows(source) for source in self.sources]
        self.tokens = [translator.source_tokens(part) for row in self.parts for part in row]

    def job(self, number: int) -> Job:
        """Return the job that answers it."""
        key = id(self.model), id(self.how), self.n_best
        sizes = [len(tokens) for tokens in self.tokens]
        return Job(number, key, sizes, budget=self.how.batch_tokens // self.how.beam, what=self)

    def answer(self, found: Sequence[list[Hypothesis]]) -> list[list[dict[str, Any]]]:
        """Return the translations of each text, the best first."""
        start, answers = 0, []
        for number, parts in enumerate(self.parts):
            rows = list(found[start : start + len(parts)])
            best = self.model.translator.joined(rows, self.n_best)
            shown = [self.model.translator.as_shown(self.sources[number], one) for one in best]
            answers.append([self.written(number, one, rows, rank) for rank, one in enumerate(shown)])
            start += len(parts)
        return answers

    def written(self, number: int, one: Translation, rows: list[list[Hypothesis]], rank: int) -> dict[str, Any]:
        """Return one translation of a text as it is sent; `rows` are the hypotheses for each of its parts."""
        told = {"text": one.text, "score": finite(one.score), "log_probability": finite(one.log_probability)}
        told["truncated"] = one.truncated
        if self.pictures:
            told["pictures"] = list(filter(None, [self.model.translator.task.picture(one.text)]))
        if not self.details:
            return told
        parts = [row[min(rank, len(row) - 1)] for row in rows]
        return told | details(self.model.translator, self.texts[number], self.parts[number], parts, one.text)


def finite(number: float) -> float:
    """Return a number that JSON can hold."""
    return max(number, LOWEST)


class Decoder:
    """What the threads share."""

    def __init__(self, line: Line, end: WorkerEnd) -> None:
        self.line = line
        self.end = end

    def work(self) -> None:
        """Decode until the line is closed."""
        torch.set_num_threads(1)
        while batch := self.line.take():
            self.run(batch)

    def run(self, batch: Batch) -> None:
        """Decode one batch and send what is complete."""
        try:
            if batch.wanted:
                results = self.alone(batch) if batch.units[0][0].own_lane else self.decoded(batch)
                complete = self.line.settle(batch, results)
                answers = [{"id": job.number, **answered(job)} for job in complete]
                self.end.send([{"decoded": len(batch.units)}, *answers])
        except Abandoned:
            pass
        except UserError as error:
            self.refuse(batch, [422, "refused", str(error)])
        except Exception as error:
            LOG.error("decoding failed: %s", type(error).__name__)
            self.refuse(batch, [500, "internal", "The translator failed on this request."])
        finally:
            self.line.done(batch)

    def decoded(self, batch: Batch) -> list[list[Hypothesis]]:
        """Return the hypotheses for each unit."""
        question: Question = batch.units[0][0].what
        sources = [job.what.tokens[place] for job, place in batch.units]
        watch = None if batch.lane == "short" else self.between_steps(batch)
        return question.model.engine(question.how).search(sources, n_best=question.n_best, watch=watch)

    def alone(self, batch: Batch) -> list[Any]:
        """Return what a task of its own gives."""
        ((job, _),) = batch.units
        return [job.what(self.between_steps(batch))]

    def between_steps(self, batch: Batch) -> Callable[[Any], None]:
        """Return what a longer search does after each step: stop if nobody waits, let short sentences pass."""

        def pause(_beam: Any) -> None:
            if not batch.wanted:
                raise Abandoned
            if passing := self.line.pass_by():
                self.run(passing)

        return pause

    def refuse(self, batch: Batch, problem: list[Any]) -> None:
        """Tell the front that a batch's jobs will have no answer."""
        wanted = [job for job in dict.fromkeys(job for job, _ in batch.units) if not job.gone]
        for job in wanted:
            self.line.cancel(job.number)
        self.end.send([{"id": job.number, "problem": problem} for job in wanted])


def answered(job: Job) -> dict[str, Any]:
    """Return the answer of a complete job."""
    return {"found": job.results[0] if job.own_lane else job.what.answer(job.results)}


def stream(question: Question, number: int, end: WorkerEnd) -> Callable[[Callable[[Any], None]], Any]:
    """Return a task that translates sentence by sentence and sends each as it grows."""

    def task(pause: Callable[[Any], None]) -> Any:
        engine = question.model.engine(question.how)
        found: list[list[Hypothesis]] = []
        for place, tokens in enumerate(question.tokens):
            watch = Growing(question, number, end, place, pause)
            found += engine.search([tokens], n_best=question.n_best, watch=watch)
        return question.answer(found)

    return task


class Growing:
    """Sends the best beginning of a sentence's output while it is searched for."""

    def __init__(
        self, question: Question, number: int, end: WorkerEnd, place: int, pause: Callable[[Any], None]
    ) -> None:
        self.question, self.number, self.end, self.place, self.pause = question, number, end, place, pause
        self.told = ""

    def __call__(self, beam: Beam) -> None:
        """Tell what the best hypothesis says after a step."""
        self.pause(beam)
        text = self.text(beam)
        if text != self.told:
            self.told = text
            self.end.send([{"id": self.number, "part": {"place": self.place, "text": text}}])

    def text(self, beam: Beam) -> str:
        """Return what the likeliest hypothesis spells so far."""
        best = int(beam.log_probabilities[0].argmax())
        tokens = [token for token in beam.tokens[0, best].tolist()[1:] if token != END]
        translator = self.question.model.translator
        source = next(islice(chain.from_iterable(self.question.parts), self.place, None))
        return translator.task.shown(source, translator.target_tokenizer.decode(tokens))


def question_of(message: Message, model: Served) -> Question:
    """Read a question."""
    wish = {name: message[name] for name in ("beam", "n_best", "details", "pictures", "read") if name in message}
    return Question(model, message["texts"], **wish)
