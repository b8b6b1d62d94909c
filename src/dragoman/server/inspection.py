"""What the worker shows of a model's inside: looks, continuations, head reports, checkpoints."""

from typing import Any

from dragoman.errors import UserError
from dragoman.run import Run
from dragoman.server.decoder import parse_decode_request
from dragoman.server.ipc import Message
from dragoman.server.registry import ServedModel
from dragoman.tasks.head_cache import cached_head_history, cached_head_report, saved_checkpoints
from dragoman.viewer.document import viewer_document


def inspect_translation(model: ServedModel, message: Message, max_tokens: int) -> dict[str, Any]:
    """Return one translation shown from inside."""
    translator = model.translator
    for text in (translator.task.to_model_input(message["text"]), message.get("target") or ""):
        _check_length(len(translator.source_tokens(text)), max_tokens)
    options = {name: message.get(name) for name in ("target", "beam")}
    without = [(kind, layer, head) for kind, layer, head in message["without"]]
    record = translator.inspect(
        message["text"], prefix=message["prefix"], without=without, trace=message["trace"], **options
    )
    _check_length(len(record.target_pieces), max_tokens)
    return {**viewer_document(record), "model": model.name}


def _check_length(tokens: int, max_tokens: int) -> None:
    """Refuse a sentence whose matrices would be too large to send and to draw."""
    if tokens > max_tokens:
        raise UserError(
            f"The sentence has {tokens} pieces; at most {max_tokens} can be shown at once. Give a shorter one."
        )


def translate_with_prefix(model: ServedModel, message: Message) -> list[list[dict[str, Any]]]:
    """Return translations of one text that begin with given words."""
    question = parse_decode_request(message, model)
    first, others = question.segment_tokens[:1], question.segment_tokens[1:]
    engine, translator = model.engine(question.config), model.translator
    found = engine.search(first, n_best=question.n_best, prefix=translator.prefix_tokens(message["prefix"]))
    return question.build_answer([*found, *engine.search(others, n_best=question.n_best)])


def head_report(model: ServedModel) -> dict[str, Any] | None:
    """Return what was measured about a model's heads, and how it came to be; None if nothing was measured."""
    found = cached_head_report(Run(model.run))
    return {**found, "history": cached_head_history(Run(model.run))} if found else None


def list_checkpoints(model: ServedModel) -> list[dict[str, Any]]:
    """Return the checkpoints of a model's run, the oldest first."""
    return saved_checkpoints(Run(model.run))
