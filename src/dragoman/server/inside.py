"""What the worker shows of a model's inside: looks, continuations, head reports, checkpoints."""

from typing import Any

from dragoman.errors import UserError
from dragoman.run import Run
from dragoman.server.decoder import question_of
from dragoman.server.link import Message
from dragoman.server.shelf import Served
from dragoman.tasks.head_cache import cached_history, cached_report, saved_checkpoints
from dragoman.viewer.document import contents


def look(model: Served, message: Message, most: int) -> dict[str, Any]:
    """Return one translation shown from inside."""
    translator = model.translator
    for text in (translator.task.read(message["text"]), message.get("target") or ""):
        check_length(len(translator.source_tokens(text)), most)
    options = {name: message.get(name) for name in ("target", "beam")}
    without = [(kind, layer, head) for kind, layer, head in message["without"]]
    record = translator.look(
        message["text"], prefix=message["prefix"], without=without, trace=message["trace"], **options
    )
    check_length(len(record.target_pieces), most)
    return {**contents(record), "model": model.name}


def check_length(pieces: int, most: int) -> None:
    """Refuse a sentence whose matrices would be too large to send and to draw."""
    if pieces > most:
        raise UserError(f"The sentence has {pieces} pieces; at most {most} can be shown at once. Give a shorter one.")


def written_on(model: Served, message: Message) -> list[list[dict[str, Any]]]:
    """Return translations of one text that begin with given words."""
    question = question_of(message, model)
    first, others = question.tokens[:1], question.tokens[1:]
    engine, translator = model.engine(question.how), model.translator
    found = engine.search(first, n_best=question.n_best, prefix=translator.prefix_tokens(message["prefix"]))
    return question.answer([*found, *engine.search(others, n_best=question.n_best)])


def report(model: Served) -> dict[str, Any] | None:
    """Return what was measured about a model's heads, and how it came to be; None if nothing was measured."""
    found = cached_report(Run(model.run))
    return {**found, "history": cached_history(Run(model.run))} if found else None


def checkpoints(model: Served) -> list[dict[str, Any]]:
    """Return the checkpoints of a model's run, the oldest first."""
    return saved_checkpoints(Run(model.run))
